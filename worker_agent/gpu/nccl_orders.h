// The messages between an agent and the process with its NCCL communicator (nccl_child.h): one
// packet each, over a socket pair, within one build.
//
// An order is answered when it is done. There is one at a time.
#pragma once

#include <cstdint>
#include <type_traits>

#include "compression/cuda/plugin.h"
#include "worker_agent/gpu/nccl_library.h"

namespace gradbus {

inline constexpr uint32_t kNcclRankBuffersMax = 8192;
inline constexpr int kNcclSocket = 3;  // the child's descriptor

enum class NcclVerb : uint32_t {
  kNewId = 1,
  kConnect = 2,
  kOpen = 3,  // memory of a device that the agent has; also before kConnect
  kAllReduce = 4,
  kReduceScatter = 5,
  kAllGather = 6,
  kBroadcast = 7,
  kSend = 8,
  kReceive = 9,
};

struct NcclOrder {
  uint64_t number = 0;
  NcclVerb verb = NcclVerb::kNewId;
  uint32_t deadline_ms = 0;  // starts when the order is read; then the operation is aborted

  NcclId id = {};  // kConnect
  uint32_t rank = 0;
  uint32_t ranks = 0;
  uint32_t device = 0;  // kConnect, kOpen

  uint32_t rank_buffer = 0;     // kOpen: its number from then on, below kNcclRankBuffersMax
  CudaMemoryShare memory = {};  // ... ; its descriptor comes with the packet
  CudaShare event = {};         // collectives: completes when their input is ready
  uint32_t has_event = 0;

  uint32_t from_rank_buffer = 0;  // collectives: where, in bytes, and how much, in elements
  uint32_t to_rank_buffer = 0;
  uint32_t root = 0;  // kBroadcast
  uint32_t peer = 0;  // kSend, kReceive
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t count = 0;  // as NcclCall
  NcclType type = NcclType::kF32;
  NcclOp op = NcclOp::kSum;
};

struct NcclAnswer {
  uint64_t number = 0;
  uint32_t code = 0;  // Code
  uint32_t unused = 0;
  NcclId id;                // kNewId
  char message[1000] = {};  // of a code that is not kOk
};

static_assert(std::is_trivially_copyable_v<NcclOrder> && std::is_trivially_copyable_v<NcclAnswer>);

}  // namespace gradbus
