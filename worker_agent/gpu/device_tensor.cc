#include "worker_agent/gpu/device_tensor.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "common/clock.h"
#include "common/log.h"
#include "proto/chunk_plan.h"

namespace gradbus {
namespace {

// A piece is exchanged while the next one is summed. Smaller pieces cost more in kernels than the
// overlap saves.
constexpr uint64_t kPieceBytes = 4 << 20;
// The maximum of one kernel (kPartitionElementsMax of the plug-in).
constexpr uint64_t kPieceElementsMax = 1 << 28;
// How long to wait for work on streams when the tensor is removed. After that its memory is left
// allocated, because freeing it would wait, too.
constexpr Nanos kQuietPatience = kSecond;

static_assert(sizeof(DeviceShare) == sizeof(CudaShare));

static_assert(static_cast<uint32_t>(DeviceSharing::kLegacy) ==
                  static_cast<uint32_t>(CudaSharing::kLegacy) &&
              static_cast<uint32_t>(DeviceSharing::kDescriptor) ==
                  static_cast<uint32_t>(CudaSharing::kDescriptor) &&
              static_cast<uint32_t>(DeviceSharing::kFabric) ==
                  static_cast<uint32_t>(CudaSharing::kFabric));

}  // namespace

DeviceShare to_packet(const CudaShare& share) {
  DeviceShare words;
  std::memcpy(words.bytes, share.bytes, sizeof(words.bytes));
  return words;
}

DeviceMemory to_packet(const CudaMemoryShare& share) {
  return {static_cast<DeviceSharing>(share.sharing), 0, share.bytes, to_packet(share.handle)};
}

Result<std::shared_ptr<PinnedSegment>> PinnedSegment::make(const CudaPlugin& plugin,
                                                           std::shared_ptr<Segment> segment) {
  const std::span<std::byte> memory = segment->memory();
  GRADBUS_RETURN_IF_ERROR(cuda_status(plugin, plugin.table->pin(memory.data(), memory.size()),
                                      "pinning shared memory for GPUs"));
  return std::shared_ptr<PinnedSegment>(new PinnedSegment(plugin, std::move(segment)));
}

PinnedSegment::~PinnedSegment() { plugin_.table->unpin(segment_->memory().data()); }

// ---- set-up

DeviceTensor::DeviceTensor(const CudaPlugin& plugin, DevicePlan plan)
    : plugin_(plugin),
      plan_(std::move(plan)),
      doorbell_(dup(plan_.doorbell)),
      ranks_(plan_.devices.size()) {}

Status DeviceTensor::check(CudaResult result, const char* what) const {
  if (result == CudaResult::kOk) return {};
  return cuda_status(plugin_, result, plan_.who + ": " + what);
}

Result<std::shared_ptr<DeviceTensor>> DeviceTensor::make(const CudaPlugin& plugin,
                                                         DevicePlan plan) {
  std::shared_ptr<DeviceTensor> made(new DeviceTensor(plugin, std::move(plan)));
  GRADBUS_RETURN_IF_ERROR(made->set_up());
  return made;
}

Status DeviceTensor::set_up() {
  front_ =
      static_cast<size_t>(std::ranges::find(plan_.devices, plan_.home) - plan_.devices.begin());
  GRADBUS_RETURN_IF_ERROR(check(cuda().create_stream(plan_.home, &home_), "a stream"));
  GRADBUS_RETURN_IF_ERROR(check(cuda().create_event(plan_.home, &moved_), "an event"));
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank)
    GRADBUS_RETURN_IF_ERROR(set_up(ranks_[rank], plan_.devices[rank]));
  GRADBUS_RETURN_IF_ERROR(set_up_pieces());
  return say_done();
}

Result<SharedMemory> DeviceTensor::share(void* memory, uint32_t device) const {
  SharedMemory shared;
  GRADBUS_RETURN_IF_ERROR(check(cuda().share(device, memory, &shared.share), "sharing memory"));
  shared.descriptor.reset(shared.share.descriptor);
  return shared;
}

