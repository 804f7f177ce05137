// A tensor whose ranks on this node have their elements in memory of GPUs: one area for each rank,
// on its GPU, that the agent owns and shares with it by CUDA IPC (DeviceArea in proto/attach.h).
//
// A ROUND. Each rank records its event `ready` behind what computes its elements, and posts. When
// all have, start() has the stream of one of the GPUs, the tensor's home, wait for these events and
// sum all areas in one pass:
//   on one node   into all areas, and the round is over;
//   between nodes into the first area of shared memory, in pieces, each of which rings the engine's
//                 doorbell when it is there. The engine exchanges that area as any other, then
//                 deliver() puts the result into all areas, in one pass as well. Or, by NCCL, into
//                 the first area itself, where the engine has it summed between nodes.
// Of a compressed tensor the sum stays on the home, in the area of the first rank there, unit by
// unit; what is coded of it, and where the result comes from, is the caller's affair (compressed/
// device_units.h).
// Behind either a rank's event `done` is recorded, for which its streams wait. So no thread of any
// process waits for a GPU, and the order is the streams' own: what a round reads was written by
// what came before `ready`, and the next round's sum comes on the stream after this one's delivery.
//
// make() on the conductor's thread, what a round consists of on the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client_lib/shm/cell.h"
#include "common/fd.h"
#include "common/segment.h"
#include "common/status.h"
#include "proto/attach.h"
#include "worker_agent/device/cuda_plugin.h"

namespace gradbus {

// Memory of the host that GPUs read and write themselves, while this lives.
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
  std::string not_shared_by;   // what would have come before it, with the reasons
  uint32_t home = 0;           // one of them
  bool home_is_first = false;  // the first one's, else they take turns
  CellShape shape;
  bool leaves_node = false;
  uint64_t unit_elements = 0;             // of a compressed tensor that leaves the node; 0: dense
  std::byte* host = nullptr;              // the first area in shared memory
  std::shared_ptr<PinnedSegment> pinned;  // which lies there
  int doorbell = -1;                      // of the engine, in which a copy of it is rung
};

// As the attach protocol has it.
DeviceShare to_packet(const CudaShare& share);
DeviceMemory to_packet(const CudaMemoryShare& share);

// For one other process.
struct SharedMemory {
  CudaMemoryShare share;
  Fd descriptor;  // the share's, if it has one
};

class DeviceTensor {
 public:
  // GB-D622 to D624: why it cannot be.
  static Result<std::shared_ptr<DeviceTensor>> make(const CudaPlugin& plugin, DevicePlan plan);
  ~DeviceTensor();
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  const DeviceArea& area(uint32_t local_rank) const { return ranks_[local_rank].shared; }
  // What another process opens the area's memory with; each call makes a descriptor of its own.
  Result<SharedMemory> share(uint32_t local_rank) const {
    return share(ranks_[local_rank].memory, plan_.devices[local_rank]);
  }
  bool leaves_node() const { return plan_.leaves_node; }
  uint32_t home() const { return plan_.home; }
  const DevicePlan& plan() const { return plan_; }

  // Before its first round, on the conductor's thread: what leaves the node is the first area, and
  // `last` is what remains to be done with the sum of all nodes.
  void go_by_nccl(const Reduction& last) { by_nccl_ = last; }

  // All ranks have posted. GB-D624 when the GPU takes no work.
  Status start();
  // Between nodes: this chunk of the sum is in shared memory, or the first area. Of a compressed
  // tensor: what announce() came behind is done.
  bool summed(uint32_t chunk);
  // Between nodes: the result is there, of a compressed tensor in all areas.
  Status deliver();
  // Of summed(): what a GPU has failed with.
  const Status& failure() const { return failure_; }

  // ---- compressed tensors, after start(): all on one stream, in this order
  CudaStream* stream() const { return home_; }
  // Where sums are, and results are to be.
  float* front() const { return static_cast<float*>(ranks_[front_].memory); }
  float* elements(uint32_t local_rank) const {
    return static_cast<float*>(ranks_[local_rank].memory);
  }
  uint32_t local_size() const { return static_cast<uint32_t>(ranks_.size()); }
  // The ranks' sum of this unit goes to the front.
  Status sum_unit(size_t unit) { return sum(pieces_[unit]); }
  // Rings the engine when all that is on the stream by now is done.
  Status announce(size_t unit);
  // What announce() came behind last is done, later than summed(): in the middle of a round.
  Result<bool> came(size_t unit) const;
  // From the front to all others.
  Status spread_unit(size_t unit) { return spread(pieces_[unit]); }
  // What a function of the plug-in has answered, naming the tensor.
  Status check(CudaResult result, const char* what) const;
  const CudaTable& cuda() const { return *plugin_.table; }
  // When what is there is to go: waits until the stream has done all; false when a second was not
  // enough.
  bool quiet();

 private:
  struct Rank {
    void* memory = nullptr;
    CudaEvent* ready = nullptr;
    CudaEvent* done = nullptr;
    CudaStream* stream = nullptr;  // of its GPU; null: that is the home
    DeviceArea shared;
  };
  struct Piece {
    uint64_t first = 0;  // element
    uint64_t elements = 0;
    CudaEvent* summed = nullptr;
  };

  DeviceTensor(const CudaPlugin& plugin, DevicePlan plan);
  bool coded() const { return plan_.unit_elements > 0; }
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
  Fd doorbell_;  // ours: a GPU may ring when the channel's has been closed
  CudaStream* home_ = nullptr;
  CudaEvent* moved_ = nullptr;  // on home_, behind what `done` of other GPUs waits for
  std::vector<Rank> ranks_;     // by local rank
  size_t front_ = 0;            // of these, one on the home
  std::vector<Piece> pieces_;   // of a compressed tensor: units
  uint32_t chunks_a_piece_ = 1;
  size_t summed_ = 0;  // pieces
  std::optional<Reduction> by_nccl_;
  Status failure_;
};

}  // namespace gradbus
