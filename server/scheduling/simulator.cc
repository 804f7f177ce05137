#include "server/scheduling/simulator.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "server/scheduling/step_simulation.h"

namespace gradbus::scheduling {
namespace {

constexpr int kStepsMax = 16;
constexpr double kSame = 1e-9;  // of a step: it repeats

// Of the last one, when steps repeat; else the mean of the second half, which smooths patterns of
// two or four steps.
double settled_us(const std::vector<double>& starts) {
  const size_t steps = starts.size() - 1;
  const size_t first = steps == kStepsMax ? steps / 2 : steps - 1;
  return (starts[steps] - starts[first]) / static_cast<double>(steps - first);
}

// A plan whose steps wait for everything repeats at once: nothing crosses into the next step.
bool repeats(const Plan& plan, const std::vector<double>& starts) {
  const size_t count = starts.size();
  if (!plan.steps_per_layer) return count > 1;
  if (count < 4) return false;
  const double last = starts[count - 1] - starts[count - 2];
  const double before = starts[count - 2] - starts[count - 3];
  return std::abs(last - before) <= kSame * last;
}

// Cut to one step, whose start becomes 0.
std::vector<Interval> window(const std::vector<Interval>& all, double begin, double end) {
  std::vector<Interval> kept;
  for (Interval interval : all) {
    interval.begin_us = std::max(interval.begin_us, begin) - begin;
    interval.end_us = std::min(interval.end_us, end) - begin;
    if (interval.begin_us < interval.end_us) kept.push_back(interval);
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const Interval& a, const Interval& b) { return a.begin_us < b.begin_us; });
  return kept;
}

double busy_us(const std::vector<Interval>& timeline, Stream stream, bool coding) {
  double sum = 0;
  for (const Interval& interval : timeline) {
    const bool codes =
        interval.activity == Activity::kEncode || interval.activity == Activity::kDecode;
    if (interval.stream == stream && codes == coding) sum += interval.end_us - interval.begin_us;
  }
  return sum;
}

}  // namespace

OperationTimes operation_times(const Operation& operation, const Cluster& cluster) {
  if (cluster.network.nodes < 2) return {};
  const auto bytes = static_cast<double>(operation.bytes());
  if (!operation.compressed)
    return {.exchange_us = collective_us(operation.kind, bytes, cluster.network)};
  const uint32_t nodes = cluster.network.nodes;
  const CodecCost& codec =
      operation.codec == 0 ? cluster.codec : cluster.more_codecs[operation.codec - 1];
  return {encode_us(codec, bytes, nodes),
          exchange_us(operation.kind, codec, bytes, cluster.network),
          decode_us(codec, bytes, nodes)};
}

StepTimes simulate(const Workload& workload, const Plan& plan, const Cluster& cluster) {
  StepSimulation simulation(workload, plan, cluster);
  std::vector<double> starts = {simulation.run_to_next_step()};
  while (starts.size() <= kStepsMax && !repeats(plan, starts))
    starts.push_back(simulation.run_to_next_step());
  StepTimes times;
  times.iteration_us = settled_us(starts);
  times.compute_us = workload.compute_us();
  times.timeline = window(simulation.intervals(), starts[starts.size() - 2], starts.back());
  times.coding_us = busy_us(times.timeline, Stream::kCompute, true);
  times.exposed_us = std::max(0.0, times.iteration_us - times.compute_us - times.coding_us);
  times.link_us = busy_us(times.timeline, Stream::kLink, false);
  times.in_flight_bytes_max = simulation.in_flight_bytes_max();
  return times;
}

}  // namespace gradbus::scheduling
