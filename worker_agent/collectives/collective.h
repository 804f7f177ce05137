// What one agent does for one registered tensor of a job that spans several agents: a pure state
// machine (state, event) -> actions. No socket, clock, thread or payload byte inside, so tests
// drive a whole ring of them in one thread under random orders and delays.
//
// The agents of a job form a ring: agent i sends data frames to i + 1 (its successor) and receives
// them from i - 1 (its predecessor); credits flow the other way. A round begins when all local
// ranks have posted it; the agent then sends one credit to its predecessor, and sends data only
// after its successor's credit for that round has come. So a frame never arrives for a round that
// the receiver has not begun, no order of ranks can fill a link with frames that nobody may consume
// yet, and nothing deadlocks. (Broadcast: the root's agent receives no data and so sends no
// credit.)
//
// Actions are carried out at once and in order by the engine; kSend alone ends later, with
// on_sent().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/status.h"
#include "proto/frame.h"
#include "proto/numbers.h"

namespace gradbus {

// What never changes about a tensor: the same on every agent except agent_index and local_ranks.
struct CollectivePlan {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  uint64_t count = 0;  // elements; all-gather: capacity of one rank's block
  uint64_t chunk_elements =
      1;              // pipeline unit; chunk_elements * dtype_bytes <= kFramePayloadBytesMax
  uint32_t root = 0;  // broadcast: rank
  uint32_t agent_index = 0;
  std::vector<uint32_t> agent_of_rank;  // by rank; its size is the world size
  uint32_t agents = 1;

  // At least 1: a round of no elements still carries one empty frame over every edge, so that it
  // ends only when every agent has begun it.
  uint32_t chunks() const {
    if (count == 0) return 1;
    return static_cast<uint32_t>((count + chunk_elements - 1) / chunk_elements);
  }
};

struct Action {
  enum class Kind : uint8_t {
    kCredit,      // send a kCredit frame for `round` to the predecessor
    kSend,        // send chunk `chunk` of this tensor (all-gather: of rank `source`'s block) to the
                  // successor as `frame`; on_sent() follows with the same chunk, source and frame
    kAccumulate,  // add the payload in `buffer` to chunk `chunk` of the first area (all-reduce)
    kFinalize,    // the first area's chunk `chunk` is the whole sum: apply the average, copy it to
                  // the other local areas
    kDeliver,  // copy the payload in `buffer` into every local area's chunk (all-reduce), or into
               // the shared area (broadcast; all-gather: rank `source`'s block)
    kRelease,  // `buffer` is not needed any more: post it for the next frame
    kFinish,   // the round is over on this node: tell the clients
  };
  Kind kind = Kind::kFinish;
  FrameKind frame = FrameKind::kReduce;
  uint32_t chunk = 0;
  uint32_t source = 0;  // all-gather: rank; else 0. The header's `source`
  uint32_t buffer = 0;
  uint64_t round = 0;
  uint64_t bytes = 0;  // kSend, kAccumulate, kFinalize, kDeliver: payload bytes of the chunk
  uint64_t total = 0;  // kSend, kDeliver: the header's `total` (all-gather: bytes of the block)
};

// Sends of one tensor that wait for on_sent(); more wait inside. 64 chunks keep a link busy at any
// chunk size we use, and bound what one event can ask of the engine.
inline constexpr uint32_t kSendsInFlightMax = 64;
// The most actions one event appends: reserve this much.
inline constexpr uint32_t kActionsMax = kSendsInFlightMax + 4;

class Collective {
 public:
  virtual ~Collective() = default;

  // All local ranks have posted `round` (the last one + 1, first 1). `block_bytes`: all-gather, by
  // rank, the lengths of the local ranks' blocks (others are ignored): whole elements, at most
  // `count` of them, which the caller has checked.
  virtual void begin(uint64_t round, std::span<const uint64_t> block_bytes,
                     std::vector<Action>& actions) = 0;
  // All-reduce: the local ranks' sum of `chunk` is in the first area. Once per chunk and round,
  // after begin(). Not needed for a tensor of no elements, where it does nothing.
  virtual void on_chunk_reduced(uint32_t chunk, std::vector<Action>& actions) = 0;
  // A data frame lies in `buffer`. The header was checked as a frame; here it is checked against
  // the round: a frame that cannot belong to it is kCorrupt (the message names the field) and takes
  // no effect. The buffer stays borrowed until a kRelease names it.
  virtual Status on_frame(const FrameHeader& header, uint32_t buffer,
                          std::vector<Action>& actions) = 0;
  // The successor is ready for `round`: the current or the next one (else kCorrupt).
  virtual Status on_credit(uint64_t round, std::vector<Action>& actions) = 0;
  // The transport has given the bytes of this kSend back.
  virtual void on_sent(const Action& send, std::vector<Action>& actions) = 0;

  // The round that has begun and not finished; 0: none.
  virtual uint64_t active_round() const = 0;
};

// All-reduce: chunk c is owned by agent c % agents; its partial sums travel from owner + 1 around
// the ring to the owner (kReduce), the result travels on from the owner to everybody (kGather).
// Broadcast: a pipelined chain from the root's agent. All-gather: each block goes once around.
// The caller has checked the plan: agents >= 2, every agent has a rank, root < world size, a chunk
// fits a frame. Allocates everything a round needs here, nothing later but in `actions`.
std::unique_ptr<Collective> make_collective(const CollectivePlan& plan);

}  // namespace gradbus
