#include "server/scheduling/cut_atoms.h"

#include <algorithm>

#include "server/scheduling/schedules/planners.h"

namespace gradbus::scheduling {
namespace {

// For each layer, the forward time from its start to the end of the pass.
std::vector<double> forward_rests(const Workload& workload) {
  std::vector<double> rests(workload.layers.size());
  double rest = 0;
  for (size_t layer = rests.size(); layer-- > 0;)
    rests[layer] = rest += workload.layers[layer].forward_us;
  return rests;
}

}  // namespace

CutAtoms::CutAtoms(const Workload& workload, size_t atoms_max) {
  const std::vector<uint32_t> order = gradient_order(workload);
  const std::vector<double> ready = scheduling::ready_us(workload);
  const std::vector<double> rests = forward_rests(workload);
  const bool joins = order.size() > atoms_max;
  const auto share = static_cast<double>(workload.bytes()) / static_cast<double>(atoms_max);
  for (const uint32_t layer : order) {
    const auto more = static_cast<double>(workload.layers[layer].bytes());
    const bool fits = joins && count() > 0 && bytes(count() - 1, count()) + more <= share;
    if (!fits) {
      layers_.emplace_back();
      bytes_.push_back(bytes_.back());
      ready_us_.push_back(0);
      forward_rest_us_.push_back(forward_rest_us_.back());
    }
    layers_.back().push_back(layer);
    bytes_.back() += more;
    ready_us_.back() = ready[layer];
    forward_rest_us_.back() = std::max(forward_rest_us_.back(), rests[layer]);
  }
}

std::vector<uint32_t> CutAtoms::layers(size_t begin, size_t end) const {
  std::vector<uint32_t> joined;
  for (size_t i = begin; i < end; ++i)
    joined.insert(joined.end(), layers_[i].begin(), layers_[i].end());
  return joined;
}

}  // namespace gradbus::scheduling