// Shared memory is still zeros, but memory of a GPU has old contents.
Status DeviceTensor::set_up(Rank& rank, uint32_t device) {
  const uint64_t bytes = plan_.shape.count * dtype_bytes(plan_.shape.dtype);
  GRADBUS_RETURN_IF_ERROR(check(cuda().reach(plan_.home, device), "another GPU's memory"));
  GRADBUS_RETURN_IF_ERROR(
      check(cuda().allocate_shared(device, bytes, plan_.sharing, &rank.memory), "memory"));
  GRADBUS_RETURN_IF_ERROR(check(cuda().create_shared_event(device, &rank.ready), "an event"));
  GRADBUS_RETURN_IF_ERROR(check(cuda().create_shared_event(device, &rank.done), "an event"));
  if (device != plan_.home)
    GRADBUS_RETURN_IF_ERROR(check(cuda().create_stream(device, &rank.stream), "a stream"));
  const Result<SharedMemory> memory = share(rank.memory, device);
  if (!memory.ok()) return memory.status();
  CudaShare ready;
  CudaShare done;
  GRADBUS_RETURN_IF_ERROR(check(cuda().share_event(rank.ready, &ready), "sharing an event"));
  GRADBUS_RETURN_IF_ERROR(check(cuda().share_event(rank.done, &done), "sharing an event"));
  rank.shared = {to_packet(memory.value().share), to_packet(ready), to_packet(done)};
  return check(cuda().copy(home_, rank.memory, plan_.host, bytes), "a copy");
}

Status DeviceTensor::set_up_pieces() {
  const uint64_t chunk = plan_.shape.chunk_elements;
  const uint64_t piece_elements =
      coded() ? plan_.partition_elements : kPieceBytes / dtype_bytes(plan_.shape.dtype);
  // A partition that is the whole tensor may end anywhere.
  const uint64_t rest = coded() ? chunk - 1 : 0;
  if (plan_.leaves_node)
    chunks_a_piece_ = static_cast<uint32_t>(
        std::clamp<uint64_t>((piece_elements + rest) / chunk, 1, plan_.shape.chunks));
  const uint64_t most = plan_.leaves_node ? chunks_a_piece_ * chunk : kPieceElementsMax;
  for (uint64_t first = 0; first < plan_.shape.count; first += most) {
    Piece piece{first, std::min(most, plan_.shape.count - first)};
    if (plan_.leaves_node)
      GRADBUS_RETURN_IF_ERROR(check(cuda().create_event(plan_.home, &piece.summed), "an event"));
    pieces_.push_back(piece);
  }
  summed_ = pieces_.size();
  return {};
}

