// Dynamic programming over contiguous cuts with a Pareto front at each position. Pure.
//
// A State has
//   bool beats(const State&) const    it is at least as good in every respect
//   double rank() const               smaller is more promising; decides when a front is too long
// `extend(state, begin, end, &out)` appends the states that a group of atoms [begin, end) leads to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace gradbus::scheduling {

template <typename State>
class ParetoCuts {
 public:
  struct Node {
    State state;
    uint32_t begin = 0;   // of its last group
    uint32_t parent = 0;  // in the front at `begin`
  };

  template <typename Extend>
  ParetoCuts(size_t atoms, const State& start, size_t front_max, Extend extend)
      : fronts_(atoms + 1) {
    fronts_[0] = {{start, 0, 0}};
    for (uint32_t end = 1; end <= atoms; ++end) {
      std::vector<Node> nodes;
      for (uint32_t begin = 0; begin < end; ++begin) extend_all(begin, end, extend, &nodes);
      fronts_[end] = front_of(std::move(nodes), front_max);
    }
  }

  // The nodes of the best way, first group first.
  template <typename Cost>
  std::vector<Node> best(Cost cost) const {
    std::vector<Node> way;
    const std::vector<Node>& last = fronts_.back();
    size_t at = fronts_.size() - 1;
    auto index = static_cast<size_t>(std::min_element(last.begin(), last.end(),
                                                      [&](const Node& a, const Node& b) {
                                                        return cost(a.state) < cost(b.state);
                                                      }) -
                                     last.begin());
    while (at > 0) {
      way.push_back(fronts_[at][index]);
      at = way.back().begin;
      index = way.back().parent;
    }
    std::reverse(way.begin(), way.end());
    return way;
  }

 private:
  template <typename Extend>
  void extend_all(uint32_t begin, uint32_t end, Extend& extend, std::vector<Node>* nodes) {
    std::vector<State> found;
    for (uint32_t parent = 0; parent < fronts_[begin].size(); ++parent) {
      found.clear();
      extend(fronts_[begin][parent].state, begin, end, &found);
      for (State& state : found) nodes->push_back({std::move(state), begin, parent});
    }
  }

  static std::vector<Node> front_of(std::vector<Node> nodes, size_t front_max) {
    std::stable_sort(nodes.begin(), nodes.end(),
                     [](const Node& a, const Node& b) { return a.state.rank() < b.state.rank(); });
    std::vector<Node> front;
    for (Node& node : nodes) {
      if (front.size() == front_max) break;
      const bool beaten = std::any_of(front.begin(), front.end(), [&](const Node& kept) {
        return kept.state.beats(node.state);
      });
      if (!beaten) front.push_back(std::move(node));
    }
    return front;
  }

  std::vector<std::vector<Node>> fronts_;
};

}  // namespace gradbus::scheduling
