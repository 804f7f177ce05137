#include "worker_agent/compressed/compressed_tensor.h"

#include <sys/mman.h>

#include <algorithm>

#include "common/check.h"
#include "common/errors.h"
#include "compression/random.h"

namespace gradbus {

Result<std::unique_ptr<CompressedTensor>> CompressedTensor::create(const StartJob& job,
                                                                   const AddTensor& add,
                                                                   std::vector<float*> areas,
                                                                   Transport& transport) {
  std::unique_ptr<CompressedTensor> tensor(
      new CompressedTensor(job, add, std::move(areas), transport));
  if (Status status = tensor->open(add.tensor); !status.ok()) return status;
  return tensor;
}

CompressedTensor::CompressedTensor(const StartJob& job, const AddTensor& add,
                                   std::vector<float*> areas, Transport& transport)
    : job_(job), add_(add), areas_(std::move(areas)), transport_(transport) {
  const uint64_t unit = add_.compression.unit_elements;
  const uint64_t count = add_.shape.count;
  GRADBUS_CHECK(count > 0 && unit > 0 && (unit >= count || unit % add_.shape.chunk_elements == 0));
  for (uint32_t index = 0; index * unit < count; ++index)
    units_.push_back(make_unit(unit_plan(index)));
  stages_ = units_.front()->stages().size();
}

CompressedTensor::~CompressedTensor() {
  if (registered_) transport_.unregister_memory(region_);
  if (!staging_.empty()) munmap(staging_.data(), staging_.size());
}

UnitPlan CompressedTensor::unit_plan(uint32_t index) const {
  const CompressionPlan& compression = add_.compression;
  const uint64_t first = index * compression.unit_elements;
  // A part of a matrix need not be whole rows.
  const uint64_t columns = compression.unit_elements >= add_.shape.count ? compression.columns : 0;
  UnitPlan plan;
  plan.spec = compression.spec;
  plan.communicator = compression.communicator;
  plan.count = std::min(compression.unit_elements, add_.shape.count - first);
  plan.shape.count_max = plan.count;
  plan.shape.columns = columns;
  plan.shape.rows = columns == 0 ? 1 : plan.count / columns;
  plan.index = index;
  plan.tensor_seed = mix_u64(job_.job) + add_.tensor;
  plan.agent_index = job_.agent_index;
  plan.agents = job_.agents;
  plan.algorithm = add_.algorithm;
  plan.scale = static_cast<float>(add_.last.after / add_.last.divisor);
  for (float* const area : areas_) plan.areas.push_back(area + first);
  return plan;
}

// Pages that no payload has touched cost nothing.
Status CompressedTensor::open(uint32_t tensor) {
  uint64_t bytes = 0;
  for (const auto& unit : units_)
    for (const CompressedUnit::Stage& stage : unit->stages()) bytes += stage.bytes;
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    return error("S201", "no address space for the payloads of tensor \"" + add_.name + "\"");
  staging_ = {static_cast<std::byte*>(address), bytes};
  const Result<RegionId> region = transport_.register_memory(staging_);
  if (!region.ok()) return region.status();
  region_ = region.value();
  registered_ = true;
  uint64_t offset = 0;
  for (const auto& unit : units_) {
    for (size_t s = 0; s < stages_; ++s) {
      const CompressedUnit::Stage& stage = unit->stages()[s];
      const auto index = static_cast<uint16_t>(exchanges_.size());
      exchanges_.push_back(std::make_unique<Exchange>(
          ExchangeId{tensor, index}, stage.plan,
          ExchangeMemory{region_, offset, &staging_[offset], stage.stride},
          std::vector<uint32_t>{job_.agent_index}, Reduction{.op = ReduceOp::kSum}));
      unit->attach(s, exchanges_.back().get(), staging_.subspan(offset, stage.bytes));
      offset += stage.bytes;
    }
  }
  return {};
}

void CompressedTensor::begin(uint64_t round) {
  GRADBUS_CHECK(done());
  round_ = round;
  chunks_reduced_ = 0;
  units_open_ = units_.size();
}

ExchangeStart CompressedTensor::start_of(size_t unit, size_t stage,
                                         std::span<const uint64_t> block_bytes) const {
  return {exchanges_[unit * stages_ + stage].get(), block_bytes};
}

ExchangeStart CompressedTensor::chunk_reduced() {
  ++chunks_reduced_;
  const uint64_t elements = std::min(chunks_reduced_ * add_.shape.chunk_elements, add_.shape.count);
  const uint64_t unit_elements = add_.compression.unit_elements;
  if (elements % unit_elements != 0 && elements != add_.shape.count) return {};
  const size_t unit = (elements - 1) / unit_elements;
  return start_of(unit, 0, units_[unit]->start(round_));
}

Result<ExchangeStart> CompressedTensor::ended(const Exchange& exchange) {
  const size_t unit = exchange.id().index / stages_;
  const size_t stage = exchange.id().index % stages_;
  const Result<std::span<const uint64_t>> next = units_[unit]->advance(stage);
  if (!next.ok()) return next.status().with_context("tensor \"" + add_.name + "\"");
  if (stage + 1 < stages_) return start_of(unit, stage + 1, next.value());
  --units_open_;
  return ExchangeStart{};
}

}  // namespace gradbus
