#include "cli/bench/measure.h"

#include <algorithm>

namespace gradbus {
namespace {

// Known data is exchanged so often, at first and again at last: twice in a row without a barrier
// between, so that a fast rank begins the second round while a slow one is in the first.
constexpr int kCheckedRounds = 2;

Status add_wrong(const BenchWork& work, const KnownData& known, Benchmark& benchmark,
                 uint64_t& wrong) {
  for (int i = 0; i < (work.check ? kCheckedRounds : 0); ++i) {
    benchmark.fill(known);
    GRADBUS_RETURN_IF_ERROR(benchmark.run());
    wrong += benchmark.count_wrong(known);
  }
  return {};
}

Status barrier(gradbus_session* session) { return to_status(gradbus_barrier(session)); }

// The first rank's choice, on all ranks.
Result<int> agree_on_batch(gradbus_session* session, int own) {
  int32_t batch = own;
  GRADBUS_RETURN_IF_ERROR(
      to_status(gradbus_broadcast(session, "bench.batch", &batch, 1, GRADBUS_I32, 0)));
  return batch;
}

Result<int> warm_up(gradbus_session* session, const BenchWork& work, Benchmark& benchmark,
                    uint64_t bytes) {
  Nanos best = kBatchTime;
  for (int i = 0; i < work.warmup; ++i) {
    benchmark.refresh();
    const Nanos began = monotonic_now();
    GRADBUS_RETURN_IF_ERROR(benchmark.run());
    best = std::min(best, monotonic_now() - began);
  }
  return agree_on_batch(session, batch_for(bytes, best));
}

Status run_timed(gradbus_session* session, Benchmark& benchmark, int batch, double& microseconds) {
  benchmark.refresh();
  GRADBUS_RETURN_IF_ERROR(barrier(session));
  const Nanos began = monotonic_now();
  for (int i = 0; i < batch; ++i) GRADBUS_RETURN_IF_ERROR(benchmark.run());
  microseconds = static_cast<double>(monotonic_now() - began) / 1e3 / batch;
  return {};
}

// Of each iteration the slowest rank's time; of the wrong elements the sum.
Status exchange_results(gradbus_session* session, Measured& measured, uint64_t wrong) {
  auto& times = measured.microseconds;
  GRADBUS_RETURN_IF_ERROR(to_status(gradbus_allreduce(
      session, "bench.times", times.data(), times.data(), times.size(), GRADBUS_F64, GRADBUS_MAX)));
  auto all = static_cast<int64_t>(wrong);
  GRADBUS_RETURN_IF_ERROR(to_status(
      gradbus_allreduce(session, "bench.wrong", &all, &all, 1, GRADBUS_I64, GRADBUS_SUM)));
  if (measured.wrong.has_value()) measured.wrong = static_cast<uint64_t>(all);
  return {};
}

}  // namespace

int batch_for(uint64_t bytes, Nanos one) {
  if (bytes >= kBatchBytesMax) return 1;
  const Nanos fitting = (kBatchTime + one - 1) / std::max<Nanos>(one, 1);
  return static_cast<int>(std::clamp<Nanos>(fitting, 1, kBatchMax));
}

Result<Measured> measure(gradbus_session* session, const BenchWork& work, Benchmark& benchmark,
                         uint64_t bytes, const BenchCpu* cpu) {
  const KnownData known(work.dtype, work.op, work.ranks, work.seed);
  uint64_t wrong = 0;
  benchmark.fill(known);  // touches all memory
  GRADBUS_RETURN_IF_ERROR(add_wrong(work, known, benchmark, wrong));
  benchmark.zero();
  Result<int> batch = warm_up(session, work, benchmark, bytes);
  if (!batch.ok()) return batch.status();

  Measured measured;
  measured.batch = batch.value();
  measured.microseconds.resize(static_cast<size_t>(work.iterations));
  GRADBUS_RETURN_IF_ERROR(barrier(session));
  const double cpu_before = cpu != nullptr ? cpu->all.seconds() : 0;
  const double shards_before = cpu != nullptr ? cpu->shards.seconds() : 0;
  for (double& time : measured.microseconds)
    GRADBUS_RETURN_IF_ERROR(run_timed(session, benchmark, measured.batch, time));
  GRADBUS_RETURN_IF_ERROR(barrier(session));
  if (cpu != nullptr) {
    measured.cpu_seconds = cpu->all.seconds() - cpu_before;
    measured.shards_cpu_seconds = cpu->shards.seconds() - shards_before;
  }

  GRADBUS_RETURN_IF_ERROR(add_wrong(work, known, benchmark, wrong));
  if (work.check) measured.wrong = wrong;
  GRADBUS_RETURN_IF_ERROR(exchange_results(session, measured, wrong));
  return measured;
}

}  // namespace gradbus
