// The device part of a compressed tensor whose elements are on a GPU
// (worker_agent/gpu/device_tensor.h): the state of its partitions, a buffer for payloads, and
// pinned host memory from which the collective operations send.
//
// A ROUND of a partition is two stretches of work on the tensor's stream. Payloads are exchanged
// between them as usual:
//
//   encode()   computes the ranks' sum and its payload, leaves the error in the residual, copies
//              the payload to the host, and rings the engine. A momentum is updated before, and
//              masked after the ring
//   finish()   called when that has completed: the payload is whole
//   decode()   once for each agent, in their order: copies a checked payload to the device and
//              adds it to the result, or makes it the result
//   publish()  the result goes to the rank buffers of all ranks
//
// For selecting codecs, lists are copied instead (compression/cuda/cuda_codec.h). Each partition
// and agent has memory for one. finish() and decode() convert between payloads and lists.
//
// The engine never waits: the next round's work comes behind this one's on the same stream. No peer
// sends before this node has begun, which is after the ring. So one buffer is enough for all
// payloads of all partitions. Payloads in host memory are read before they are overwritten.
//
// Vectors of fp16 and bf16 that an all-reduce adds are payloads without their header. The processor
// adds them between nodes, in pinned memory, and one comes back. powersgd and blocktopk
// (device_linear.h) have two vectors in a round:
//
//   project()  the first vector, from the ranks' sum; the second, from the result of the first
//   finish()   the result of the second becomes the result, and is subtracted from the residual
//
// Results have the bits of the processor's partitions (all_gather.cc, all_reduce.cc): the same sum,
// codec, seeds and order.
//
// The conductor's thread calls make(), the engine's thread everything else.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compression/error_feedback.h"
#include "worker_agent/compressed/device_coding.h"
#include "worker_agent/compressed/device_linear.h"
#include "worker_agent/gpu/device_tensor.h"

namespace gradbus {

struct DevicePartitionsPlan {
  CompressionPlan compression;  // fits_device()
  uint64_t count = 0;           // elements of the tensor
  uint32_t agent_index = 0;
  uint32_t agents = 2;
};

// Of the node's sum, or of the sum of all by the partition's owner (second_encoding.h).
enum class Encoding : uint8_t { kNode, kOwner };

struct EncodingRound {
  uint64_t number = 1;
  uint64_t seed = 0;
};

// What decode() does with the values of a payload.
struct Decoded {
  float scale = 1;
  bool adds = false;  // to the result
};

class DevicePartitions {
 public:
  // GB-D623, GB-D624: the reason why it is not possible.
  static Result<std::shared_ptr<DevicePartitions>> make(std::shared_ptr<DeviceTensor> tensor,
                                                        const DevicePartitionsPlan& plan);
  ~DevicePartitions();
  DevicePartitions(const DevicePartitions&) = delete;
  DevicePartitions& operator=(const DevicePartitions&) = delete;

  // For the operations of all partitions, one after the other; zeros at first.
  std::span<std::byte> payloads() const { return {host_, payloads_bytes_}; }
  const std::vector<DeviceCoding>& codings(size_t partition) const {
    return partitions_[partition].codings;
  }
  bool is_linear(size_t partition) const { return partitions_[partition].linear != nullptr; }
  // The stages of that partition, the same as for a partition in host memory.
  std::vector<Stage> stages(const PartitionPlan& partition) const;
  // The maximum that a payload of the partition sends.
  size_t payload_bytes(size_t partition, Encoding encoding) const {
    return coding(partitions_[partition], encoding).payload_bytes - skipped_;
  }

  // ---- a round; GB-D624 when the GPU takes no work
  // `payload`: payload_bytes() of payloads().
  Status encode(size_t partition, const EncodingRound& round, std::span<std::byte> payload);
  // On the partition's owner: encodes the decoded sum again.
  Status encode_again(size_t partition, const EncodingRound& round, std::span<std::byte> payload);
  // Whether that has completed.
  Result<bool> came(size_t partition) const { return tensor_->came(partition); }
  // Returns the bytes of the payload.
  size_t finish(size_t partition, Encoding encoding, std::span<std::byte> payload);
  // `payload` is that of `agent`, has been checked, and is a part of payloads().
  Status decode(size_t partition, Encoding encoding, uint32_t agent,
                std::span<const std::byte> payload, const Decoded& decoded);
  Status publish(size_t partition) { return tensor_->spread_partition(partition); }

  // ---- a round of powersgd or blocktopk
  Status project(size_t partition, uint64_t shared_seed, std::span<std::byte> vector);
  // False: `vector` is complete already; else wait for came().
  Result<bool> project_again(size_t partition, std::span<const std::byte> sum,
                             std::span<std::byte> vector);
  Status finish(size_t partition, std::span<const std::byte> sum, float scale);

