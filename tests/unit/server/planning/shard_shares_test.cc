// What shards hold: against the paper's closed forms, against a search of a grid, and what comes of
// it in a job. The model is worked out here once more, from who sends what to whom.
#include "server/coordinator/planning/shard_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "proto/placement.h"
#include "server/coordinator/planning/planner.h"
#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::make_spec;
using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Networks = std::vector<ShardNetwork>;

// `beside` of n agents have a shard, and `alone` shards have a network of their own.
Networks cluster_of(int agents, int beside, int alone, double bandwidth = 1) {
  Networks networks;
  for (int i = 0; i < agents; ++i) networks.push_back({1, i < beside ? 1u : 0u, bandwidth});
  for (int i = 0; i < alone; ++i) networks.push_back({0, 1, bandwidth});
  return networks;
}

// Message by message: every agent pushes each network's part there, unless it is its own.
double time_by_hand(const Networks& networks, const std::vector<double>& shares) {
  std::vector<double> sent(networks.size());
  for (size_t from = 0; from < networks.size(); ++from)
    for (uint32_t agent = 0; agent < networks[from].agents; ++agent)
      for (size_t to = 0; to < networks.size(); ++to)
        if (to != from) {
          sent[from] += shares[to];  // the push
          sent[to] += shares[to];    // its answer
        }
  double time = 0;
  for (size_t i = 0; i < networks.size(); ++i)
    time = std::max(time, sent[i] / networks[i].bandwidth);
  return time;
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

TEST(ShardShares, TheModelIsWhatMessagesCost) {
  const Networks networks = {{1, 1, 2}, {1, 0, 1}, {0, 2, 0.5}, {2, 1, 4}};
  const std::vector<double> shares = {0.1, 0, 0.6, 0.3};
  EXPECT_DOUBLE_EQ(round_time(networks, shares), time_by_hand(networks, shares));
}

// Expect: BytePS's formulas, n agents with a shard each and k alone, all as fast, for n > 2; where
// k
// >= n nothing lies beside agents.
TEST(ShardShares, EqualBandwidthsGiveThePapersParts) {
  for (int n = 3; n <= 9; ++n) {
    for (int k = 0; k <= n + 2; ++k) {
      const Networks networks = cluster_of(n, n, k);
      const std::vector<double> shares = best_shares(networks);
      const double all = n * n + k * n - 2 * k;
      const double beside = k >= n ? 0 : (n - k) / all;
      const double alone = k >= n ? 1.0 / k : 2 * (n - 1) / all;
      EXPECT_NEAR(sum(shares), 1, 1e-12);
      for (int i = 0; i < n + k; ++i)
        EXPECT_NEAR(shares[static_cast<size_t>(i)], i < n ? beside : alone, 1e-9)
            << "n " << n << " k " << k << " node " << i;
    }
  }
}

TEST(ShardShares, AllAloneOrAllBesideAreEqual) {
  for (int n = 1; n <= 6; ++n) {
    for (int k = 1; k <= 6; ++k) {
      std::vector<double> shares = best_shares(cluster_of(n, 0, k));
      for (int i = 0; i < k; ++i) EXPECT_EQ(shares[static_cast<size_t>(n + i)], 1.0 / k);
    }
    EXPECT_THAT(best_shares(cluster_of(n, n, 0)), Each(1.0 / n));
  }
}

// Expect: between two agents a shard beside one costs nothing more, so equal parts stay what they
// are as long as the one alone is not the slowest.
TEST(ShardShares, WhatIsAsGoodStaysEqual) {
  EXPECT_THAT(best_shares(cluster_of(2, 2, 1)), Each(1.0 / 3));
  Networks slow = cluster_of(2, 2, 1);
  slow[2].bandwidth = 0.25;  // 2 x / 0.25 <= 1
  EXPECT_THAT(best_shares(slow), ElementsAre(DoubleNear(7.0 / 16, 1e-9), DoubleNear(7.0 / 16, 1e-9),
                                             DoubleNear(1.0 / 8, 1e-9)));
}

TEST(ShardShares, ASlowerShardHoldsLess) {
  Networks networks = cluster_of(3, 0, 3, 1e9);  // in bit/s, as the coordinator has them
  networks[5].bandwidth = 0.5e9;
  EXPECT_THAT(
      std::vector<double>(best_shares(networks)),
      ElementsAre(0, 0, 0, DoubleNear(0.4, 1e-9), DoubleNear(0.4, 1e-9), DoubleNear(0.2, 1e-9)));
}

// Expect: one agent's own shard takes all, for that crosses no network.
TEST(ShardShares, OneAgentKeepsAllBesideIt) {
  EXPECT_THAT(best_shares(cluster_of(1, 1, 2)),
              ElementsAre(DoubleNear(1, 1e-9), DoubleNear(0, 1e-9), DoubleNear(0, 1e-9)));
}

// Of all shares in steps of 1 / grid of the first `left`, the least time.
double least_of_grid(const Networks& networks, std::vector<int>& parts, size_t at, int left,
                     int grid) {
  if (at + 1 == networks.size()) {
    if (left > 0 && networks[at].shards == 0) return 1e9;
    parts[at] = left;
    std::vector<double> shares;
    for (const int part : parts) shares.push_back(static_cast<double>(part) / grid);
    return time_by_hand(networks, shares);
  }
  double least = 1e9;
  for (int part = 0; part <= (networks[at].shards == 0 ? 0 : left); ++part) {
    parts[at] = part;
    least = std::min(least, least_of_grid(networks, parts, at + 1, left - part, grid));
  }
  return least;
}

// Expect: nothing on a fine grid beats what is returned, and the grid comes close to it.
TEST(ShardShares, NothingOfAGridIsBetter) {
  std::mt19937 random(3);
  for (int instance = 0; instance < 300; ++instance) {
    Networks networks(2 + random() % 4);
    for (ShardNetwork& network : networks)
      network = {random() % 3 == 0 ? 0u : 1u + static_cast<uint32_t>(random() % 8 == 0),
                 static_cast<uint32_t>(random() % 3),
                 0.1 + static_cast<double>(random() % 40) / 10};
    networks[0].agents = std::max(1u, networks[0].agents);
    networks[1].shards = std::max(1u, networks[1].shards);
    const std::vector<double> shares = best_shares(networks);
    ASSERT_NEAR(sum(shares), 1, 1e-12);
    for (size_t i = 0; i < networks.size(); ++i) {
      ASSERT_GE(shares[i], 0);
      if (networks[i].shards == 0) {
        ASSERT_EQ(shares[i], 0);
      }
    }
    const double time = round_time(networks, shares);
    std::vector<int> parts(networks.size());
    const double grid = least_of_grid(networks, parts, 0, 24, 24);
    ASSERT_LE(time, grid * (1 + 1e-6) + 1e-12) << instance;
    ASSERT_LE(time, round_time(networks, equal_shares(networks)) * (1 + 1e-12));
  }
}

// ---- patterns

TEST(PlacementPattern, EqualPartsNeedNone) {
  for (const size_t shards : {1, 2, 3, 7, 100})
    EXPECT_THAT(placement_pattern(std::vector<double>(shards, 1.0 / static_cast<double>(shards))),
                IsEmpty());
  EXPECT_THAT(placement_pattern(std::vector<double>{0.3334, 0.3333, 0.3333}), IsEmpty());
}

TEST(PlacementPattern, IsAsShortAsItCanBe) {
  EXPECT_EQ(placement_pattern(std::vector<double>{2.0 / 7, 2.0 / 7, 3.0 / 7}).size(), 7u);
  EXPECT_THAT(placement_pattern(std::vector<double>{0, 1}), ElementsAre(1));
  EXPECT_THAT(placement_pattern(std::vector<double>{0.25, 0.75}), ElementsAre(1, 0, 1, 1));
}

// Expect: in any row of places, also across the pattern's end, a shard has its part of them within
// less than two (Tijdeman: less than one from the start on), and altogether within 1 %.
TEST(PlacementPattern, EveryRowOfPlacesHasTheShares) {
  std::mt19937 random(5);
  for (int instance = 0; instance < 60; ++instance) {
    std::vector<double> shares(2 + random() % 9);
    for (double& share : shares) share = static_cast<double>(random() % 100);
    shares[0] += 1;
    const double all = sum(shares);
    for (double& share : shares) share /= all;
    const std::vector<uint32_t> pattern = placement_pattern(shares);
    if (pattern.empty()) continue;
    ASSERT_LE(pattern.size(), kPlacementEntriesMax);
    const PlacementPattern shared =
        std::make_shared<const std::vector<uint16_t>>(pattern.begin(), pattern.end());
    const auto shards = static_cast<uint32_t>(shares.size());
    std::vector<double> counts(shards);
    for (const uint32_t shard : pattern) ++counts[shard];
    for (uint32_t shard = 0; shard < shards; ++shard) {
      const double part = counts[shard] / static_cast<double>(pattern.size());
      ASSERT_NEAR(part, shares[shard], 0.0101 / shards);
      for (uint32_t tensor = 0; tensor < 5; ++tensor) {
        double held = 0;
        for (uint32_t chunk = 0; chunk < 2 * pattern.size(); ++chunk) {
          held += shard_of(tensor, chunk, shards, shared) == shard ? 1 : 0;
          ASSERT_LT(std::abs(held - part * (chunk + 1)), tensor == 0 ? 1.0 : 2.0);
        }
      }
    }
  }
}

// ---- plans

// Expect: what each shard holds of a tensor is within 6 % of a mean part of its share, from the
// size on that the planner says; small tensors together have the shares, too.
TEST(UnequalShards, PlansKeepThePromise) {
  for (const std::vector<double>& shares :
       {std::vector<double>{2.0 / 7, 2.0 / 7, 3.0 / 7}, std::vector<double>{0.123, 0.456, 0.421},
        std::vector<double>{0.05, 0.25, 0.3, 0.4}}) {
    const std::vector<uint32_t> pattern = placement_pattern(shares);
    const auto shards = static_cast<uint32_t>(shares.size());
    const PlacementPattern shared =
        std::make_shared<const std::vector<uint16_t>>(pattern.begin(), pattern.end());
    const auto held_of = [&](uint32_t tensor, uint64_t count, std::vector<double>& held) {
      const TensorPlan plan = plan_on_shards(make_spec("w", count),
                                             {shards, static_cast<uint32_t>(pattern.size())}, {});
      EXPECT_EQ(plan.algorithm, Algorithm::kShards);
      for (uint64_t first = 0, chunk = 0; first < count; first += plan.chunk_elements, ++chunk)
        held[shard_of(tensor, static_cast<uint32_t>(chunk), shards, shared)] +=
            static_cast<double>(std::min(plan.chunk_elements, count - first));
    };
    for (const uint64_t count : {600'000ull, 1'000'003ull, 4ull << 20, 30'000'000ull}) {
      for (uint32_t tensor = 0; tensor < 20; ++tensor) {
        std::vector<double> held(shards);
        held_of(tensor, count, held);
        for (uint32_t shard = 0; shard < shards; ++shard)
          EXPECT_NEAR(held[shard] / static_cast<double>(count), shares[shard], 0.08 / shards)
              << count << " tensor " << tensor;
      }
    }
    std::vector<double> held(shards);
    for (uint32_t tensor = 0; tensor < 20 * pattern.size(); ++tensor) held_of(tensor, 100, held);
    for (uint32_t shard = 0; shard < shards; ++shard)
      EXPECT_NEAR(held[shard] / sum(held), shares[shard], 0.0101 / shards);
  }
}

// ---- jobs

class PlacedJob : public testing::Test {
 protected:
  void node(uint64_t id, const std::string& address, bool shard, uint64_t bits_per_s = 0) {
    cluster->coordinator.connect(id, cluster->now);
    v1::AgentMessage message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_name((shard ? "shard-" : "agent-") + std::to_string(id % 10));
    hello.set_protocol(kControlProtocol);
    hello.set_shard(shard);
    hello.set_bits_per_s(bits_per_s);
    (*hello.mutable_addresses())["tcp"] = address;
    cluster->send(id, message);
  }
  // Agents 10.., shards 20..; returns what everybody was told.
  v1::JobStarted start(uint32_t agents) {
    cluster->clear();
    for (uint32_t rank = 0; rank < agents; ++rank) cluster->join(10 + rank, "train", rank, agents);
    return cluster->last(10).job_started();
  }
  std::string notes() const {
    std::string text;
    for (const std::string& note : cluster->notes) text += note + "\n";
    return text;
  }

  std::unique_ptr<Cluster> cluster = std::make_unique<Cluster>();
};

// Expect: hosts of addresses say who is beside whom; agents and shards get the same pattern, and
// status and log say what came of it.
TEST_F(PlacedJob, ShardsBesideAgentsHoldLess) {
  for (uint64_t i = 0; i < 3; ++i)
    node(10 + i, "10.0.0." + std::to_string(i) + ":70", false, 1'000'000);
  node(20, "10.0.0.0:71", true);
  node(21, "10.0.0.1:71", true);
  node(22, "10.0.0.9:71", true, 2'000'000);
  const v1::JobStarted started = start(3);
  const auto& pattern = started.placement();
  ASSERT_EQ(pattern.size(), 8);  // 1/8, 1/8, 6/8: 1 + x = 3 (1 - 2 x) / 2
  EXPECT_EQ(std::ranges::count(pattern, 2u), 6);
  for (const uint64_t other : {11, 12, 20, 21, 22})
    EXPECT_THAT(cluster->last(other).job_started().placement(), testing::ElementsAreArray(pattern));
  const v1::JobStatus job = cluster->status("train").jobs(0);
  EXPECT_NEAR(job.shards(0).share(), 1.0 / 8, 1e-9);
  EXPECT_NEAR(job.shards(2).share(), 6.0 / 8, 1e-9);
  EXPECT_EQ(job.shards(1).beside(), "agent-1");
  EXPECT_EQ(job.shards(2).beside(), "");
  EXPECT_THAT(notes(), HasSubstr("shards hold shard-0 12.5 % (beside agent-0), shard-1 12.5 % "
                                 "(beside agent-1), shard-2 75.0 %: so that the busiest network "
                                 "needs 84.4 % of the time that equal parts would"));
}

// Expect: 2/7, 2/7 and 3/7 would win 1 - 27/28 of the time by the model, too little.
TEST_F(PlacedJob, PartsStayEqualWhereLittleIsToBeWon) {
  for (uint64_t i = 0; i < 3; ++i) node(10 + i, "10.0.0." + std::to_string(i) + ":70", false);
  node(20, "10.0.0.0:71", true);
  node(21, "10.0.0.1:71", true);
  node(22, "10.0.0.9:71", true);
  EXPECT_THAT(start(3).placement(), IsEmpty());
  EXPECT_THAT(notes(), HasSubstr("shard-2 33.3 %: equal parts, as good as any for these networks, "
                                 "or nearly so"));
}

// Expect: daemons of several paths are beside each other by the first of them.
TEST_F(PlacedJob, TheFirstOfSeveralPathsCounts) {
  for (uint64_t i = 0; i < 3; ++i)
    node(10 + i, "tcp=10.0.0." + std::to_string(i) + ":70,tcp=10.1.0.1:70", false, 1'000'000);
  node(20, "tcp=10.0.0.0:71,tcp=10.1.0.2:70", true);
  node(21, "tcp=[fd00::1]:71,tcp=10.1.0.3:70", true, 2'000'000);
  start(3);
  EXPECT_EQ(cluster->status("train").jobs(0).shards(0).beside(), "agent-0");
  EXPECT_EQ(cluster->status("train").jobs(0).shards(1).beside(), "");
}

TEST_F(PlacedJob, EqualPartsCanBeHad) {
  CoordinatorOptions options;
  options.equal_shards = true;
  cluster = std::make_unique<Cluster>(options);
  node(10, "10.0.0.1:1", false, 4'000'000);
  node(20, "10.0.0.2:1", true, 4'000'000);
  node(21, "10.0.0.3:1", true, 1'000'000);
  EXPECT_THAT(start(1).placement(), IsEmpty());
  EXPECT_THAT(notes(), HasSubstr("shard-1 50.0 %: equal parts, by --equal-shards"));
}

TEST_F(PlacedJob, EverythingOnOneMachineIsEqual) {
  for (const char* host : {"127.0.0.1", "10.0.0.1", "[::1]", "localhost", "[2001:db8::1]"}) {
    cluster = std::make_unique<Cluster>();
    node(10, std::string(host) + ":70", false);
    node(11, std::string(host) + ":71", false);
    node(20, std::string(host) + ":72", true);
    node(21, std::string(host) + ":73", true);
    EXPECT_THAT(start(2).placement(), IsEmpty()) << host;
    EXPECT_THAT(notes(), HasSubstr("shard-0 50.0 %")) << host;
    EXPECT_THAT(notes(), HasSubstr("equal parts, as good as any")) << host;
  }
}

// Expect: a told bandwidth counts, one that differs by less than a quarter does not, nor one that
// nobody told.
TEST_F(PlacedJob, BandwidthsCountWhereTheyDiffer) {
  constexpr uint64_t kGbit = 1'000'000'000;
  const auto placed = [&](uint64_t agents, uint64_t first, uint64_t second) {
    cluster = std::make_unique<Cluster>();
    node(10, "10.0.0.1:1", false, agents);
    node(11, "10.0.0.2:1", false, agents);
    node(20, "10.0.0.3:1", true, first);
    node(21, "10.0.0.4:1", true, second);
    const v1::JobStarted started = start(2);
    std::vector<uint32_t> pattern(started.placement().begin(), started.placement().end());
    return pattern;
  };
  EXPECT_THAT(placed(kGbit, kGbit, kGbit / 2), testing::UnorderedElementsAre(0, 0, 1));
  EXPECT_THAT(placed(kGbit, kGbit, kGbit * 4 / 5), IsEmpty());
  EXPECT_THAT(placed(0, 0, kGbit / 2), IsEmpty());  // slower than what?
  EXPECT_THAT(placed(0, kGbit, kGbit / 2), testing::UnorderedElementsAre(0, 0, 1));
  EXPECT_THAT(placed(0, 0, UINT64_MAX), IsEmpty());
}

}  // namespace
}  // namespace gradbus