// A rank that has gone may have left work that never ends.
bool DeviceTensor::quiet() {
  if (moved_ == nullptr || cuda().record_event(moved_, home_) != CudaResult::kOk) return true;
  const Nanos deadline = monotonic_now() + kQuietPatience;
  while (cuda().query_event(moved_) == CudaResult::kNotReady) {
    if (monotonic_now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

DeviceTensor::~DeviceTensor() {
  if (home_ == nullptr) return;
  if (!quiet()) {
    spdlog::warn("{}: work on a GPU has not ended in 1 s; its memory is left allocated", plan_.who);
    (void)doorbell_.release();
    return;
  }
  for (const Piece& piece : pieces_)
    if (piece.summed != nullptr) cuda().destroy_event(piece.summed);
  for (uint32_t index = 0; index < ranks_.size(); ++index) {
    const Rank& rank = ranks_[index];
    if (rank.stream != nullptr) cuda().destroy_stream(rank.stream);  // records `done`
    for (CudaEvent* const event : {rank.ready, rank.done})
      if (event != nullptr) cuda().destroy_event(event);
    if (rank.memory != nullptr) cuda().free(plan_.devices[index], rank.memory);
  }
  if (moved_ != nullptr) cuda().destroy_event(moved_);
  cuda().destroy_stream(home_);
}

// ---- a round

Status DeviceTensor::start() {
  for (const Rank& rank : ranks_)
    GRADBUS_RETURN_IF_ERROR(check(cuda().wait_event(home_, rank.ready), "waiting for a rank"));
  summed_ = plan_.leaves_node ? 0 : pieces_.size();
  if (coded()) return {};
  for (const Piece& piece : pieces_) {
    GRADBUS_RETURN_IF_ERROR(sum(piece));
    if (plan_.leaves_node) GRADBUS_RETURN_IF_ERROR(announce(piece));
  }
  return plan_.leaves_node ? Status() : say_done();
}

Status DeviceTensor::sum(const Piece& piece) {
  const uint64_t offset = piece.first * dtype_bytes(plan_.shape.dtype);
  const Reduction& reduction = plan_.shape.reduction;
  CudaReduce input{.prescale = reduction.prescale,
                   .postscale = reduction.postscale,
                   .source_count = static_cast<uint32_t>(ranks_.size()),
                   .target_count = plan_.leaves_node ? 1 : static_cast<uint32_t>(ranks_.size()),
                   .count = static_cast<uint32_t>(piece.elements),
                   .divisor = reduction.divisor,
                   .dtype = static_cast<uint32_t>(plan_.shape.dtype),
                   .op = static_cast<uint32_t>(reduction.op)};
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    input.sources[rank] = input.targets[rank] =
        static_cast<std::byte*>(ranks_[rank].memory) + offset;
  if (plan_.leaves_node)
    input.targets[0] = sums_in_place() ? input.targets[front_] : plan_.host + offset;
  return check(cuda().reduce(home_, &input), "the sum of this node's ranks");
}

Status DeviceTensor::announce(size_t partition) { return announce(pieces_[partition]); }

Status DeviceTensor::announce(const Piece& piece) {
  GRADBUS_RETURN_IF_ERROR(check(cuda().record_event(piece.summed, home_), "an event"));
  return check(cuda().ring(home_, doorbell_.get()), "a doorbell");
}

Result<bool> DeviceTensor::came(size_t partition) const {
  const CudaResult result = cuda().query_event(pieces_[partition].summed);
  if (result == CudaResult::kNotReady) return false;
  GRADBUS_RETURN_IF_ERROR(check(result, "what it was told to do"));
  return true;
}

bool DeviceTensor::summed(uint32_t chunk) {
  while (summed_ * chunks_a_piece_ <= chunk && failure_.ok()) {
    const CudaResult result = cuda().query_event(pieces_[summed_].summed);
    if (result == CudaResult::kNotReady) return false;
    failure_ = check(result, "the sum of this node's ranks");
    ++summed_;
  }
  return failure_.ok();
}

Status DeviceTensor::deliver() {
  if (!coded())
    for (const Piece& piece : pieces_) GRADBUS_RETURN_IF_ERROR(spread(piece));
  return say_done();
}

Status DeviceTensor::spread(const Piece& piece) {
  const uint64_t offset = piece.first * dtype_bytes(plan_.shape.dtype);
  CudaReduce input{.source_count = 1,
                   .target_count = static_cast<uint32_t>(ranks_.size()),
                   .count = static_cast<uint32_t>(piece.elements),
                   .dtype = static_cast<uint32_t>(plan_.shape.dtype),
                   .op = static_cast<uint32_t>(plan_.shape.reduction.op)};
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    input.targets[rank] = static_cast<std::byte*>(ranks_[rank].memory) + offset;
  input.sources[0] = sums_in_place() ? input.targets[front_] : plan_.host + offset;
  if (by_nccl_) {
    input.postscale = by_nccl_->postscale;
    input.divisor = by_nccl_->divisor;
  }
  if (coded()) {  // the result is already in its source
    if (ranks_.size() == 1) return {};
    std::swap(input.targets[front_], input.targets[--input.target_count]);
  }
  return check(cuda().reduce(home_, &input), "the result");
}

Status DeviceTensor::say_done() {
  GRADBUS_RETURN_IF_ERROR(check(cuda().record_event(moved_, home_), "an event"));
  for (const Rank& rank : ranks_) {
    if (rank.stream != nullptr)
      GRADBUS_RETURN_IF_ERROR(check(cuda().wait_event(rank.stream, moved_), "a stream's wait"));
    CudaStream* const stream = rank.stream == nullptr ? home_ : rank.stream;
    GRADBUS_RETURN_IF_ERROR(check(cuda().record_event(rank.done, stream), "an event"));
  }
  return {};
}

}  // namespace gradbus
