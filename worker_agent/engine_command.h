// The commands of the conductor to the engine, and the engine's answers. Records own what they name
// with shared pointers, so memory is unmapped when both have released it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "client_lib/shm/local_reduction.h"
#include "common/segment.h"
#include "common/status.h"
#include "worker_agent/arena.h"
#include "worker_agent/channel.h"
#include "worker_agent/compressed/fidelity.h"
#include "worker_agent/device/device_tensor.h"
#include "worker_agent/device/nccl_queue.h"
#include "worker_agent/mailbox.h"
#include "worker_agent/shard/shard_plan.h"
#include "worker_agent/staleness_board.h"

namespace gradbus {

class DevicePartitions;
class SnapshotKeeper;

// Written by the engine, read by the conductor for the heartbeat.
struct JobTraffic {
  std::atomic<uint64_t> sent_bytes{0};
  std::atomic<uint64_t> received_bytes{0};
};

struct StartJob {
  uint64_t job = 0;
  std::string name;
  uint32_t epoch = 0;
  uint64_t link_key = 0;
  uint32_t agent_index = 0;
  uint32_t agents = 1;
  uint32_t shards = 0;
  PlacementPattern pattern = nullptr;              // of chunks on shards
  std::vector<std::string> agent_addresses;        // by agent index, then by shard
  std::vector<uint32_t> agent_of_rank;             // by rank
  std::vector<uint32_t> local_ranks;               // this node's ranks, by local rank
  std::vector<std::shared_ptr<Channel>> channels;  // by local rank
  std::shared_ptr<JobTraffic> traffic;
  std::shared_ptr<FidelityBoard> fidelity;    // of compressed tensors that ask for it
  std::shared_ptr<StalenessBoard> staleness;  // of tensors whose parameters shards hold
};

struct AddTensor {
  uint64_t job = 0;
  uint32_t tensor = 0;
  std::string name;
  ReduceOp op = ReduceOp::kSum;
  uint32_t root = 0;
  Algorithm algorithm = Algorithm::kRing;
  uint32_t replicas = 1;  // kShards: copies of each chunk
  Reduction last;         // operation on the sum of all nodes
  CompressionPlan compression;
  LocalReductionShape shape;
  ArenaSlot slot;
  std::shared_ptr<Segment> segment;
  bool holds_parameters = false;  // kShards: they update the parameters
  bool one_shard = false;         // kShards: all chunks are on one
  // kShards: its placement (0 shards: that of the job's start), and the tensor that it replaces (0:
  // none)
  uint32_t shards = 0;
  PlacementPattern pattern = nullptr;
  ShardMembers members = nullptr;
  uint32_t replaces = 0;
  std::shared_ptr<DeviceTensor> device = nullptr;  // rank buffers are on GPUs; null: in the segment
  std::shared_ptr<DevicePartitions> device_partitions = nullptr;  // the tensor is compressed there
  // NCCL only: its first rank buffer in the job's NCCL process, and agent 0's count of turns
  bool by_nccl = false;
  uint32_t nccl_rank_buffer = 0;
  std::shared_ptr<uint64_t> nccl_turns = nullptr;
};

// The engine has removed the tensor. No frame here or in flight uses its memory any more.
struct TensorGone {
  uint64_t job = 0;
  uint32_t tensor = 0;
};

// No rank of the job uses the tensor any more. `gone` gets the answer; null: no answer is needed.
struct RemoveTensor {
  uint64_t job = 0;
  uint32_t tensor = 0;
  std::shared_ptr<Mailbox<TensorGone>> gone;
};

// For the conductor: the result of an order to a job's NCCL process, and the first turn that
// failed.
struct NcclNews {
  uint64_t job = 0;
  NcclQueue::Ended ended;
};

// This node's NCCL process of a job, and its first order.
struct StartNccl {
  uint64_t job = 0;
  std::unique_ptr<NcclQueue> queue;
  std::shared_ptr<Mailbox<NcclNews>> news;
};

struct OrderNccl {
  uint64_t job = 0;
  NcclQueue::Order order;
};

// This node is one of a job's parameter-server shards.
struct StartShardJob {
  uint64_t job = 0;
  std::string name;
  uint32_t epoch = 0;
  uint64_t link_key = 0;
  uint32_t shard = 0;  // 0 .. shards - 1
  uint32_t agents = 1;
  std::vector<std::string> addresses;  // by agent index, then by shard
  std::shared_ptr<JobTraffic> traffic;
  std::shared_ptr<SnapshotKeeper> keeper;  // null: no snapshots
  uint64_t run = 0;                        // names this start of the job in snapshots
  uint32_t shards = 1;
};

// With `copy`, the tensor is the copy of another shard's part (shard/shard_tensor.h).
struct AddShardTensor {
  uint64_t job = 0;
  ShardPlan plan;
  // Mode option restore: the initial state, or why it is not available.
  std::vector<RestoredChunk> restored = {};
  Status restore_failed = {};
  bool copy = false;
  // The initial state is on other shards, and all tensors of this command have arrived.
  bool begins_move = false;
  uint32_t placement = 0;
  uint64_t run = 0;  // names the placement in snapshots
};

// A shard of the job is lost for good, and the job continues with the copies of its chunks.
struct LoseShard {
  uint64_t job = 0;
  uint32_t shard = 0;
};

// New shards of the job, after the known ones. The listed lost ones may be new or known.
struct AddShards {
  uint64_t job = 0;
  std::vector<std::string> addresses;
  std::vector<uint32_t> lost;
};

struct EndJob {
  uint64_t job = 0;
};

// The answer to MeasurePath. The figures are 0 when the measurement failed.
struct PathAnswer {
  uint64_t probe = 0;
  double alpha_us = 0;
  double beta_ns = 0;
};

struct MeasurePath {
  uint64_t probe = 0;
  std::string address;
  std::shared_ptr<Mailbox<PathAnswer>> answer;
};

using EngineCommand =
    std::variant<StartJob, AddTensor, StartShardJob, AddShardTensor, LoseShard, AddShards, EndJob,
                 MeasurePath, StartNccl, OrderNccl, RemoveTensor>;

// The job cannot continue: a link broke, or a client wrote invalid data.
struct JobBroken {
  uint64_t job = 0;
  Status status;
};

}  // namespace gradbus