  // ---- rounds in which nothing is exchanged: CompressedPartition's verbs
  // Computes only the ranks' sum, which the calls below need.
  Status sum(size_t partition);
  Status read_residual_state(size_t partition, ResidualStatePart part);
  Status write_residual_state(size_t partition, ResidualStatePart part);
  Status scale_residual_state(size_t partition, float factor);

 private:
  struct Partition {
    uint64_t first = 0;  // element
    uint32_t elements = 0;
    std::vector<DeviceCoding> codings = {};  // by Encoding; none: it is linear
    std::unique_ptr<DeviceLinear> linear = {};
    float* owner_residual = nullptr;  // what an owner's encodings have left out
    // In memory of the host: lists by agent, or parts of `linear`; none of others.
    std::span<std::byte> lists = {};
    uint32_t entries = 0;  // that the newest list has room for
    bool carries = false;  // without a residual: what was written goes into the next sum
  };

  DevicePartitions(std::shared_ptr<DeviceTensor> tensor, const DevicePartitionsPlan& plan);
  const CudaTable& cuda() const { return tensor_->cuda(); }
  Status check(CudaResult result, const char* what) const { return tensor_->check(result, what); }
  void plan_partitions(const DevicePartitionsPlan& plan);
  void plan_memory(const Partition& partition);
  size_t lists_bytes(const Partition& partition) const;
  void place_partitions();
  static const DeviceCoding& coding(const Partition& partition, Encoding encoding) {
    return partition.codings[static_cast<size_t>(encoding)];
  }
  CudaEncode input(const Partition& partition, const DeviceCoding& coding,
                   const CudaChoice& choice) const;
  // From the front, into the residual, if there is one; but for the node's own momentum.
  CudaEncode input(const Partition& partition, Encoding encoding, const EncodingRound& round,
                   float* residual) const;
  // A copy of what is encoded for the host, and the ring.
  Status encode(size_t partition, Encoding encoding, const CudaEncode& input,
                std::span<std::byte> payload);
  bool owns(size_t partition) const { return partition % agents_ == agent_index_; }
  std::span<std::byte> list(const Partition& partition, uint32_t agent) const;
  uint8_t* travelling() const { return static_cast<uint8_t*>(payload_) + skipped_; }
  Status set_up(uint64_t count);
  Status allocate(uint64_t bytes, void** memory, const char* what);
  Status zero(float* elements, uint64_t count);
  float* kept(const Partition& partition) const {
    return static_cast<float*>(kept_) + partition.first;
  }
  float* momentum(const Partition& partition) const {
    return static_cast<float*>(momentum_) + partition.first;
  }
  // The ranks' sum, and what is carried.
  Status sum_up(size_t partition);
  // A vector of a linear codec, with what it needs, for the host, and the ring.
  Status project(size_t partition, uint32_t round, const DeviceLinear::Part& part,
                 std::span<std::byte> vector);
  DeviceLinear::Place place(const Partition& partition) const;
  Status copy_part(const Partition& partition, const DeviceLinear::Part& part);
  // Before and after the node's sum is encoded (compression/cuda/cuda_error_feedback.h).
  Status remember(const Partition& partition);
  Status forget(const Partition& partition);
  // to = to + kept
  Status add(const float* kept, uint32_t elements, float* to);
  Status scale(float* kept, uint32_t elements, float factor);
  // as = front
  Status keep(const Partition& partition, float* as);

  // Elements: a few copies for a partition, 256 KiB for a tensor.
  static constexpr uint64_t kZerosMax = 1 << 16;

  const std::shared_ptr<DeviceTensor> tensor_;
  const uint32_t agent_index_;
  const uint32_t agents_;
  const size_t skipped_;  // bytes of a payload that do not travel
  const ErrorFeedbackOptions error_feedback_;
  const bool has_residual_;
  std::vector<Partition> partitions_;
  size_t device_bytes_ = 0;  // of what is encoded
  size_t workspace_bytes_ = 0;
  size_t payloads_bytes_ = 0;
  size_t lists_bytes_ = 0;
  std::byte* host_ = nullptr;  // payloads, then lists or parts, then zeros
  void* kept_ = nullptr;       // of each element: the residual, or what is carried
  uint64_t owned_ = 0;         // elements of which there is an owner's residual
  void* owner_kept_ = nullptr;
  void* momentum_ = nullptr;  // of each element, DGC's or Signum's; null: none
  void* taken_ = nullptr;     // a word, of DGC's: of the partition that is encoded
  void* payload_ = nullptr;
  void* workspace_ = nullptr;  // null where no codec asks for it
  void* zeros_ = nullptr;
};

}  // namespace gradbus
