// What a device needs to know for the linear codecs powersgd and blocktopk (LinearCodec in
// compression/codec.h): plain data that crosses the plug-in's C ABI, as cuda_codec.h's. Pointers
// are to memory of the device, aligned to their elements.
//
// The host keeps what is small: it orthogonalises P, chooses blocks, and draws Q, by the codecs'
// own code on sums that have come through its memory anyway. The device does what reads the
// partition.
#pragma once

#include <cstdint>

namespace gradbus {

// What v is made of: CudaEncode's.
struct CudaPartition {
  const float* gradient = nullptr;
  float* residual = nullptr;
  const uint32_t* taken = nullptr;
  float decay = 1;
  uint32_t count = 0;
};

enum class CudaRankPart : uint32_t {
  kRows = 0,     // P = M Q: out[k * rows + row]
  kColumns = 1,  // Q = M^T P: out[k * columns + column]
  kFinish = 2,   // out[i] = factor * (P Q^T)[i], and the residual lacks P Q^T
};

// PowerSGD, the partition as a row-major matrix with zeros behind.
struct CudaLowRank {
  CudaPartition partition;
  CudaRankPart part = CudaRankPart::kRows;
  uint32_t rows = 0;
  uint32_t columns = 0;
  uint32_t rank = 0;
  const float* p = nullptr;  // rank * rows; kColumns, kFinish
  const float* q = nullptr;  // rank * columns; kRows, kFinish
  float* out = nullptr;      // kFinish: may be the gradient
  float factor = 1;
  uint32_t unused = 0;
};

enum class CudaBlocksPart : uint32_t {
  kNorms = 0,  // out: f32, the L1 norm of each block
  kGather =
      1,  // out: v of the chosen blocks, one after the other, zeros behind the partition's end
  kFinish = 2,  // out: f32[count], of chosen blocks scale * sum, else 0; and the residual
};

// Block top-k.
struct CudaBlocks {
  CudaPartition partition;
  CudaBlocksPart part = CudaBlocksPart::kNorms;
  uint32_t block = 1;                // elements
  uint32_t chosen = 0;               // blocks
  uint32_t dtype = 0;                // DType of what kGather writes and kFinish reads
  const uint32_t* blocks = nullptr;  // kGather: the chosen ones, ascending
  const uint32_t* places = nullptr;  // kFinish: of each block, its place among them + 1, or 0
  const void* sum = nullptr;         // kFinish
  void* out = nullptr;
  float scale = 1;
  uint32_t finite = 1;  // kFinish: 0 leaves the residual
};
static_assert(sizeof(CudaPartition) == 32 && sizeof(CudaLowRank) == 80 && sizeof(CudaBlocks) == 88,
              "part of kCudaAbi");

// False for what none of these codecs is like.
bool is_possible(const CudaLowRank& input);
bool is_possible(const CudaBlocks& input);

}  // namespace gradbus
