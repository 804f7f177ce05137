// The commands of the conductor to the engine for jobs with ranks on this node. Records own what
// they name with shared pointers, so memory is unmapped when both have released it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/segment.h"
#include "data_plane/collectives/collective.h"
#include "data_plane/engine_command.h"
#include "data_plane/tensor_plan.h"
#include "shared_memory/local_reduction.h"
#include "worker_agent/gpu/device_tensor.h"
#include "worker_agent/gpu/nccl_queue.h"
#include "worker_agent/job/arena.h"
#include "worker_agent/job/channel.h"
#include "worker_agent/job/fidelity.h"
#include "worker_agent/job/job_trace.h"
#include "worker_agent/job/staleness_board.h"

namespace gradbus {

class DevicePartitions;

struct StartJob {
  uint64_t job = 0;
  std::string name;
  uint32_t epoch = 0;
  uint64_t link_key = 0;
  uint32_t agent_index = 0;
  uint32_t agents = 1;
  uint32_t shards = 0;
  std::vector<std::string> agent_addresses;        // by agent index, then by shard
  std::vector<std::string> node_names;             // by agent index
  std::vector<uint32_t> agent_of_rank;             // by rank
  std::vector<uint32_t> local_ranks;               // this node's ranks, by local rank
  std::vector<std::shared_ptr<Channel>> channels;  // by local rank
  std::shared_ptr<JobTraffic> traffic = std::make_shared<JobTraffic>();
  std::shared_ptr<FidelityBoard> fidelity;    // of compressed tensors that ask for it
  std::shared_ptr<StalenessBoard> staleness;  // of tensors whose parameters shards hold
  std::shared_ptr<JobTrace> trace = std::make_shared<JobTrace>();
};

// The rank buffers of a tensor are in its arena slot.
struct HostMemory {};

// NCCL sums it between nodes.
struct NcclPlace {
  uint32_t rank_buffer = 0;         // its first one, in the job's NCCL process
  std::shared_ptr<uint64_t> turns;  // agent 0's count of turns
};

// The rank buffers are on GPUs.
struct GpuMemory {
  std::shared_ptr<DeviceTensor> device;
  std::shared_ptr<DevicePartitions> partitions = nullptr;  // the tensor is compressed there
  std::optional<NcclPlace> nccl = {};
};

using TensorMemory = std::variant<HostMemory, GpuMemory>;

struct AddTensor {
  uint64_t job = 0;
  TensorPlan plan;
  Reduction last;  // operation on the sum of all nodes
  LocalReductionShape shape;
  ArenaSlot slot;
  std::shared_ptr<Segment> segment;
  TensorMemory memory;

  GpuMemory* gpu() { return std::get_if<GpuMemory>(&memory); }
  const GpuMemory* gpu() const { return std::get_if<GpuMemory>(&memory); }
};

// For the conductor: the result of an order to a job's NCCL process, and the first turn that
// failed.
struct NcclEvent {
  uint64_t job = 0;
  NcclQueue::Ended ended;
};

// This node's NCCL process of a job, and its first order.
struct StartNccl {
  uint64_t job = 0;
  std::unique_ptr<NcclQueue> queue;
  std::shared_ptr<Mailbox<NcclEvent>> events;
};

struct OrderNccl {
  uint64_t job = 0;
  NcclQueue::Order order;
};

void carry_out(Engine& engine, StartJob command);
void carry_out(Engine& engine, AddTensor command);
void carry_out(Engine& engine, StartNccl command);
void carry_out(Engine& engine, const OrderNccl& command);

}  // namespace gradbus
