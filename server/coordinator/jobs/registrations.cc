#include "server/coordinator/jobs/registrations.h"

#include <algorithm>

#include "common/policy/sync_mode.h"
#include "common/units.h"
#include "compression/spec.h"
#include "proto/algorithms.h"
#include "proto/budget.h"
#include "proto/numbers.h"
#include "proto/tensor_ids.h"
#include "server/coordinator/planning/compression_plan.h"
#include "server/coordinator/planning/planner.h"

namespace gradbus {
namespace {

using Kind = Registrations::Answer::Kind;

// Failed attempts of one name that wait for ranks; the oldest goes first. A correct program has
// one.
constexpr size_t kAttemptsMax = 8;

bool is_reducing(const v1::TensorSpec& spec) {
  return reduces(static_cast<CollectiveKind>(spec.collective()));
}

// Fields that the collective does not use are not compared.
v1::TensorSpec without_unused(v1::TensorSpec spec) {
  spec.set_compression(canonical_compression(spec.compression()));
  if (spec.compression().empty()) spec.set_columns(0);
  if (!is_reducing(spec)) spec.set_op(uint32_t(ReduceOp::kNone));
  if (!has_root(static_cast<CollectiveKind>(spec.collective()))) spec.set_root(0);
  spec.set_row_elements(std::max<uint64_t>(spec.row_elements(), 1));
  return spec;
}

bool same(const v1::TensorSpec& a, const v1::TensorSpec& b) {
  return a.count() == b.count() && a.dtype() == b.dtype() && a.op() == b.op() &&
         a.collective() == b.collective() && a.root() == b.root() &&
         a.row_elements() == b.row_elements() && a.prescale() == b.prescale() &&
         a.postscale() == b.postscale() && a.compression() == b.compression() &&
         a.columns() == b.columns() && a.mode() == b.mode() && a.shape() == b.shape() &&
         a.priority() == b.priority() && a.result_priority() == b.result_priority() &&
         a.budget_bytes() == b.budget_bytes();
}

Registrations::Answer refused(Kind kind, Status refusal, RankSet ranks) {
  return {.kind = kind, .ready = {}, .refusal = std::move(refusal), .refused = std::move(ranks)};
}

std::string collective(const v1::TensorSpec& spec) {
  return std::string(collective_name(static_cast<CollectiveKind>(spec.collective())));
}

std::string tensor(const v1::TensorSpec& spec) { return "tensor " + tensor_in_quotes(spec.name()); }

Status check_numbers(const v1::TensorSpec& spec) {
  const char* field = !is_dtype(spec.dtype())             ? "dtype"
                      : !is_collective(spec.collective()) ? "collective"
                      : !is_reduce_op(spec.op())          ? "op"
                                                          : nullptr;
  if (field == nullptr) return Status();
  return short_error("D602", tensor(spec) + " has an unknown number for its " + field);
}

}  // namespace

Status Registrations::check(const v1::TensorSpec& spec) const {
  if (spec.name().empty() || spec.name().size() > kTensorNameBytesMax) {
    return short_error("O900", "a tensor's name has " + std::to_string(spec.name().size()) +
                                   " bytes; 1 to 255 are allowed");
  }
  if (spec.shape().size() > kShapeBytesMax)
    return short_error("O900", tensor(spec) + " has a shape of too many dimensions");
  GRADBUS_RETURN_IF_ERROR(check_numbers(spec));
  if (is_reducing(spec) && spec.op() == uint32_t(ReduceOp::kNone)) {
    return short_error("O900", tensor(spec) + ": " + collective(spec) + " needs an operation");
  }
  if (has_root(static_cast<CollectiveKind>(spec.collective())) && spec.root() >= world_size_) {
    return short_error("O900", tensor(spec) + " has root " + std::to_string(spec.root()) +
                                   "; the world size is " + std::to_string(world_size_));
  }
  if (spec.count() > kTensorBytesMax / dtype_bytes(static_cast<DType>(spec.dtype()))) {
    return short_error("O904", tensor(spec) + " has " + std::to_string(spec.count()) +
                                   " elements; 2^40 bytes are allowed");
  }
  if (const uint32_t most = std::max(spec.priority(), spec.result_priority()); most > kPriorityMax)
    return short_error("O900", tensor(spec) + " has priority " + std::to_string(most) +
                                   "; at most " + std::to_string(kPriorityMax) + " is allowed");
  if (spec.budget_bytes() > kBudgetBytesMax)
    return short_error("O900", tensor(spec) + " has a budget of " +
                                   std::to_string(spec.budget_bytes()) +
                                   " bytes in flight; at most 2^40 are allowed");
  if (spec.budget_bytes() > 0 && !(spec.mode().empty() && is_reducing(spec)))
    return short_error("O911", tensor(spec) +
                                   " has a budget of bytes in flight, which is for "
                                   "reductions in mode sync");
  GRADBUS_RETURN_IF_ERROR(check_mode(spec));
  return check_compression(spec);
}

// What agents have checked they may be wrong about: a claim as any other.
Status Registrations::check_mode(const v1::TensorSpec& spec) const {
  if (spec.mode().empty()) return Status();
  const Result<SyncMode> mode = parse_mode(clean_text(spec.mode(), kModeBytesMax));
  if (!mode.ok()) return mode.status().with_context(tensor(spec));
  const bool all_reduce = spec.collective() == uint32_t(CollectiveKind::kAllReduce);
  const bool floats = spec.dtype() == uint32_t(DType::kF32);
  const bool dense = spec.compression().empty();
  if (mode.value().is_local() || mode.value().canonical != spec.mode() || !all_reduce ||
      (mode.value().holds_parameters() && !floats))
    return short_error(
        "O911", tensor(spec) + ": mode " + mode.value().canonical + " does not fit the tensor");
  if (mode.value().keeps_tensors_whole() && !dense)
    return short_error("O911",
                       tensor(spec) + ": mode " + mode.value().canonical +
                           " steps on whole tensors, of dense gradients only",
                       "leave out the compression, or take another optimizer");
  GRADBUS_RETURN_IF_ERROR(may_use(mode.value(), tensor(spec)));
  const v1::TensorSpec* const before = ready_spec(spec.name());
  if (mode.value().placement == 0 || (before != nullptr && is_on_shards(before->mode()))) return {};
  return short_error(
      "O911",
      tensor(spec) + ": mode " + mode.value().canonical +
          ": placement= is for tensors that move with the job's shards, and no tensor of "
          "this name is on them",
      "leave out placement=; Gradbus sets it itself");
}

Status Registrations::may_use(const SyncMode& mode, const std::string& who) const {
  if (!mode.on_shards()) return {};
  const std::string what = who + ": mode " + mode.canonical;
  if (options_.deterministic)
    return short_error("O911", what +
                                   " gives other bits in every run, and the coordinator was "
                                   "started with --deterministic");
  if (mode.quorum > agents_)
    return short_error("O911", what + " wants " + counted(mode.quorum, "node") + ", the job has " +
                                   std::to_string(agents_));
  GRADBUS_RETURN_IF_ERROR(no_shards_);
  const uint32_t shards = shards_.shards;
  if (mode.settled_replicas(shards) < 2) GRADBUS_RETURN_IF_ERROR(no_single_copies_);
  if (shards_.shards == 0) return short_error("O912", what + ", and the job began without one");
  if (mode.replicas <= shards) return {};
  return short_error("O911",
                     what + " wants " + counted(mode.replicas, "shard") + ", the job has " +
                         std::to_string(shards),
                     "start another gradbus-server --role=shard before the job, or use gradbus run "
                     "--shards 2");
}

// Each attempt may use up an id, so those under way count.
Status Registrations::check_capacity(const std::string& name) const {
  const bool fits = (names_.size() < kTensorsMax || names_.contains(name)) &&
                    live_.count() + pending_count_ < kTensorsMax;
  const bool has_id = uint64_t{next_id_} + pending_count_ < kTensorIdsMax;
  if (fits && has_id) return Status();
  return short_error("O904",
                     has_id ? "the job has " + std::to_string(kTensorsMax) + " tensors"
                            : "the job has registered " + std::to_string(kTensorIdsMax - 1) +
                                  " tensors since it started",
                     has_id ? "unregister tensors that are no longer used, or register fewer, "
                              "larger ones"
                            : "keep tensors registered and reuse them");
}

Registrations::Answer Registrations::ask(uint32_t rank, const v1::TensorSpec& asked) {
  if (Status bad = check(asked); !bad.ok())
    return refused(Kind::kRefusedToOne, std::move(bad), {rank});
  Answer result = answer(rank, without_unused(asked));
  forget_empty(asked.name());
  return result;
}

Registrations::Answer Registrations::answer(uint32_t rank, const v1::TensorSpec& spec) {
  if (const auto at = names_.find(spec.name()); at != names_.end()) {
    Name& name = at->second;
    const bool has_it = name.ready && !live_.has_released(rank, name.ready->id());
    if (has_it && same(name.ready->spec(), spec)) return answer_ready(name, rank);
    for (size_t i = 0; i < name.attempts.size(); ++i) {
      if (!name.attempts[i].asked.contains(rank)) return take_part(name, i, rank, spec);
    }
    if (!name.attempts.empty() && name.attempts.back().refusal.ok())
      return repeat(name, rank, spec);
  }
  if (Status full = check_capacity(spec.name()); !full.ok()) {
    return refused(Kind::kRefusedToOne, std::move(full), {rank});
  }
  return begin(names_[spec.name()], rank, spec);
}

// The rank has moved on from attempts that failed, so they need not wait for it.
Registrations::Answer Registrations::answer_ready(Name& name, uint32_t rank) {
  for (Attempt& attempt : name.attempts) {
    if (!attempt.refusal.ok()) attempt.asked.insert(rank);
  }
  forget_answered(name);
  return {.kind = Kind::kReadyForOne, .ready = *name.ready, .refusal = {}, .refused = {}};
}

Registrations::Answer Registrations::begin(Name& name, uint32_t rank, const v1::TensorSpec& spec) {
  if (name.attempts.size() == kAttemptsMax) name.attempts.erase(name.attempts.begin());
  name.attempts.push_back({.spec = spec, .asked = RankBits(world_size_), .refusal = {}});
  ++pending_count_;
  return take_part(name, name.attempts.size() - 1, rank, spec);
}

Registrations::Answer Registrations::take_part(Name& name, size_t index, uint32_t rank,
                                               const v1::TensorSpec& spec) {
  Attempt& attempt = name.attempts[index];
  if (!attempt.refusal.ok()) {
    Answer answer = refused(Kind::kRefusedToOne, attempt.refusal, {rank});
    attempt.asked.insert(rank);
    forget_answered(name);
    return answer;
  }
  if (!same(attempt.spec, spec)) return disagree(name, attempt, rank, spec);
  attempt.asked.insert(rank);
  return attempt.asked.full() ? finish(name) : Answer{};
}

// A rank asks again for what it already waits for.
Registrations::Answer Registrations::repeat(Name& name, uint32_t rank, const v1::TensorSpec& spec) {
  Attempt& attempt = name.attempts.back();
  return same(attempt.spec, spec) ? Answer{} : disagree(name, attempt, rank, spec);
}

Registrations::Answer Registrations::disagree(Name& name, Attempt& attempt, uint32_t rank,
                                              const v1::TensorSpec& spec) {
  attempt.refusal =
      short_error("O902", tensor(spec) + ": " + rank_phrase(attempt.asked.list(true)) +
                              " registered " + spec_text(attempt.spec) + ", rank " +
                              std::to_string(rank) + " " + spec_text(spec));
  attempt.asked.insert(rank);
  --pending_count_;
  Answer answer = refused(Kind::kRefusedToAll, attempt.refusal, attempt.asked.list(true));
  forget_answered(name);
  return answer;
}

// Ranks of one node share memory: nothing is compressed between them.
TensorPlan Registrations::plan(const v1::TensorSpec& spec) const {
  const JobSize size{agents_, world_size_};
  const Result<CompressionSpec> compression = parse_compression(spec.compression());
  const bool dense = spec.count() == 0 || !compression.ok();
  if (is_on_shards(spec.mode()))
    return dense ? plan_on_shards(spec, shards_, options_)
                 : plan_ps_sync(spec, compression.value(), shards_, options_);
  if (size.agents == 1 || dense) return plan_tensor(spec, size, options_);
  return plan_compressed(spec, compression.value(), size, options_);
}

// Where it was asked for. Whether it lies on GPUs nodes find out when they make room for it.
bool Registrations::may_go_by_nccl(const v1::TensorSpec& spec) const {
  return options_.nccl && agents_ > 1 && spec.count() > 0 && spec.compression().empty() &&
         spec.mode().empty() &&
         gradbus::may_go_by_nccl(static_cast<CollectiveKind>(spec.collective()),
                                 static_cast<DType>(spec.dtype()),
                                 static_cast<ReduceOp>(spec.op()));
}

// On the newest shards. One that only its mode's option placement= makes another one than the last
// of its name begins with what that one has.
void Registrations::place(Name& name, v1::ReadyTensor& ready) {
  const SyncMode mode = parse_mode(ready.spec().mode()).take();
  name.replicas = mode.settled_replicas(shards_.shards);
  ready.set_placement(placement_);
  if (!name.ready || mode.placement == 0) return;
  v1::TensorSpec before = name.ready->spec();
  before.set_mode(without_placement(before.mode()));
  v1::TensorSpec after = ready.spec();
  after.set_mode(without_placement(after.mode()));
  if (!same(before, after)) return;
  ready.mutable_moved_from()->set_id(name.ready->id());
  const uint64_t partition = name.ready->partition_elements();
  ready.mutable_moved_from()->set_chunk_elements(partition > 0 ? partition
                                                               : name.ready->chunk_elements());
  ready.mutable_moved_from()->set_placement(name.ready->placement());
}

std::set<std::pair<uint32_t, uint32_t>> Registrations::places() const {
  std::set<std::pair<uint32_t, uint32_t>> found;
  for (const auto& [unused, name] : names_)
    if (name.ready && is_on_shards(name.ready->spec().mode()))
      found.emplace(name.ready->placement(), name.replicas);
  return found;
}

Registrations::Answer Registrations::finish(Name& name) {
  v1::ReadyTensor ready;
  *ready.mutable_spec() = name.attempts.back().spec;
  ready.set_name(ready.spec().name());
  ready.set_id(next_id_++);
  TensorPlan plan = this->plan(ready.spec());
  name.why = std::move(plan.why);
  name.reason.clear();
  const bool on_shards = plan.algorithm == Algorithm::kShards;
  if (on_shards) place(name, ready);
  live_.add({ready.id(), ready.name(), on_shards});
  ready.set_chunk_elements(plan.chunk_elements);
  ready.set_algorithm(static_cast<uint32_t>(plan.algorithm));
  ready.set_partition_elements(plan.partition_elements);
  ready.set_nccl(may_go_by_nccl(ready.spec()));
  if (plan.communicator != Communicator::kAuto)
    ready.set_communicator(std::string(communicator_name(plan.communicator)));
  name.ready = ready;
  name.attempts.pop_back();
  --pending_count_;
  return {.kind = Kind::kReadyForAll, .ready = std::move(ready), .refusal = {}, .refused = {}};
}

Status Registrations::take_back(const v1::ReadyTensor& ready, uint32_t shards) {
  const v1::TensorSpec& spec = ready.spec();
  const Result<SyncMode> mode = parse_mode(clean_text(spec.mode(), kModeBytesMax));
  if (spec.name().empty() || spec.name().size() > kTensorNameBytesMax ||
      spec.name() != ready.name() || !check_numbers(spec).ok() || !mode.ok())
    return short_error(
        "D602", "a node announced tensor id " + std::to_string(ready.id()) + ", which cannot be");
  use_ids_above(ready.id());
  live_.add({ready.id(), ready.name(), is_on_shards(spec.mode())});
  Name& name = names_[ready.name()];
  if (name.ready && name.ready->id() > ready.id()) return {};
  name.ready = ready;
  name.why = "planned before the coordinator was restarted";
  name.replicas = mode.value().settled_replicas(shards);
  return {};
}

bool Registrations::release(uint32_t rank, uint32_t id, std::vector<LiveTensors::Tensor>& retired) {
  const size_t known = retired.size();
  const bool sensible = live_.release(rank, id, retired);
  for (size_t i = known; i < retired.size(); ++i) forget_retired(retired[i]);
  return sensible;
}

void Registrations::leave(uint32_t rank, std::vector<LiveTensors::Tensor>& retired) {
  const size_t known = retired.size();
  live_.leave(rank, retired);
  for (size_t i = known; i < retired.size(); ++i) forget_retired(retired[i]);
}

// Its name may have a newer version.
void Registrations::forget_retired(const LiveTensors::Tensor& tensor) {
  const auto at = names_.find(tensor.name);
  if (at == names_.end() || !at->second.ready || at->second.ready->id() != tensor.id) return;
  at->second.ready.reset();
  forget_empty(tensor.name);
}

void Registrations::forget_answered(Name& name) {
  std::erase_if(name.attempts, [](const Attempt& attempt) {
    return !attempt.refusal.ok() && attempt.asked.full();
  });
}

void Registrations::forget_empty(const std::string& name) {
  const auto at = names_.find(name);
  if (at == names_.end() || at->second.ready || !at->second.attempts.empty()) return;
  names_.erase(at);
}

const Registrations::Attempt* Registrations::pending(const std::string& name) const {
  const auto at = names_.find(name);
  if (at == names_.end() || at->second.attempts.empty()) return nullptr;
  const Attempt& last = at->second.attempts.back();
  return last.refusal.ok() ? &last : nullptr;
}

bool Registrations::waits(uint32_t rank, const std::string& name) const {
  const Attempt* attempt = pending(name);
  return attempt != nullptr && attempt->asked.contains(rank);
}

RankSet Registrations::missing(const std::string& name) const {
  const Attempt* attempt = pending(name);
  return attempt == nullptr ? RankSet{} : attempt->asked.list(false);
}

RankSet Registrations::waiting(const std::string& name) const {
  const Attempt* attempt = pending(name);
  return attempt == nullptr ? RankSet{} : attempt->asked.list(true);
}

const v1::TensorSpec* Registrations::pending_spec(const std::string& name) const {
  const Attempt* attempt = pending(name);
  return attempt == nullptr ? nullptr : &attempt->spec;
}

const v1::TensorSpec* Registrations::ready_spec(const std::string& name) const {
  const auto at = names_.find(name);
  return at == names_.end() || !at->second.ready ? nullptr : &at->second.ready->spec();
}

void Registrations::drop_pending(const std::string& name) {
  if (pending(name) == nullptr) return;
  names_.at(name).attempts.pop_back();
  --pending_count_;
  forget_empty(name);
}

uint64_t Registrations::set_chunk_bytes(uint64_t bytes) {
  if (!chunks_are_given_) options_.chunk_bytes = bytes;
  return options_.chunk_bytes > 0 ? options_.chunk_bytes
                                  : chunk_bytes_for(path_cost(options_.told, options_.measured));
}

void Registrations::explain(const std::string& name, std::string reason) {
  const auto found = names_.find(name);
  if (found != names_.end() && found->second.ready) found->second.reason = std::move(reason);
}

std::vector<Registrations::Listed> Registrations::list(size_t limit) const {
  std::vector<Listed> found;
  for (const auto& [unused, name] : names_) {
    if (found.size() == limit) break;
    if (name.ready) found.push_back({&*name.ready, name.why, name.reason});
  }
  return found;
}

}  // namespace gradbus
