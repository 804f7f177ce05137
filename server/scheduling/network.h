// How long collectives and codecs take on a modelled network. Pure, closed forms; any thread.
//
// The formulas are those of Thakur, Rabenseifner and Gropp 2005, "Optimization of collective
// communication operations in MPICH", for n nodes, m bytes, L = log2(n):
//
//   algorithm            reduce-scatter                  all-gather
//   ring                 (n-1) a + (n-1)/n m (b+g)       (n-1) a + (n-1)/n m b
//   halving doubling      L a + (n-1)/n m (b+g)           L a + (n-1)/n m b
//   recursive doubling   as halving doubling             as halving doubling
//   tree                 reduce, scatter:                gather, broadcast:
//                        2L a + m (L (b+g) + (n-1)/n b)  2L a + m ((n-1)/n b + L b)
//
// An all-reduce is a reduce-scatter and then an all-gather, with two exceptions. Recursive doubling
// exchanges whole tensors: L (a + m (b+g)). A tree reduces and broadcasts: 2L a + L m (2b + g).
// Through S shards, each on a machine of its own with such a link, n nodes push m bytes and pull m.
// Both directions of a link work at once, and a chunk is answered as soon as it is summed. A
// shard's link carries n m / S bytes each way, and R times as many with R replicas: the incast that
// BytePS (Jiang et al. 2020) counts.
//
//   push and pull    2R a + max(1, R n / S) m (b+g)
//   push, or pull     R a + max(1, R n / S) m (b, push: +g)
//
// A push and a pull that are operations of their own do not overlap in the simulator, so `dear`
// seems slower on shards than it is.
//
// For n that is no power of two, L is rounded up. server/coordinator/planning/cost_model.h predicts
// one chunked exchange of the running system more closely; these forms are linear in m, which
// planners need.
#pragma once

#include <cstdint>

#include "proto/numbers.h"

namespace gradbus::scheduling {

inline constexpr uint32_t kNodesMax = 1 << 20;

// A message of m bytes takes alpha + m * beta; combining a byte with another one takes gamma.
struct Network {
  uint32_t nodes = 1;
  double alpha_us = 20;
  double beta_ns = 0.8;
  double gamma_ns = 0;
  Algorithm algorithm = Algorithm::kAuto;  // kAuto: the fastest for each operation
  uint32_t shards = 0;                     // not 0: they sum, and not the nodes
  uint32_t replicas = 1;                   // shards that have each gradient
};

// Linear in the bytes.
struct LinearCost {
  double startup_us = 0;
  double byte_ns = 0;

  double us(double bytes) const { return startup_us + bytes * byte_ns / 1000; }
};

// `kind` is all-reduce, reduce-scatter or all-gather; `algorithm` is one that models() knows. For
// all-gather, the bytes are those of the result.
LinearCost collective_cost(CollectiveKind kind, Algorithm algorithm, const Network& network);

// Whether there is a formula: ring, halving doubling, recursive doubling, tree.
bool models(Algorithm algorithm);

// By the network's algorithm, or by the fastest. 0 on one node.
double collective_us(CollectiveKind kind, double bytes, const Network& network);

// The time of an operation without bytes: what merging two operations saves.
double startup_us(CollectiveKind kind, const Network& network);

}  // namespace gradbus::scheduling
