// How kernels are written here, so that a device and the processor can both run them.
//
// A kernel is a struct of plain data, `Work`, with
//   struct Shared                        memory of one block, without initial values
//   uint32_t blocks() const              of the grid: at least 1
//   uint32_t phases() const              of every block: at least 1
//   void run(phase, block, thread, shared) const
// Blocks know nothing of each other. In a block all kBlockThreads threads end a phase before any
// begins the next, and within a phase no thread reads what another one writes, but for words that
// all of them add to (portable.h): so the processor may run the threads of a phase one after the
// other, in any order, with the same result. What needs all blocks of the grid to end something
// first is a Work of its own: works.h starts one after the other.
#pragma once

#include <cstdint>

#include "compression/cuda/kernels/portable.h"

namespace gradbus {

inline constexpr uint32_t kBlockThreads = 256;
// What a block holds at a time, 8 KiB of f32: the pieces in which the codecs add up squares
// (kBlockElements of compression/kernels/vector/compensate.h), and eight blocks fit the shared
// memory of an sm_80.
inline constexpr uint32_t kPieceElements = 2048;

GRADBUS_BOTH constexpr uint32_t piece_blocks(uint32_t count) {
  return larger(1u, parts_of(count, kPieceElements));
}

struct NoShared {};

// Calls visit(i) for the elements of block `block` that are this thread's, neighbours to
// neighbours.
template <class Visit>
GRADBUS_BOTH void for_elements(uint32_t count, uint32_t block, uint32_t thread,
                               const Visit& visit) {
  const uint32_t first = block * kPieceElements;
  const uint32_t end = smaller(first + kPieceElements, count);
  for (uint32_t i = first + thread; i < end; i += kBlockThreads) visit(i);
}

// Blocks of a Work whose blocks take one piece after the other, because they sum up something.
inline constexpr uint32_t kSumBlocksMax = 1024;
GRADBUS_BOTH constexpr uint32_t sum_blocks(uint32_t count) {
  return smaller(piece_blocks(count), kSumBlocksMax);
}
template <class Visit>
GRADBUS_BOTH void for_elements_of_pieces(uint32_t count, uint32_t block, uint32_t thread,
                                         const Visit& visit) {
  const uint32_t pieces = piece_blocks(count);
  for (uint32_t piece = block; piece < pieces; piece += kSumBlocksMax)
    for_elements(count, piece, thread, visit);
}

}  // namespace gradbus
