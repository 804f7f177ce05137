#include "server/scheduling/cut_optimum.h"

#include <algorithm>

#include "server/scheduling/cut_atoms.h"
#include "server/scheduling/pareto_cuts.h"

namespace gradbus::scheduling {
namespace {

// Of one group of all-reduces, and all before it. Times count from the start of backward.
struct ReducedSoFar {
  double link_us = 0;      // when the link is free
  double decoded_us = 0;   // when all is decoded, if decoding need not wait for the backward pass
  double coding_us = 0;    // agent: when it can encode again; compute: by how much it is delayed
  double decoding_us = 0;  // compute: all that is to be decoded after the backward pass
  bool compressed = false;

  bool beats(const ReducedSoFar& other) const {
    return link_us <= other.link_us && decoded_us <= other.decoded_us &&
           coding_us <= other.coding_us && decoding_us <= other.decoding_us;
  }
  double rank() const { return std::max(link_us, decoded_us) + coding_us + decoding_us; }
};

class ReducedModel {
 public:
  ReducedModel(const Workload& workload, const Cluster& cluster, const CutAtoms& atoms)
      : cluster_(cluster), atoms_(atoms), backward_us_(workload.backward_us()) {}

  void extend(const ReducedSoFar& before, size_t begin, size_t end,
              std::vector<ReducedSoFar>* found) const {
    const double bytes = atoms_.bytes(begin, end);
    found->push_back(dense(before, bytes, end));
    if (!cluster_.codec.is_dense()) found->push_back(compressed(before, bytes, end));
  }

  double end_us(const ReducedSoFar& all) const {
    const double computed = backward_us_ + (on_compute() ? all.coding_us + all.decoding_us : 0);
    return std::max({all.link_us, all.decoded_us, computed});
  }

 private:
  bool on_compute() const { return cluster_.codec.on_compute; }

  double ready_us(const ReducedSoFar& before, size_t end) const {
    return atoms_.ready_us(end) + (on_compute() ? before.coding_us : 0);
  }

  ReducedSoFar dense(const ReducedSoFar& before, double bytes, size_t end) const {
    ReducedSoFar after = before;
    after.link_us = std::max(before.link_us, ready_us(before, end)) +
                    collective_us(CollectiveKind::kAllReduce, bytes, cluster_.network);
    after.compressed = false;
    return after;
  }

  ReducedSoFar compressed(const ReducedSoFar& before, double bytes, size_t end) const {
    const CodecCost& codec = cluster_.codec;
    const double encode = encode_us(codec, bytes, cluster_.network.nodes);
    const double decode = decode_us(codec, bytes, cluster_.network.nodes);
    const double ready = ready_us(before, end);
    ReducedSoFar after = before;
    after.coding_us =
        on_compute() ? before.coding_us + encode : std::max(before.coding_us, ready) + encode;
    const double encoded = on_compute() ? ready + encode : after.coding_us;
    after.link_us = std::max(before.link_us, encoded) +
                    exchange_us(CollectiveKind::kAllReduce, codec, bytes, cluster_.network);
    after.decoded_us = std::max(before.decoded_us, after.link_us) + decode;
    after.decoding_us += on_compute() ? decode : 0;
    after.compressed = true;
    return after;
  }

  const Cluster& cluster_;
  const CutAtoms& atoms_;
  const double backward_us_;
};

// Reduce-scatters and all-gathers of all groups so far, which are the last layers. The step ends
// `rest_us` after the link begins with their all-gathers, if it begins after the backward pass.
struct SplitSoFar {
  double link_us = 0;
  double rest_us = 0;

  bool beats(const SplitSoFar& other) const {
    return link_us <= other.link_us && rest_us <= other.rest_us;
  }
  double rank() const { return link_us + rest_us; }
};

class SplitModel {
 public:
  SplitModel(const Workload& workload, const Cluster& cluster, const CutAtoms& atoms)
      : cluster_(cluster),
        atoms_(atoms),
        backward_us_(workload.backward_us()),
        forward_us_(workload.forward_us()) {}

  void extend(const SplitSoFar& before, size_t begin, size_t end,
              std::vector<SplitSoFar>* found) const {
    const double bytes = atoms_.bytes(begin, end);
    const double scatter = time(CollectiveKind::kReduceScatter, bytes);
    const double gather = time(CollectiveKind::kAllGather, bytes);
    const double after_gather = std::max(before.rest_us, atoms_.forward_rest_us(end));
    found->push_back(
        {std::max(before.link_us, atoms_.ready_us(end)) + scatter, gather + after_gather});
  }

  double end_us(const SplitSoFar& all) const {
    return std::max(std::max(all.link_us, backward_us_) + all.rest_us, backward_us_ + forward_us_);
  }

 private:
  double time(CollectiveKind kind, double bytes) const {
    return exchange_us(kind, cluster_.codec, bytes, cluster_.network);
  }

  const Cluster& cluster_;
  const CutAtoms& atoms_;
  const double backward_us_;
  const double forward_us_;
};

template <typename State, typename Model>
auto best_way(const CutAtoms& atoms, const Model& model) {
  const ParetoCuts<State> cuts(
      atoms.count(), State{}, kFrontMax,
      [&](const State& before, uint32_t begin, uint32_t end, std::vector<State>* found) {
        model.extend(before, begin, end, found);
      });
  return cuts.best([&](const State& all) { return model.end_us(all); });
}

// `compressed(node)` says whether the group is.
template <typename Node, typename Compressed>
std::vector<OptimalGroup> groups_along(const CutAtoms& atoms, const std::vector<Node>& way,
                                       Compressed compressed) {
  std::vector<OptimalGroup> groups;
  for (size_t i = 0; i < way.size(); ++i) {
    const size_t end = i + 1 < way.size() ? way[i + 1].begin : atoms.count();
    groups.push_back({atoms.layers(way[i].begin, end), compressed(way[i])});
  }
  return groups;
}

}  // namespace

std::vector<OptimalGroup> best_all_reduce_groups(const Workload& workload, const Cluster& cluster) {
  const CutAtoms atoms(workload, kAtomsMax);
  const ReducedModel model(workload, cluster, atoms);
  const auto way = best_way<ReducedSoFar>(atoms, model);
  return groups_along(atoms, way, [](const auto& node) { return node.state.compressed; });
}

std::vector<OptimalGroup> best_split_groups(const Workload& workload, const Cluster& cluster) {
  const CutAtoms atoms(workload, kAtomsMax);
  const SplitModel model(workload, cluster, atoms);
  const auto way = best_way<SplitSoFar>(atoms, model);
  return groups_along(atoms, way, [&](const auto&) { return !cluster.codec.is_dense(); });
}

}  // namespace gradbus::scheduling
