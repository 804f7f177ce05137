// Tensors in memory of a GPU that the agent has: all-reduce. An operation is over when this rank's
// stream has come behind it.
#include <algorithm>
#include <cstring>
#include <string>

#include "cli/bench/benchmark.h"
#include "cli/bench/device_rank_buffer.h"

namespace gradbus {
namespace {

class DeviceBenchmark final : public Benchmark {
 public:
  DeviceBenchmark(int rank, std::shared_ptr<BenchDevice> device) : rank_(rank), device_(device) {}

  Status add(gradbus_tensor* tensor, uint64_t bytes) {
    rank_buffers_.push_back({std::make_unique<BenchRankBuffer>(device_, tensor), bytes});
    bytes_max_ = std::max(bytes_max_, bytes);
    return rank_buffers_.back().rank_buffer->open();
  }

  void fill(const KnownData& known) override {
    std::vector<std::byte> host(bytes_max_);
    for (size_t i = 0; i < rank_buffers_.size(); ++i) {
      const std::span<std::byte> data(host.data(), rank_buffers_[i].bytes);
      known.fill(rank_, first_of(i), data);
      keep(device_->copy(rank_buffers_[i].rank_buffer->elements(), data.data(), data.size()));
    }
  }

  void zero() override {
    const std::vector<std::byte> host(bytes_max_);
    for (const One& one : rank_buffers_)
      keep(device_->copy(one.rank_buffer->elements(), host.data(), one.bytes));
  }

  Status run() override {
    GRADBUS_RETURN_IF_ERROR(failure_);
    for (const One& one : rank_buffers_) GRADBUS_RETURN_IF_ERROR(one.rank_buffer->start());
    for (const One& one : rank_buffers_) GRADBUS_RETURN_IF_ERROR(one.rank_buffer->wait());
    return device_->told(device_->cuda().synchronize(device_->stream()), "a result");
  }

  uint64_t count_wrong(const KnownData& known) const override {
    uint64_t wrong = 0;
    std::vector<std::byte> host(bytes_max_);
    for (size_t i = 0; i < rank_buffers_.size(); ++i) {
      const std::span<std::byte> data(host.data(), rank_buffers_[i].bytes);
      // What could not be looked at counts as wrong.
      const Status copied =
          device_->copy(data.data(), rank_buffers_[i].rank_buffer->elements(), data.size());
      wrong += copied.ok() ? known.count_wrong(KnownData::kResult, first_of(i), data) : data.size();
    }
    return wrong;
  }

  std::optional<double> copy_seconds() const override {
    double all = 0;
    for (const One& one : rank_buffers_) {
      const Result<double> seconds = device_->copy_seconds(one.rank_buffer->elements(), one.bytes);
      if (!seconds.ok()) return {};
      all += seconds.value();
    }
    return all;
  }

 private:
  struct One {
    std::unique_ptr<BenchRankBuffer> rank_buffer;
    uint64_t bytes;
  };
  void keep(const Status& status) {
    if (failure_.ok()) failure_ = status;
  }

  const int rank_;
  const std::shared_ptr<BenchDevice> device_;
  std::vector<One> rank_buffers_;
  uint64_t bytes_max_ = 0;
  Status failure_;  // of what cannot say so itself
};

}  // namespace

Result<std::unique_ptr<Benchmark>> make_on_device(gradbus_session* session, const BenchWork& work,
                                                  const std::vector<Extent>& extents) {
  const auto device = BenchDevice::open(session);
  if (!device.ok()) return device.status();
  const auto tensors = register_extents(session, work, extents, device.value()->uuid());
  if (!tensors.ok()) return tensors.status();
  auto benchmark = std::make_unique<DeviceBenchmark>(gradbus_rank(session), device.value());
  for (size_t i = 0; i < extents.size(); ++i)
    GRADBUS_RETURN_IF_ERROR(benchmark->add(tensors.value()[i], extents[i].bytes));
  return std::unique_ptr<Benchmark>(std::move(benchmark));
}

}  // namespace gradbus
