#include "server/parameter_server/shard_snapshots.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

#include "common/log.h"

namespace gradbus {
namespace {

// Copies that may wait to be written: enough to keep a disk busy.
constexpr uint32_t kCopiesMax = 8;
constexpr Nanos kLook = kMillisecond;  // interval between checks of the keeper's progress

// A shard without chunks of these tensors writes a file too, to show that nothing is missing.
bool has_parameters(const ShardSnapshots::Tensors& tensors) {
  return std::ranges::any_of(tensors, [](const auto& tensor) {
    return tensor != nullptr && tensor->plan().mode.holds_parameters();
  });
}

}  // namespace

// Shared by the engine, which copies chunks, and the keeper, which writes them.
struct ShardSnapshots::Pass {
  // ---- used by the keeper
  std::optional<SnapshotWriter> writer;
  Status status;
  bool whole = true;  // every chunk had its parameters

  // ---- used by both
  std::atomic<uint32_t> waiting{0};
  std::atomic<bool> done{false};
  std::mutex lock;  // protects `spare`
  std::vector<std::vector<float>> spare;

  void open(const SnapshotPlace& place) {
    Result<SnapshotWriter> created = SnapshotWriter::create(place);
    if (created.ok()) {
      writer.emplace(created.take());
    } else {
      status = created.status();
    }
  }
  void write(const SnapshotPiece& piece, std::span<const float> values) {
    if (status.ok()) status = writer->add(piece, values);
  }
  // An incomplete snapshot would only replace an older, complete one.
  void close(const SnapshotPlace& place, const SnapshotKeeper& keeper) {
    if (status.ok() && whole) {
      status = writer->commit();
      if (status.ok())
        spdlog::info("job \"{}\": a snapshot of shard {} is on disk, {} bytes in {} pieces: {}",
                     place.job, place.shard, writer->bytes(), writer->pieces(),
                     snapshot_path(place));
    }
    if (!status.ok()) spdlog::warn("job \"{}\": {}", place.job, status.message());
    if (status.ok() && whole) keeper.tidy(place.job);
    writer.reset();
    done.store(true, std::memory_order_release);
  }
  std::vector<float> take_spare() {
    const std::lock_guard guard(lock);
    if (spare.empty()) return {};
    std::vector<float> values = std::move(spare.back());
    spare.pop_back();
    return values;
  }
  void give_back(std::vector<float> values) {
    const std::lock_guard guard(lock);
    spare.push_back(std::move(values));
  }
};

ShardSnapshots::ShardSnapshots(std::shared_ptr<SnapshotKeeper> keeper, SnapshotPlace place,
                               Nanos now)
    : keeper_(std::move(keeper)), place_(std::move(place)) {
  if (keeper_ != nullptr && keeper_->every() > 0) wake_at_ = now + keeper_->every();
}

// The keeper may be reading the tensors.
ShardSnapshots::~ShardSnapshots() {
  if (!ended()) keeper_->drain();
}

bool ShardSnapshots::ended() const {
  return pass_ == nullptr || pass_->done.load(std::memory_order_acquire);
}

// ---- while the job runs

size_t ShardSnapshots::do_work(Nanos now, const Tensors& tensors) {
  if (wake_at_ == 0 || now < wake_at_) return 0;
  if (pass_ == nullptr) {
    wake_at_ = now + keeper_->every();
    if (!has_parameters(tensors)) return 0;
    begin();
  }
  if (!copied_) {
    const size_t copied = copy_next(tensors);
    wake_at_ = copied > 0 ? now : now + kLook;
    return copied;
  }
  if (pass_->done.load(std::memory_order_acquire)) {
    pass_ = nullptr;
    wake_at_ = now + keeper_->every();
  } else {
    wake_at_ = now + kLook;
  }
  return 0;
}

void ShardSnapshots::begin() {
  pass_ = std::make_shared<Pass>();
  tensor_ = chunk_ = 0;
  copied_ = false;
  keeper_->post([pass = pass_, place = place_] { pass->open(place); });
}

size_t ShardSnapshots::copy_next(const Tensors& tensors) {
  if (pass_->waiting.load(std::memory_order_acquire) >= kCopiesMax) return 0;
  const auto past = [&] {
    return tensors[tensor_] == nullptr || chunk_ >= tensors[tensor_]->plan().collective.chunks();
  };
  for (; tensor_ < tensors.size() && past(); ++tensor_) chunk_ = 0;
  if (tensor_ == tensors.size()) {
    copied_ = true;
    keeper_->post(
        [pass = pass_, place = place_, keeper = keeper_.get()] { pass->close(place, *keeper); });
    return 1;
  }
  const ShardTensor& tensor = *tensors[tensor_];
  const uint32_t chunk = chunk_++;
  if (!tensor.plan().mode.holds_parameters() || !tensor.holds(chunk)) return 1;
  SnapshotPiece piece;
  std::vector<float> values = pass_->take_spare();
  const bool saved = tensor.save(chunk, piece, values);
  pass_->waiting.fetch_add(1, std::memory_order_relaxed);
  keeper_->post([pass = pass_, piece, saved, values = std::move(values)]() mutable {
    pass->whole = pass->whole && saved;
    if (saved) pass->write(piece, values);
    pass->give_back(std::move(values));
    pass->waiting.fetch_sub(1, std::memory_order_release);
  });
  return 1;
}

// ---- when it has ended

void ShardSnapshots::end(const Tensors& tensors) {
  wake_at_ = 0;
  if (keeper_ == nullptr || !has_parameters(tensors)) return;
  // A snapshot in progress is not closed, so it never becomes visible.
  pass_ = std::make_shared<Pass>();
  keeper_->post([pass = pass_, place = place_, keeper = keeper_.get(), &tensors] {
    pass->open(place);
    std::vector<float> values;
    for (const auto& tensor : tensors) {
      if (tensor == nullptr || !tensor->plan().mode.holds_parameters()) continue;
      for (uint32_t chunk = 0; chunk < tensor->plan().collective.chunks(); ++chunk) {
        SnapshotPiece piece;
        if (!tensor->holds(chunk)) continue;
        const bool saved = tensor->save(chunk, piece, values);
        pass->whole = pass->whole && saved;
        if (saved) pass->write(piece, values);
      }
    }
    pass->close(place, *keeper);
  });
}

}  // namespace gradbus
