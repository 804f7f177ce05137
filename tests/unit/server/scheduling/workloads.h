// Small models for the tests of schedules: by hand, and made up at random.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "server/scheduling/simulator.h"
#include "server/scheduling/workload.h"

namespace gradbus::scheduling::test {

struct LayerRow {
  uint64_t bytes;  // a multiple of 4
  double forward_us;
  double backward_us;
};

inline Workload make_workload(const std::vector<LayerRow>& rows) {
  Workload workload{.name = "test", .layers = {}, .backward_order = reverse_order(rows.size())};
  for (const LayerRow& row : rows)
    workload.layers.push_back({.name = "layer" + std::to_string(workload.layers.size()),
                               .elements = row.bytes / 4,
                               .forward_us = row.forward_us,
                               .backward_us = row.backward_us});
  return workload;
}

// An all-reduce of m bytes takes 2 alpha + m * beta: two nodes in a ring.
inline Cluster two_nodes(double alpha_us, double beta_ns) {
  Cluster cluster;
  cluster.network = {.nodes = 2,
                     .alpha_us = alpha_us,
                     .beta_ns = beta_ns,
                     .gamma_ns = 0,
                     .algorithm = Algorithm::kRing};
  return cluster;
}

inline Workload random_workload(std::mt19937_64& random, size_t layers) {
  std::vector<LayerRow> rows;
  for (size_t i = 0; i < layers; ++i)
    rows.push_back({4 * (random() % (uint64_t{1} << (random() % 21))),
                    static_cast<double>(random() % 400), static_cast<double>(random() % 800)});
  rows.back().bytes += 4;
  rows.back().backward_us += 1;
  Workload workload = make_workload(rows);
  if (random() % 4 == 0)
    std::shuffle(workload.backward_order.begin(), workload.backward_order.end(), random);
  return workload;
}

inline Cluster random_cluster(std::mt19937_64& random) {
  Cluster cluster;
  cluster.network = {.nodes = static_cast<uint32_t>(1 + random() % 20),
                     .alpha_us = static_cast<double>(random() % 100),
                     .beta_ns = 0.08 * static_cast<double>(1 + random() % 100)};
  const char* const codecs[] = {"none", "fp16", "topk", "efsignsgd:runs_on=compute,encode_us=90"};
  cluster.codec = parse_codec_cost(codecs[random() % 4]).take();
  return cluster;
}

}  // namespace gradbus::scheduling::test
