// The engine may allocate when jobs and tensors are added, but not in a round. The test counts
// every allocation of this program while two agents carry out rounds of every kind.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include "proto/algorithms.h"
#include "tests/count_allocations.h"
#include "tests/unit/data_plane/engine_cluster.h"

namespace gradbus {
namespace {

// Allocations while agents 0 and 1 carry out `round` of every tensor.
uint64_t allocations_of(test::Cluster& cluster, uint32_t tensors, uint64_t round) {
  spdlog::default_logger_raw();  // creates the log's registry before the round
  for (uint32_t tensor = 0; tensor < tensors; ++tensor)
    for (uint32_t agent = 0; agent < 2; ++agent) cluster.post(agent, 0, tensor, round);
  const uint64_t before = test::allocations();
  CompletionRecord record;
  uint32_t done = 0;
  for (const Nanos deadline = monotonic_now() + 30 * kSecond;
       done < 2 * tensors && monotonic_now() < deadline; cluster.turn(1))
    for (uint32_t agent = 0; agent < 2; ++agent)
      while (cluster.nodes[agent]->clients[0].completions.pop(record) == Pop::kRecord) ++done;
  EXPECT_EQ(done, 2 * tensors);
  return test::allocations() - before;
}

TEST(EngineAllocation, NoneInARound) {
  test::Cluster cluster(2, 1);
  uint32_t tensors = 0;
  for (uint32_t kind = 1; is_collective(kind); ++kind) {
    for (uint32_t algorithm = 0; is_algorithm(algorithm); ++algorithm) {
      if (!fits(static_cast<CollectiveKind>(kind), static_cast<Algorithm>(algorithm))) continue;
      TensorSpec spec;
      spec.kind = static_cast<CollectiveKind>(kind);
      spec.op = reduces(spec.kind) ? ReduceOp::kSum : ReduceOp::kNone;
      spec.count = 2000;
      const bool whole = algorithm == static_cast<uint32_t>(Algorithm::kRecursiveDoubling);
      cluster.add_tensor(tensors++, spec, whole ? 2000 : 10, static_cast<Algorithm>(algorithm));
    }
  }
  cluster.turn(50);
  for (uint64_t round = 1; round <= 3; ++round)
    EXPECT_EQ(allocations_of(cluster, tensors, round), 0u) << "round " << round;
}

// Shards do not allocate either, once links are open and every codec has run.
TEST(EngineAllocation, NoneInARoundOfPayloadsThroughShards) {
  test::Cluster cluster({.agents = 2, .shards = 2});
  uint32_t tensors = 0;
  for (const char* mode : {"ps:sync", "ps:sync,replicas=2"}) {
    for (const char* spec : {"fp16", "onebit", "int8", "efsignsgd"}) {
      TensorSpec tensor;
      tensor.count = 2000;
      cluster.add_compressed(tensors++, tensor, 64, Algorithm::kShards,
                             {parse_compression(spec).take(), Communicator::kPs, 512, 0}, mode);
    }
  }
  cluster.turn(50);
  for (uint64_t round = 1; round <= 3; ++round)
    EXPECT_EQ(allocations_of(cluster, tensors, round), 0u) << "round " << round;
}

TEST(EngineAllocation, NoneInARoundOfPayloadsForParameters) {
  test::Cluster cluster({.agents = 2, .shards = 2});
  uint32_t tensors = 0;
  for (const char* mode :
       {"ps:async", "ps:ssp,optimizer=adam", "ps:quorum,q=2", "ps:async,replicas=2"}) {
    for (const char* spec : {"fp16", "onebit", "topk:ratio=0.1", "dgc:ratio=0.1"}) {
      TensorSpec tensor;
      tensor.count = 2000;
      cluster.add_compressed(tensors++, tensor, 64, Algorithm::kShards,
                             {parse_compression(spec).take(), Communicator::kPs, 512, 0}, mode);
    }
  }
  cluster.turn(50);
  for (uint64_t round = 1; round <= 3; ++round)
    EXPECT_EQ(allocations_of(cluster, tensors, round), 0u) << "round " << round;
}

}  // namespace
}  // namespace gradbus
