// The routes of chunks and blocks between agents, as trees. Sums flow from the leaves to the root,
// results and blocks from the root to the leaves. Pure arithmetic; nothing is stored per agent.
//
//   kAhead     root -> root + 1 -> ... -> root - 1     a path; sums would flow against the ring
//   kBehind    root -> root - 1 -> ... -> root + 1     a path; sums flow along the ring
//   kBinomial  the parent of v clears its lowest bit (v counts from the root): ceil(log2(agents))
//              deep for any number of agents
//   kStar      root -> all others
//   kPair      root -> `leaf` only
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

namespace gradbus {

struct Tree {
  enum class Shape : uint8_t { kAhead, kBehind, kBinomial, kStar, kPair };
  Shape shape = Shape::kAhead;
  uint32_t root = 0;
  uint32_t agents = 1;
  uint32_t leaf = 0;  // for kPair; not the root

  bool has(uint32_t agent) const { return shape != Shape::kPair || agent == root || agent == leaf; }

  // No parent for the root. Agents outside a pair have no parent and no children.
  std::optional<uint32_t> parent(uint32_t agent) const {
    if (agent == root || !has(agent)) return std::nullopt;
    const uint32_t v = distance(agent);
    switch (shape) {
      case Shape::kAhead:
      case Shape::kBehind: return at(v - 1);
      case Shape::kBinomial: return at(v & (v - 1));
      default: return root;
    }
  }

  uint32_t children(uint32_t agent) const {
    const uint32_t v = distance(agent);
    switch (shape) {
      case Shape::kAhead:
      case Shape::kBehind: return v + 1 < agents ? 1 : 0;
      case Shape::kBinomial: return binomial_children(v);
      case Shape::kStar: return v == 0 ? agents - 1 : 0;
      case Shape::kPair: return v == 0 ? 1 : 0;
    }
    return 0;
  }

  // Child `i` of `agent`. In a binomial tree, later children have larger subtrees.
  uint32_t child(uint32_t agent, uint32_t i) const {
    if (shape == Shape::kPair) return leaf;
    const uint32_t v = distance(agent);
    return at(shape == Shape::kBinomial ? v + (1u << i) : v + 1 + i);
  }

 private:
  // Hops along the ring from the root to `agent`, in the tree's direction; below, the inverse.
  uint32_t distance(uint32_t agent) const {
    return (shape == Shape::kBehind ? root + agents - agent : agent + agents - root) % agents;
  }
  uint32_t at(uint32_t v) const {
    return (shape == Shape::kBehind ? root + agents - v : root + v) % agents;
  }
  uint32_t binomial_children(uint32_t v) const {
    const uint32_t free_bits = v == 0 ? 32 : static_cast<uint32_t>(std::countr_zero(v));
    uint32_t count = 0;
    while (count < free_bits && uint64_t{v} + (1ull << count) < agents) ++count;
    return count;
  }
};

}  // namespace gradbus
