// What is collected of a block, on every SIMD target: against a filter of what the memory's own
// kernel leaves, and against the scalar form, bit for bit.
#include "compression/kernels/select/collect.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/unit/compression/each_target.h"

namespace gradbus {
namespace {

constexpr size_t kCounts[] = {0, 1, 15, 16, 17, 63, 64, 65, 200, 1025, 2048};

std::vector<float> normal(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

struct Parts {
  std::vector<float> gradient = {};
  std::vector<float> kept = {};
  std::vector<float> momentum = {};

  CollectBlock block(size_t count, const MomentumStep& step) {
    const auto data = [](std::vector<float>& values) {
      return values.empty() ? nullptr : values.data();
    };
    return {
        .of = {.gradient = data(gradient), .kept = data(kept), .decay = step.decay, .count = count},
        .momentum = data(momentum),
        .step = step,
        .first = 1000};
  }
};

struct List {
  explicit List(size_t count) : indices(count + kCollectSlack), values(count + kCollectSlack) {}
  void cut(size_t found) {
    indices.resize(found);
    values.resize(found);
  }
  std::vector<uint32_t> indices;
  std::vector<float> values;
};

// By the definition of momentum.h and a loop over all elements.
void expect_collected(Parts parts, size_t count, const MomentumStep& step, CollectKeys keys,
                      bool few) {
  std::vector<float> v = parts.gradient.empty() ? std::vector<float>(count) : parts.gradient;
  std::vector<float> m = parts.momentum;
  if (!parts.momentum.empty()) {
    v = parts.kept;
    accumulate_momentum_scalar(step, parts.gradient, m, v);
  } else {
    for (size_t i = 0; i < parts.kept.size(); ++i) v[i] += step.decay * parts.kept[i];
  }
  List want(0), got(count);
  want.cut(0);
  std::vector<float> left = v;
  for (size_t i = 0; i < count; ++i) {
    if (magnitude_key(v[i]) >= keys.clear_from) left[i] = 0;
    if (magnitude_key(v[i]) < keys.from) continue;
    want.indices.push_back(static_cast<uint32_t>(1000 + i));
    want.values.push_back(v[i]);
  }
  CollectBlock block = parts.block(count, step);
  block.few = few;
  const Collected done = collect_block(block, keys, got.indices.data(), got.values.data());
  ASSERT_EQ(done.taken, count);
  got.cut(done.found);
  EXPECT_EQ(got.indices, want.indices);
  EXPECT_EQ(got.values, want.values);
  EXPECT_EQ(parts.kept, parts.kept.empty() ? parts.kept : left);
  EXPECT_EQ(parts.momentum, m);
}

void expect_collected_of_any(size_t count, CollectKeys keys, bool few) {
  const MomentumStep step{.momentum = 0.9F, .clip = 0.7F, .decay = 0.5F};
  MomentumStep nesterov = step;
  nesterov.nesterov = true;
  Parts parts{.gradient = normal(count, 1)};
  expect_collected(parts, count, step, keys, few);
  parts.kept = normal(count, 2);
  expect_collected(parts, count, step, keys, few);
  expect_collected({.kept = parts.kept}, count, step, keys, few);
  parts.momentum = normal(count, 3);
  expect_collected(parts, count, step, keys, few);
  expect_collected(parts, count, nesterov, keys, few);
}

TEST(Collect, ListsWhatIsLargeOnEveryTarget) {
  constexpr CollectKeys kKeys[] = {{},
                                   {magnitude_key(2), magnitude_key(2)},
                                   {magnitude_key(1), magnitude_key(1.5F)},
                                   {kKeyMax + 1}};
  on_each_target([&] {
    for (const size_t count : kCounts) {
      SCOPED_TRACE(count);
      for (const CollectKeys keys : kKeys) {
        for (const bool few : {false, true}) expect_collected_of_any(count, keys, few);
      }
    }
  });
}

// 70 is in the second word of 64: it and what follows are left as they were.
TEST(Collect, StopsInFrontOfAWordThatIsNotFinite) {
  on_each_target([&] {
    for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      Parts parts{.gradient = std::vector<float>(200, 1),
                  .kept = std::vector<float>(200, 2),
                  .momentum = std::vector<float>(200, 4)};
      parts.gradient[70] = bad;
      List got(200);
      const MomentumStep step{.momentum = 0.5F};  // m = 3, v = 5
      const Collected done = collect_block(parts.block(200, step), {.from = magnitude_key(5)},
                                           got.indices.data(), got.values.data());
      EXPECT_EQ(done.taken, 64u);
      EXPECT_EQ(done.found, 64u);
      for (size_t i = 0; i < 200; ++i) {
        EXPECT_EQ(parts.kept[i], i < 64 ? 5 : 2) << i;
        EXPECT_EQ(parts.momentum[i], i < 64 ? 3 : 4) << i;
      }
    }
  });
}

// A sum that overflows is not finite either, wherever in the partition: 130 is in the last, partial
// word.
TEST(Collect, SeesSumsThatOverflow) {
  on_each_target([&] {
    for (const size_t place : {size_t{0}, size_t{130}}) {
      Parts parts{.gradient = std::vector<float>(131, 1), .kept = std::vector<float>(131, 1)};
      parts.gradient[place] = parts.kept[place] = 3e38F;
      List got(131);
      const Collected done =
          collect_block(parts.block(131, {}), {}, got.indices.data(), got.values.data());
      EXPECT_EQ(done.taken, place / 64 * 64);
      EXPECT_EQ(parts.kept[place], 3e38F);
    }
  });
}

TEST(Collect, KeepsWhatIsLargeOfAList) {
  on_each_target([&] {
    for (const size_t count : kCounts) {
      const std::vector<float> values = normal(count, 4);
      for (const uint32_t from : {0u, magnitude_key(0.5F), magnitude_key(2), kKeyMax}) {
        List got(0), want(0);
        got.cut(0);
        want.cut(0);
        for (size_t i = 0; i < count; ++i) {
          got.indices.push_back(static_cast<uint32_t>(7 * i));
          got.values.push_back(values[i]);
          if (magnitude_key(values[i]) < from) continue;
          want.indices.push_back(static_cast<uint32_t>(7 * i));
          want.values.push_back(values[i]);
        }
        got.cut(keep_listed(from, count, got.indices.data(), got.values.data()));
        EXPECT_EQ(got.indices, want.indices);
        EXPECT_EQ(got.values, want.values);
      }
    }
  });
}

}  // namespace
}  // namespace gradbus
