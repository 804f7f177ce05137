// Tensors in shared memory, reduced where they lie: all-reduce, reduce, reduce-scatter.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "cli/bench/benchmark.h"

namespace gradbus {
namespace {

struct Registered {
  gradbus_tensor* tensor = nullptr;
  std::span<std::byte> data;
  // Where this rank's result is, in bytes; empty: it has none.
  uint64_t result_offset = 0;
  uint64_t result_bytes = 0;
};

constexpr size_t kGradientBytes = 4 << 20;

// What gradients look like at first sight: normal, most of them small.
std::vector<float> normal_floats(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 1e-3F);
  std::vector<float> values(kGradientBytes / sizeof(float));
  for (float& value : values) value = normal(random);
  return values;
}

class RegisteredBenchmark final : public Benchmark {
 public:
  RegisteredBenchmark(const BenchWork& work, int rank, std::vector<Registered> tensors)
      : element_bytes_(dtype_bytes(work.dtype)), rank_(rank), tensors_(std::move(tensors)) {
    if (!work.codec.empty()) gradient_ = normal_floats(work.seed + static_cast<uint64_t>(rank));
  }

  void fill(const KnownData& known) override {
    for (size_t i = 0; i < tensors_.size(); ++i) known.fill(rank_, first_of(i), tensors_[i].data);
  }

  void zero() override {
    for (const Registered& one : tensors_)
      if (!one.data.empty()) std::memset(one.data.data(), 0, one.data.size());
  }

  void refresh() override {
    if (gradient_.empty()) return;
    for (const Registered& one : tensors_)
      for (size_t at = 0; at < one.data.size(); at += kGradientBytes)
        std::memcpy(&one.data[at], gradient_.data(),
                    std::min(one.data.size() - at, kGradientBytes));
  }

  Status run() override {
    for (const Registered& one : tensors_)
      GRADBUS_RETURN_IF_ERROR(to_status(gradbus_start(one.tensor)));
    for (const Registered& one : tensors_)
      GRADBUS_RETURN_IF_ERROR(to_status(gradbus_wait(one.tensor, -1)));
    return {};
  }

  uint64_t count_wrong(const KnownData& known) const override {
    uint64_t wrong = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const Registered& one = tensors_[i];
      wrong +=
          known.count_wrong(KnownData::kResult, first_of(i) + one.result_offset / element_bytes_,
                            one.data.subspan(one.result_offset, one.result_bytes));
    }
    return wrong;
  }

 private:
  size_t element_bytes_;
  int rank_;
  std::vector<Registered> tensors_;
  std::vector<float> gradient_;  // with a codec: repeated over the tensors
};

std::string name_of(const BenchWork& work, size_t index, const Extent& extent) {
  const std::string what = work.model.empty() ? std::string(work.collective->name) : work.model;
  return "bench." + what + "." + std::to_string(index) + "." + std::to_string(extent.bytes);
}

Status find_result(gradbus_session* session, const BenchWork& work, const Extent& extent,
                   Registered& one) {
  const int rank = gradbus_rank(session);
  one.result_bytes = extent.bytes;
  if (work.collective->number == GRADBUS_REDUCE && rank != work.root) one.result_bytes = 0;
  if (work.collective->number != GRADBUS_REDUCESCATTER) return {};
  uint64_t first = 0;
  uint64_t elements = 0;
  GRADBUS_RETURN_IF_ERROR(
      to_status(gradbus_shard(session, rank, extent.total, 1, &first, &elements)));
  one.result_offset = first * dtype_bytes(work.dtype);
  one.result_bytes = elements * dtype_bytes(work.dtype);
  return {};
}

}  // namespace

Result<std::vector<gradbus_tensor*>> register_extents(gradbus_session* session,
                                                      const BenchWork& work,
                                                      const std::vector<Extent>& extents,
                                                      const unsigned char* device) {
  std::vector<std::string> names;
  for (size_t i = 0; i < extents.size(); ++i) names.push_back(name_of(work, i, extents[i]));
  std::vector<gradbus_tensor_spec> specs(extents.size());
  for (size_t i = 0; i < extents.size(); ++i) {
    gradbus_tensor_spec_init(&specs[i]);
    specs[i].name = names[i].c_str();
    specs[i].count = extents[i].total;
    specs[i].dtype = static_cast<gradbus_dtype>(work.dtype);
    specs[i].op = static_cast<gradbus_op>(work.op);
    specs[i].collective = static_cast<gradbus_collective>(work.collective->number);
    specs[i].root = work.root;
    specs[i].mode = work.mode.empty() ? nullptr : work.mode.c_str();
    specs[i].compression = work.codec.empty() ? "none" : work.codec.c_str();
    specs[i].device = device;
  }
  std::vector<gradbus_tensor*> tensors(extents.size());
  GRADBUS_RETURN_IF_ERROR(
      to_status(gradbus_register(session, specs.data(), specs.size(), tensors.data())));
  return tensors;
}

Result<std::unique_ptr<Benchmark>> make_registered(gradbus_session* session, const BenchWork& work,
                                                   const std::vector<Extent>& extents) {
  const auto tensors = register_extents(session, work, extents, nullptr);
  if (!tensors.ok()) return tensors.status();
  std::vector<Registered> registered;
  for (size_t i = 0; i < extents.size(); ++i) {
    gradbus_tensor* const tensor = tensors.value()[i];
    auto* const data = static_cast<std::byte*>(gradbus_tensor_data(tensor));
    registered.push_back({tensor, {data, extents[i].bytes}});
    GRADBUS_RETURN_IF_ERROR(find_result(session, work, extents[i], registered.back()));
  }
  return std::unique_ptr<Benchmark>(
      std::make_unique<RegisteredBenchmark>(work, gradbus_rank(session), std::move(registered)));
}

}  // namespace gradbus
