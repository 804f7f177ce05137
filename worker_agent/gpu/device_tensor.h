// A tensor whose ranks on this node have their elements in memory of GPUs. Each rank has one rank
// buffer on its GPU, which the agent owns and shares with it by CUDA IPC (DeviceRankBuffer in
// proto/attach.h).
//
// A ROUND. Each rank records its event `ready` after the work that computes its elements, and
// posts. When all have posted, start() makes the stream of one of the GPUs, the tensor's home, wait
// for these events and sum all rank buffers in one pass:
//   on one node   into all rank buffers, and the round is over;
//   between nodes into the first rank buffer of shared memory, in pieces. Each piece rings the
//                 engine's doorbell when it is complete. The engine exchanges that rank buffer like
//                 any other, then deliver() copies the result into all rank buffers in one pass.
//                 With NCCL, the sum goes into the first rank buffer itself, and NCCL sums it
//                 between nodes.
// The sum of a compressed tensor stays on the home, in the rank buffer of the first rank there,
// partition by partition. The caller encodes it and provides the result
// (compressed/device_partitions.h).
//
// After the last pass of a round, each rank's event `done` is recorded, for which its streams wait.
// So no thread of any process waits for a GPU. The streams keep the order: a round reads data that
// was written before `ready`, and the next round's sum follows this one's delivery on the same
// stream.
//
// The conductor's thread calls make(), the engine's thread the functions of a round.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/segment.h"
#include "common/status.h"
#include "proto/attach.h"
#include "shared_memory/local_reduction.h"
#include "worker_agent/gpu/cuda_plugin.h"

namespace gradbus {

// Host memory that GPUs read and write directly during this object's life.
class PinnedSegment {
 public:
  static Result<std::shared_ptr<PinnedSegment>> make(const CudaPlugin& plugin,
                                                     std::shared_ptr<Segment> segment);
  ~PinnedSegment();
  const Segment* segment() const { return segment_.get(); }

 private:
  PinnedSegment(const CudaPlugin& plugin, std::shared_ptr<Segment> segment)
      : plugin_(plugin), segment_(std::move(segment)) {}
  const CudaPlugin& plugin_;
  const std::shared_ptr<Segment> segment_;
};

struct DevicePlan {
  std::string who;                // "tensor "g0" of job "digits"", for messages
  std::vector<uint32_t> devices;  // by local rank
  CudaSharing sharing = CudaSharing::kLegacy;
  std::string not_shared_by;   // ways with a higher preference, and why they failed
  uint32_t home = 0;           // one of `devices`
  bool home_is_first = false;  // the home is the first device; false: devices take turns
  LocalReductionShape shape;
  bool leaves_node = false;
  uint64_t partition_elements = 0;        // of a compressed tensor that leaves the node; 0: dense
  std::byte* host = nullptr;              // the first rank buffer in shared memory
  std::shared_ptr<PinnedSegment> pinned;  // the segment of `host`
  int doorbell = -1;                      // the engine's bell(); a duplicate of it is rung
};

// Converts to the form of the attach protocol.
DeviceShare to_packet(const CudaShare& share);
DeviceMemory to_packet(const CudaMemoryShare& share);

// The memory as shared with one other process.
struct SharedMemory {
  CudaMemoryShare share;
  Fd descriptor;  // the share's, if it has one
};

class DeviceTensor {
 public:
  // Returns GB-D622 to D624 with the reason on failure.
  static Result<std::shared_ptr<DeviceTensor>> make(const CudaPlugin& plugin, DevicePlan plan);
  ~DeviceTensor();
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  const DeviceRankBuffer& rank_buffer(uint32_t local_rank) const {
    return ranks_[local_rank].shared;
  }
  // The data with which another process opens the rank buffer's memory; each call makes a new
  // descriptor.
  Result<SharedMemory> share(uint32_t local_rank) const {
    return share(ranks_[local_rank].memory, plan_.devices[local_rank]);
  }
  bool leaves_node() const { return plan_.leaves_node; }
  uint32_t home() const { return plan_.home; }
  const DevicePlan& plan() const { return plan_; }

  // Called before its first round, on the conductor's thread. The first rank buffer is exchanged,
  // and `last` is the final operation on the sum of all nodes.
  void go_by_nccl(const Reduction& last) { by_nccl_ = last; }

  // All ranks have posted. GB-D624 when the GPU refuses work.
  Status start();
  // Between nodes: whether this chunk of the sum is in shared memory, or in the first rank buffer.
  // For a compressed tensor: whether the work before announce() is done.
  bool summed(uint32_t chunk);
  // Between nodes: the result is ready; for a compressed tensor it is in all rank buffers.
  Status deliver();
  // The GPU's error after summed().
  const Status& failure() const { return failure_; }

  // ---- compressed tensors, after start(): all on one stream, in this order
  CudaStream* stream() const { return home_; }
  // The rank buffer of sums and results.
  float* front() const { return static_cast<float*>(ranks_[front_].memory); }
  float* elements(uint32_t local_rank) const {
    return static_cast<float*>(ranks_[local_rank].memory);
  }
  uint32_t local_size() const { return static_cast<uint32_t>(ranks_.size()); }
  // Computes the ranks' sum of this partition in the front rank buffer.
  Status sum_partition(size_t partition) { return sum(pieces_[partition]); }
  // Rings the engine when all work on the stream so far is done.
  Status announce(size_t partition);
  // Whether the work before the latest announce() is done. It comes later than summed(), in the
  // middle of a round.
  Result<bool> came(size_t partition) const;
  // Copies the partition from the front rank buffer to all others.
  Status spread_partition(size_t partition) { return spread(pieces_[partition]); }
  // The error of a plug-in call, naming the tensor.
  Status check(CudaResult result, const char* what) const;
  const CudaTable& cuda() const { return *plugin_.table; }
  // Called before the memory is freed: waits until the stream is idle. Returns false when a second
  // was not enough.
  bool quiet();

 private:
  struct Rank {
    void* memory = nullptr;
    CudaEvent* ready = nullptr;
    CudaEvent* done = nullptr;
    CudaStream* stream = nullptr;  // of its GPU; null: its GPU is the home
    DeviceRankBuffer shared;
  };
  struct Piece {
    uint64_t first = 0;  // element
    uint64_t elements = 0;
    CudaEvent* summed = nullptr;
  };

  DeviceTensor(const CudaPlugin& plugin, DevicePlan plan);
  bool coded() const { return plan_.partition_elements > 0; }
  bool sums_in_place() const { return by_nccl_.has_value() || coded(); }
  Result<SharedMemory> share(void* memory, uint32_t device) const;
  Status set_up();
  Status set_up(Rank& rank, uint32_t device);
  Status set_up_pieces();
  Status sum(const Piece& piece);
  Status announce(const Piece& piece);
  Status spread(const Piece& piece);
  Status say_done();

  const CudaPlugin& plugin_;
  const DevicePlan plan_;
  Fd doorbell_;  // a duplicate, because a GPU may ring after the channel's was closed
  CudaStream* home_ = nullptr;
  CudaEvent* moved_ = nullptr;  // on home_; `done` of other GPUs waits for it
  std::vector<Rank> ranks_;     // by local rank
  size_t front_ = 0;            // index in ranks_ of one on the home
  std::vector<Piece> pieces_;   // partitions, for a compressed tensor
  uint32_t chunks_a_piece_ = 1;
  size_t summed_ = 0;  // number of pieces
  std::optional<Reduction> by_nccl_;
  Status failure_;
};

}  // namespace gradbus
