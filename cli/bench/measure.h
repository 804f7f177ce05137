// How a benchmark is timed. Collective: every rank calls it at the same place.
//
// An iteration is a barrier, not timed, then `batch` operations back to back. Its time is that of
// the slowest rank, divided by `batch`. The ranks' times are exchanged once, behind the last
// iteration. Small operations are done in batches because the barrier lets the ranks go some
// microseconds apart, longer than such an operation takes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cli/bench/benchmark.h"
#include "cli/bench/process_cpu.h"
#include "common/clock.h"

namespace gradbus {

constexpr uint64_t kBatchBytesMax = 64 << 10;  // larger operations are timed one by one
constexpr int kBatchMax = 128;
constexpr Nanos kBatchTime = 200'000;  // what a batch should take at least

// Returns how many operations fill kBatchTime if each takes `one`.
int batch_for(uint64_t bytes, Nanos one);

// Who is asked for its CPU time.
struct BenchCpu {
  ProcessCpu all;
  ProcessCpu shards;  // of them
};

struct Measured {
  std::vector<double> microseconds;  // per iteration; on every rank
  int batch = 1;
  // In all iterations, of all processes, and of shards among them; where `cpu` is given.
  double cpu_seconds = 0;
  double shards_cpu_seconds = 0;
  std::optional<uint64_t> wrong;  // on all ranks together; with --check
};

// `bytes` of an operation; `cpu` is null on all ranks but the one that reports.
Result<Measured> measure(gradbus_session* session, const BenchWork& work, Benchmark& benchmark,
                         uint64_t bytes, const BenchCpu* cpu);

}  // namespace gradbus
