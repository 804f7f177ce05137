#include "server/scheduling/job/codec_plans.h"

#include <algorithm>
#include <numeric>

namespace gradbus::scheduling {
namespace {

constexpr double kGainMin = 0.01;    // of a step: what a plan must save
constexpr double kSame = 0.002;      // of a step: a codec that saves less is not worth its error
constexpr size_t kGroupsTried = 48;  // by themselves, the largest ones

class CodecSearch {
 public:
  CodecSearch(const Workload& workload, const Cluster& cluster, const JobPlan& now,
              const std::vector<bool>& compressible)
      : workload_(workload), cluster_(cluster), now_(now), compressible_(compressible) {
    for (const CodecCost& codec : cluster.more_codecs)
      if (now_.wait == JobWait::kSplit && !can_split(codec)) now_.wait = JobWait::kLayer;
    for (const auto& group : now.groups) {
      bytes_.push_back(0);
      for (const uint32_t layer : group) bytes_.back() += workload.layers[layer].bytes();
    }
  }

  CodecPlans run() {
    CodecPlans found;
    found.dense_us = step_us(std::vector<uint32_t>(bytes_.size()));
    std::vector<uint32_t> all(cluster_.more_codecs.size());
    std::iota(all.begin(), all.end(), 1);
    for (const uint32_t codec : all) offer(refined(start_of({codec}), {0}), found);
    if (all.size() > 1) {
      std::vector<uint32_t> any = {0};
      any.insert(any.end(), all.begin(), all.end());
      offer(refined(start_of(all), any), found);
    }
    std::ranges::stable_sort(found.plans, {}, &CodecPlan::step_us);
    return found;
  }

 private:
  double step_us(const std::vector<uint32_t>& codecs) {
    JobPlan plan = now_;
    plan.codecs = codecs;
    plan.compressed.clear();
    for (const uint32_t codec : codecs) plan.compressed.push_back(codec != 0);
    predict(workload_, cluster_, &plan);
    return plan.step_us;
  }

  // Of an exchange by itself.
  double group_us(size_t group, uint32_t codec) const {
    Operation operation{.pieces = {{now_.groups[group].front(), 0, bytes_[group]}},
                        .compressed = codec != 0,
                        .codec = codec};
    const OperationTimes times = operation_times(operation, cluster_);
    return times.encode_us + times.exchange_us + times.decode_us;
  }

  // For each group the fastest of these, by itself.
  std::vector<uint32_t> start_of(const std::vector<uint32_t>& codecs) const {
    std::vector<uint32_t> chosen(bytes_.size());
    for (size_t group = 0; group < chosen.size(); ++group) {
      if (!compressible_[group]) continue;
      for (const uint32_t codec : codecs)
        if (group_us(group, codec) < group_us(group, chosen[group])) chosen[group] = codec;
    }
    return chosen;
  }

  // Group by group, the largest first: dense where that costs nothing, else what is fastest.
  CodecPlan refined(std::vector<uint32_t> codecs, const std::vector<uint32_t>& choices) {
    const double limit = step_us(codecs) * (1 + kSame);
    double best = step_us(codecs);
    for (const size_t group : largest()) {
      if (codecs[group] == 0) continue;
      for (const uint32_t choice : choices) {
        const uint32_t before = codecs[group];
        if (choice == before) continue;
        codecs[group] = choice;
        const double us = step_us(codecs);
        const bool is_better = choice == 0 ? us <= limit : us < best;
        if (is_better) best = us;
        if (!is_better) codecs[group] = before;
        if (is_better && choice == 0) break;
      }
    }
    return {std::move(codecs), best};
  }

  std::vector<size_t> largest() const {
    std::vector<size_t> order(bytes_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [this](size_t a, size_t b) { return bytes_[a] > bytes_[b]; });
    order.resize(std::min(order.size(), kGroupsTried));
    return order;
  }

  static void offer(CodecPlan plan, CodecPlans& found) {
    const bool is_known =
        std::ranges::find(found.plans, plan.codecs, &CodecPlan::codecs) != found.plans.end();
    if (!is_known && plan.step_us < found.dense_us * (1 - kGainMin))
      found.plans.push_back(std::move(plan));
  }

  const Workload& workload_;
  const Cluster& cluster_;
  JobPlan now_;
  const std::vector<bool>& compressible_;
  std::vector<uint64_t> bytes_;  // by group
};

}  // namespace

CodecPlans plan_codecs(const Workload& workload, const Cluster& cluster, const JobPlan& now,
                       const std::vector<bool>& compressible) {
  return CodecSearch(workload, cluster, now, compressible).run();
}

}  // namespace gradbus::scheduling
