// Predicts the time of each algorithm from three numbers of the path between agents. The planner
// chooses the fastest. Pure.
//
// The formulas are those of Thakur, Rabenseifner and Gropp 2005, "Optimization of collective
// communication operations in MPICH", for chunks that form a pipeline. A round costs one message
// for the credits and the hops of its longest way, plus the larger of two times: that of the
// busiest agent's bytes, and that of one chunk on all hops. Agents send and receive at once.
#pragma once

#include <cstdint>

#include "proto/numbers.h"

namespace gradbus {

struct PathCost {
  double alpha_us = 0;  // a message of no bytes, from one engine to another
  double beta_ns = 0;   // a byte on its way
  double gamma_ns = 0;  // a byte combined with another one
  double crowding = 1;  // on beta, where an agent receives from several others at the same time
};

// Measured on 2026-11-21 between two agents on one AMD EPYC machine of 2 cores, TCP over loopback
// with two streams. Recursive doubling of 4 bytes to 1 MiB took 20 to 60 us and 0.5 to 0.6 ns a
// byte. Among three and four agents 16 MiB took a fifth to a third longer by trees than by the
// ring. Stands for what nobody has measured yet (server/coordinator/paths.h) or told the
// coordinator
// (--path-latency-us, --path-mbit); crowding is always this one.
inline constexpr PathCost kTcpPath{
    .alpha_us = 20, .beta_ns = 0.5, .gamma_ns = 0.1, .crowding = 1.25};

// As PathCost; 0: not known.
struct PathFigures {
  double alpha_us = 0;
  double beta_ns = 0;
  double gamma_ns = 0;
};

// Figure by figure: what the user has told, else what was measured, else kTcpPath.
PathCost path_cost(const PathFigures& told, const PathFigures& measured);

// By the bandwidth-delay product: the power of two in which a chunk's bytes take at least four
// times as long as its message. So filling the pipeline with chunks costs a fifth in messages.
// Between 64 KiB, below which frames cost more than they win, and a frame's payload; 256 KiB for
// kTcpPath. Powers of two, because figures vary a little from one measurement to the next.
uint64_t chunk_bytes_for(const PathCost& cost);

struct ExchangeSize {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  uint64_t bytes = 0;        // of the tensor; kinds that move blocks: of one block
  uint64_t chunk_bytes = 0;  // of one chunk
  uint32_t agents = 2;
  uint32_t world = 2;
};

// `algorithm` fits the kind.
double predicted_us(const ExchangeSize& exchange, Algorithm algorithm, const PathCost& cost);

}  // namespace gradbus
