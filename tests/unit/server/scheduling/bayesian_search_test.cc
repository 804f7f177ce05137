// The search finds the optimum of known cost surfaces within 20 samples: median of 50 seeds.
#include "server/scheduling/tuner/bayesian_search.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace gradbus::scheduling {
namespace {

using ::testing::HasSubstr;

constexpr int kSeeds = 50;
constexpr int kSamples = 20;

struct Surface {
  const char* name;
  std::vector<Dimension> dimensions;
  double (*cost)(const std::vector<double>&);
  double least;        // by hand
  double close_to_it;  // a cost that counts as found
};

const Dimension kBucketMiB{"bucket_mib", 1, 256, true};
const Dimension kChunkKiB{"chunk_kib", 16, 4096, true};

// A bucket of b MiB: startups cost 64 / b, what is not hidden costs b. Least at b = 8: 100 + 16.
double startups_and_tail(const std::vector<double>& point) {
  return 100 + 64 / point[0] + point[0];
}

// Least at a bucket of 20 MiB and a chunk of 300 KiB: 50.
double valley(const std::vector<double>& point) {
  const double bucket = std::log2(point[0] / 20);
  const double chunk = std::log2(point[1] / 300);
  return 50 + 2 * bucket * bucket + chunk * chunk + bucket * chunk;
}

// Flat to the left of its least place, 0.3, steep to the right: 0.
double kink(const std::vector<double>& point) {
  return point[0] < 0.3 ? 0.3 - point[0] : 4 * (point[0] - 0.3);
}

// Forrester et al. 2008: a local and a global optimum. Least at 0.757249: -6.020740.
double forrester(const std::vector<double>& point) {
  const double x = point[0];
  return (6 * x - 2) * (6 * x - 2) * std::sin(12 * x - 4);
}

std::vector<Surface> surfaces() {
  return {{"startups and tail", {kBucketMiB}, startups_and_tail, 116, 116 * 1.005},
          {"valley", {kBucketMiB, kChunkKiB}, valley, 50, 50 * 1.01},
          {"kink", {{"x", 0, 1, false}}, kink, 0, 0.01},
          {"forrester", {{"x", 0, 1, false}}, forrester, -6.020740, -6.020740 * 0.99}};
}

double found(const Surface& surface, uint64_t seed) {
  BayesianSearch search(surface.dimensions, {.seed = seed});
  for (int i = 0; i < kSamples; ++i) {
    const std::vector<double> point = search.ask();
    EXPECT_TRUE(search.tell(point, surface.cost(point)).ok());
  }
  return search.best()->cost;
}

TEST(BayesianSearch, FindsKnownOptimaWithinTwentySamples) {
  for (const Surface& surface : surfaces()) {
    std::vector<double> costs;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) costs.push_back(found(surface, seed));
    std::sort(costs.begin(), costs.end());
    EXPECT_LE(costs[kSeeds / 2], surface.close_to_it) << surface.name;
    EXPECT_GE(costs.front(), surface.least - 1e-5) << surface.name;
  }
}

TEST(BayesianSearch, TheSameSeedAsksTheSameQuestions) {
  BayesianSearch one({kBucketMiB, kChunkKiB}, {.seed = 9});
  BayesianSearch other({kBucketMiB, kChunkKiB}, {.seed = 9});
  for (int i = 0; i < 8; ++i) {
    const std::vector<double> point = one.ask();
    ASSERT_EQ(point, other.ask());
    ASSERT_TRUE(one.tell(point, valley(point)).ok());
    ASSERT_TRUE(other.tell(point, valley(point)).ok());
  }
}

TEST(BayesianSearch, AsksWithinTheBounds) {
  BayesianSearch search({kBucketMiB, {"x", -3, -1, false}}, {.seed = 3});
  for (int i = 0; i < 12; ++i) {
    const std::vector<double> point = search.ask();
    ASSERT_TRUE(point[0] >= 1 && point[0] <= 256 && point[1] >= -3 && point[1] <= -1);
    ASSERT_TRUE(search.tell(point, -point[1]).ok());
  }
}

// Expect: with equal costs there is nothing to learn, and nothing breaks.
TEST(BayesianSearch, FlatCostsAreFine) {
  BayesianSearch search({kBucketMiB}, {});
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(search.tell(search.ask(), 5).ok());
  EXPECT_EQ(search.best()->cost, 5);
}

TEST(BayesianSearch, RefusesWhatIsNoMeasurement) {
  BayesianSearch search({kBucketMiB}, {});
  EXPECT_FALSE(search.best().has_value());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(search.tell({8}, nan).message(), HasSubstr("no finite number"));
  EXPECT_THAT(search.tell({0.5}, 1).message(), HasSubstr("bucket_mib is out of bounds"));
  EXPECT_THAT(search.tell({8, 8}, 1).message(), HasSubstr("number of dimensions"));
  EXPECT_EQ(search.measured(), 0u);
}

}  // namespace
}  // namespace gradbus::scheduling
