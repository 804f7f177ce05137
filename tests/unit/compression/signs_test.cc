#include "compression/kernels/sign/signs.h"

#include <gmock/gmock.h>

#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/unit/compression/each_target.h"

namespace gradbus {
namespace {

using Bytes = std::vector<std::byte>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::byte kCanary{0xa5};
constexpr size_t kCounts[] = {0, 1, 3, 7, 8, 15, 16, 17, 63, 64, 65, 127, 128, 200, 1000, 4099};

// Mixed signs and sizes, zeros of both signs, subnormals; every 97th of `odd` when there is one.
std::vector<float> numbers(size_t count, uint32_t seed, float odd = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = normal(random) * std::exp2(static_cast<float>(random() % 20));
    if (i % 13 == 5) values[i] = i % 2 == 0 ? 0.0F : -0.0F;
    if (i % 17 == 3) values[i] *= 1e-41F;
    if (odd != 1 && i % 97 == 50) values[i] = odd;
  }
  return values;
}

template <typename T>
void expect_same_bits(const std::vector<T>& got, const std::vector<T>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(T)), 0) << "at " << i;
}

void expect_same_sums(const SignSums& got, const SignSums& want) {
  EXPECT_EQ(got.negatives, want.negatives);
  EXPECT_EQ(got.finite(), want.finite());
  if (!want.finite()) return;  // which NaN is the processor's choice
  EXPECT_EQ(std::bit_cast<uint64_t>(got.below), std::bit_cast<uint64_t>(want.below));
  EXPECT_EQ(std::bit_cast<uint64_t>(got.rest), std::bit_cast<uint64_t>(want.rest));
}

// ---- the definition

// 1 - 2 + 0 - 4: sums -6 and 1; bits 1 and 3. -0 and NaN are not below 0.
TEST(SignsScalar, PacksByHand) {
  const float x[] = {1, -2, -0.0F, -4};
  Bytes words(8);
  const SignSums sums = pack_signs_scalar({.gradient = x, .count = 4}, words.data());
  EXPECT_EQ(words[0], std::byte{0b1010});
  EXPECT_EQ(words[1], std::byte{0});
  EXPECT_EQ(sums.below, -6);
  EXPECT_EQ(sums.rest, 1);
  EXPECT_EQ(sums.negatives, 2u);
  EXPECT_TRUE(sums.finite());
}

TEST(SignsScalar, SaysWhatIsNotFinite) {
  for (const float odd : {kInf, -kInf, std::nanf("")}) {
    const float x[] = {1, odd, -1};
    Bytes words(8);
    EXPECT_FALSE(pack_signs_scalar({.gradient = x, .count = 3}, words.data()).finite()) << odd;
  }
}

// x = g + 2 k = {1 + 4, 2 - 6} = {5, -4}, less levels 3 and -1: {2, -3}.
TEST(SignsScalar, KeepsByHand) {
  const float gradient[] = {1, 2};
  float kept[] = {2, -3};
  keep_rest_scalar({.gradient = gradient, .kept = kept, .decay = 2, .count = 2}, {-1, 3}, kept);
  EXPECT_THAT(kept, testing::ElementsAre(2, -3));
}

TEST(SignsScalar, UnpacksByHand) {
  const Bytes words{std::byte{0b101}, {}, {}, {}, {}, {}, {}, {}};
  float values[] = {1, 2, 3, 4};
  add_signs_scalar(words.data(), 4, {-10, 20}, values);
  EXPECT_THAT(values, testing::ElementsAre(-9, 22, -7, 24));
  put_signs_scalar(words.data(), 4, {-10, 20}, values);
  EXPECT_THAT(values, testing::ElementsAre(-10, 20, -10, 20));
}

// ---- every target does the same

// Which of gradient and kept there are.
struct Parts {
  bool gradient;
  bool kept;
};

void compare(size_t count, size_t offset, Parts parts, float odd) {
  SCOPED_TRACE(testing::Message() << count << " elements at " << offset << ", gradient "
                                  << parts.gradient << ", kept " << parts.kept << ", odd " << odd);
  const std::vector<float> gradient = numbers(offset + count, 1, odd);
  std::vector<float> kept = numbers(offset + count, 2);
  SignBlock block{.decay = 0.7F, .count = count};
  if (parts.gradient) block.gradient = gradient.data() + offset;
  if (parts.kept) block.kept = kept.data() + offset;

  Bytes got(offset + 8 * sign_words(count) + 8, kCanary);
  Bytes want = got;
  const SignSums got_sums = pack_signs(block, got.data() + offset);
  expect_same_sums(got_sums, pack_signs_scalar(block, want.data() + offset));
  expect_same_bits(got, want);
  if (odd != 1) return;

  std::vector<float> wanted = kept;
  keep_rest_scalar(block, {-0.25F, 3}, wanted.data() + offset);
  keep_rest(block, {-0.25F, 3}, kept.data() + offset);
  expect_same_bits(kept, wanted);
}

TEST(Signs, PacksAndKeepsAlikeOnEveryTarget) {
  on_each_target([] {
    for (const size_t count : kCounts)
      for (const size_t offset : {0, 1, 3})
        for (const Parts parts : {Parts{true, false}, Parts{false, true}, Parts{true, true}})
          compare(count, offset, parts, 1);
  });
}

TEST(Signs, SeesWhatIsNotFiniteOnEveryTarget) {
  on_each_target([] {
    for (const float odd : {kInf, -kInf, std::nanf(""), -std::nanf("")})
      for (const size_t count : {51, 64, 131, 1000}) compare(count, 1, {true, true}, odd);
  });
}

TEST(Signs, UnpacksAlikeOnEveryTarget) {
  const SignLevels levels{-0.75F, 1.5F};
  on_each_target([&] {
    for (const size_t count : kCounts) {
      for (const size_t offset : {0, 1, 5}) {
        SCOPED_TRACE(testing::Message() << count << " elements at " << offset);
        const std::vector<float> x = numbers(count, 3);
        Bytes words(offset + 8 * sign_words(count));
        pack_signs_scalar({.gradient = x.data(), .count = count}, words.data() + offset);
        std::vector<float> got = numbers(offset + count + 1, 4);
        std::vector<float> want = got;
        add_signs(words.data() + offset, count, levels, got.data() + offset);
        add_signs_scalar(words.data() + offset, count, levels, want.data() + offset);
        expect_same_bits(got, want);
        put_signs(words.data() + offset, count, levels, got.data() + offset);
        put_signs_scalar(words.data() + offset, count, levels, want.data() + offset);
        expect_same_bits(got, want);
      }
    }
  });
}

}  // namespace
}  // namespace gradbus
