#include "worker_agent/compressed/compressed_tensor.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "common/checked.h"
#include "common/errors.h"
#include "compression/kernels/compensate.h"
#include "worker_agent/compressed/device_units.h"
#include "worker_agent/compressed/units.h"

namespace gradbus {
namespace {

// Part 0 of the shards' state is the parameters.
PullKind pull_of(const RoundRequest& request) {
  if (!request.pull_only) return PullKind::kNone;
  if (writes_kept(request.pull_source)) return PullKind::kWrite;
  const bool reads = reads_kept(request.pull_source) && kept_part(request.pull_source) > 0;
  return reads ? PullKind::kRead : PullKind::kParameters;
}

}  // namespace

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
    : job_(job),
      add_(add),
      areas_(std::move(areas)),
      refuses_not_finite_(add.compression.spec.options.text("nan") == "stop"),
      staging_(transport) {
  const uint64_t unit = add_.compression.unit_elements;
  const uint64_t count = add_.shape.count;
  GRADBUS_CHECK(count > 0 && unit > 0 && (unit >= count || unit % add_.shape.chunk_elements == 0));
  for (uint32_t index = 0; index * unit < count; ++index)
    units_.push_back(add_.device_units == nullptr
                         ? make_unit(unit_plan(index))
                         : make_device_unit(unit_plan(index), *add_.device_units));
  stages_ = units_.front()->stages().size();
  waiting_.reserve(units_.size());
  // A node that is alone with its shards has no dense sum to compare with.
  const auto every = add.compression.spec.options.number("fidelity");
  if (every > 0 && job.agents > 1 && !add.holds_parameters)
    gauge_ = std::make_unique<FidelityGauge>(unit_plan(0), static_cast<uint64_t>(every));
}

CompressedTensor::~CompressedTensor() = default;

UnitPlan CompressedTensor::unit_plan(uint32_t index) const {
  const CompressionPlan& compression = add_.compression;
  UnitPlan plan;
  plan.spec = compression.spec;
  plan.communicator = compression.communicator;
  plan.shape = unit_shape(compression, add_.shape.count, index);
  plan.count = plan.shape.count_max;
  plan.index = index;
  plan.tensor_seed = tensor_seed(job_.job, add_.tensor);
  plan.agent_index = job_.agent_index;
  plan.agents = job_.agents;
  const bool began = add_.shards == 0;  // the placement of the job's start
  plan.shards = add_.algorithm != Algorithm::kShards ? 0 : (began ? job_.shards : add_.shards);
  plan.replicas = add_.replicas;
  plan.parameters = add_.holds_parameters;
  plan.tensor = add_.tensor;
  plan.pattern = began ? job_.pattern : add_.pattern;
  plan.members = add_.members;
  plan.algorithm = add_.algorithm;
  plan.scale = static_cast<float>(add_.last.after / add_.last.divisor);
  for (float* const area : areas_) plan.areas.push_back(area + index * compression.unit_elements);
  return plan;
}

uint64_t CompressedTensor::staging_bytes() const {
  uint64_t bytes = gauge_ == nullptr ? 0 : gauge_->stage().bytes;
  for (const auto& unit : units_)
    for (const Stage& stage : unit->stages()) bytes = checked_sum(bytes, stage.bytes);
  return bytes;
}

Status CompressedTensor::open(uint32_t tensor) {
  const std::string what = "the payloads of tensor \"" + add_.name + "\"";
  GRADBUS_RETURN_IF_ERROR(add_.device_units == nullptr
                              ? staging_.map(staging_bytes(), what)
                              : staging_.borrow(add_.device_units->payloads()));
  GRADBUS_CHECK(staging_.bytes().size() >= staging_bytes());
  std::span<std::byte> rest = staging_.bytes();
  for (const auto& unit : units_) {
    for (size_t s = 0; s < stages_; ++s) {
      const Stage& stage = unit->stages()[s];
      open_exchange(tensor, stage, rest.first(stage.bytes));
      unit->attach(s, exchanges_.back().get(), rest.first(stage.bytes));
      rest = rest.subspan(stage.bytes);
    }
  }
  if (gauge_ == nullptr) return {};
  open_exchange(tensor, gauge_->stage(), rest);
  gauge_->attach(rest);
  return {};
}

void CompressedTensor::open_exchange(uint32_t tensor, const Stage& stage,
                                     std::span<std::byte> memory) {
  const auto offset = static_cast<uint64_t>(memory.data() - staging_.bytes().data());
  const auto index = static_cast<uint16_t>(exchanges_.size());
  exchanges_.push_back(std::make_unique<Exchange>(
      ExchangeId{tensor, index}, stage.plan,
      ExchangeMemory{staging_.region(), offset, memory.data(), stage.stride},
      std::vector<uint32_t>{job_.agent_index}, Reduction{.op = ReduceOp::kSum}));
}

std::span<float> CompressedTensor::first_area(size_t unit) const {
  const uint64_t unit_elements = add_.compression.unit_elements;
  const uint64_t first = unit * unit_elements;
  return {areas_[0] + first, std::min(unit_elements, add_.shape.count - first)};
}

// ---- a round

Status CompressedTensor::begin(const RoundRequest& request) {
  GRADBUS_CHECK(done());
  request_ = request;
  chunks_reduced_ = 0;
  open_ = units_.size();
  measured_ = false;
  const bool exchanges = request.kind == SubmissionKind::kPosted;
  if (exchanges) {
    ++round_;
    measured_unit_ = gauge_ == nullptr ? units_.size() : gauge_->unit_of(round_, units_.size());
    if (measured_unit_ < units_.size()) ++open_;
  }
  const bool scales = exchanges && request.memory_scale != 1;
  for (const auto& unit : units_) {
    if (scales) GRADBUS_RETURN_IF_ERROR(unit->scale_memory(request.memory_scale));
    GRADBUS_RETURN_IF_ERROR(unit->prepare(round_, exchanges));
  }
  return {};
}

Result<ExchangeStarts> CompressedTensor::chunk_reduced() {
  ++chunks_reduced_;
  const uint64_t elements = std::min(chunks_reduced_ * add_.shape.chunk_elements, add_.shape.count);
  const uint64_t unit_elements = add_.compression.unit_elements;
  if (request_.kind != SubmissionKind::kPosted) {
    if (elements == add_.shape.count) GRADBUS_RETURN_IF_ERROR(take_turn_with_memory());
    return ExchangeStarts{};
  }
  if (elements % unit_elements != 0 && elements != add_.shape.count) return ExchangeStarts{};
  const size_t unit = (elements - 1) / unit_elements;
  if (refuses_not_finite_ && !request_.pull_only) GRADBUS_RETURN_IF_ERROR(refuse_not_finite(unit));
  return start(unit);
}

ExchangeStarts CompressedTensor::start(size_t unit) {
  ExchangeStarts starts;
  if (unit == measured_unit_) {
    gauge_->take(first_area(unit));
    starts[1] = {exchanges_.back().get(), round_ / gauge_->every()};
  }
  const std::span<const uint64_t> block_bytes = units_[unit]->start(round_, pull_of(request_));
  starts[0] = {exchanges_[unit * stages_].get(), round_, block_bytes};
  return starts;
}

// The first area contains the sum. The other areas contain what their ranks wrote.
Status CompressedTensor::refuse_not_finite(size_t unit) const {
  const std::span<const float> sum = first_area(unit);
  const size_t bad = first_not_finite(sum.data(), sum.size());
  if (bad == sum.size()) return {};
  const size_t element = unit * add_.compression.unit_elements + bad;
  const auto is_bad = [&](const float* area) { return !std::isfinite(area[element]); };
  const auto others = areas_.begin() + 1;
  const auto found = std::find_if(others, areas_.end(), is_bad);
  const size_t local = found == areas_.end() ? 0 : static_cast<size_t>(found - areas_.begin());
  const bool overflow = areas_.size() > 1 && local == 0;
  return error("O901", "tensor \"" + add_.name + "\": element " + std::to_string(element) +
                           " of rank " + std::to_string(job_.local_ranks[local]) +
                           (overflow ? ", or its sum with the other ranks of the node," : "") +
                           " is " +
                           std::to_string(found == areas_.end() ? sum[bad] : (*found)[element]));
}

// Units may begin at other elements.
void CompressedTensor::take_memory(CompressedTensor& from) {
  const uint64_t unit_elements = add_.compression.unit_elements;
  uint64_t first = 0;
  for (const auto& old : from.units_) {
    const uint64_t end = first + old->elements();
    for (uint64_t at = first; at < end;) {
      CompressedUnit& into = *units_[at / unit_elements];
      const uint64_t there = at % unit_elements;
      const uint64_t elements = std::min(end - at, into.elements() - there);
      into.take_memory(*old, at - first, there, elements);
      at += elements;
    }
    first = end;
  }
}

Status CompressedTensor::take_turn_with_memory() {
  const bool reads = request_.kind == SubmissionKind::kReadMemory;
  for (const auto& unit : units_)
    GRADBUS_RETURN_IF_ERROR(reads ? unit->read_memory(request_.part)
                                  : unit->write_memory(request_.part));
  open_ = 0;
  return {};
}

Result<ExchangeStarts> CompressedTensor::ended(const Exchange& exchange) {
  const size_t unit = exchange.id().index / stages_;
  const size_t stage = exchange.id().index % stages_;
  if (unit < units_.size()) {
    const Result<std::span<const uint64_t>> next = units_[unit]->advance(stage);
    if (!next.ok()) return next.status().with_context("tensor \"" + add_.name + "\"");
    if (units_[unit]->waits()) {
      waiting_.push_back({unit, stage + 1});
      return ExchangeStarts{};
    }
    if (stage + 1 < stages_) return start(unit, stage + 1, next.value());
  }
  --open_;
  if (done() && measured_unit_ < units_.size()) measure();
  return ExchangeStarts{};
}

ExchangeStarts CompressedTensor::start(size_t unit, size_t stage,
                                       std::span<const uint64_t> block_bytes) const {
  return {{{exchanges_[unit * stages_ + stage].get(), round_, block_bytes}}};
}

Result<ExchangeStarts> CompressedTensor::resume() {
  for (const Waiting one : waiting_) {
    const Result<std::span<const uint64_t>> next = units_[one.unit]->resume();
    if (!next.ok()) return next.status();
    if (units_[one.unit]->waits()) continue;
    std::erase_if(waiting_, [one](const Waiting& other) { return other.unit == one.unit; });
    return start(one.unit, one.stage, next.value());
  }
  return ExchangeStarts{};
}

void CompressedTensor::measure() {
  const auto scale = static_cast<float>(add_.last.after / add_.last.divisor);
  sample_ =
      gauge_->compare(first_area(measured_unit_), scale, units_[measured_unit_]->residual_norm());
  sample_.job = job_.job;
  sample_.tensor = add_.tensor;
  sample_.round = round_;
  measured_ = std::isfinite(sample_.cosine) && std::isfinite(sample_.relative_error) &&
              std::isfinite(sample_.residual_ratio);
}

}  // namespace gradbus
