// What ordering a step of 200 tensors with a byte budget costs the leader, and which share of a
// core that is at 20 steps per second. Run a release build.
#include <benchmark/benchmark.h>

#include "tests/bench/start_order_steps.h"

namespace {

void order_steps(benchmark::State& state) {
  constexpr double kStepsPerSecond = 20;
  const auto tensors = static_cast<uint32_t>(state.range(0));
  gradbus::StartOrder leader(0, 2);
  for (uint32_t tensor = 0; tensor < tensors; ++tensor) leader.add(tensor, {100, 1000, tensor});
  uint64_t round = 0;
  for (auto _ : state) gradbus::test::order_a_step(leader, tensors, ++round);
  // Seconds of CPU per step times steps per second.
  state.counters["core_share"] =
      benchmark::Counter(static_cast<double>(round) / kStepsPerSecond,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(order_steps)->Arg(20)->Arg(200)->Arg(2000);

}  // namespace

BENCHMARK_MAIN();
