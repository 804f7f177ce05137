// What compression/codec.h promises, over every row of the registry and some of its options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "compression/error_feedback.h"
#include "compression/payload.h"
#include "compression/random.h"
#include "compression/registry.h"
#include "tests/count_allocations.h"
#include "tests/unit/compression/linear_exchange.h"

namespace gradbus {
namespace {

constexpr size_t kCounts[] = {0, 1, 2, 63, 64, 65, 1000, 4097, 20001};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Besides the defaults: the other branches of codecs whose options change their format.
std::vector<std::string> every_spec() {
  std::vector<std::string> specs;
  for (const CodecRow* row : codec_rows()) specs.emplace_back(row->name);
  for (const char* more : {"fp8:format=e5m2",
                           "int8:rounding=stochastic",
                           "int4:rounding=stochastic",
                           "qsgd:levels=1",
                           "qsgd:levels=7",
                           "qsgd:norm=max",
                           "terngrad:bound=0",
                           "topk:ratio=1",
                           "topk:ratio=0.3",
                           "topk:values=fp16",
                           "topk:values=bf16",
                           "randk:ratio=0.3",
                           "dgc:ratio=0.3",
                           "threshold:value=0",
                           "rows:dim=1",
                           "rows:dim=7",
                           "rows:dim=64",
                           "rows:dim=100000",
                           "rows:dim=64,values=fp16",
                           "rows:dim=3000,values=bf16",
                           "rows:dim=7,entropy=zstd",
                           "efsignsgd:block=0",
                           "onebit:block=0",
                           "blocktopk:block=64",
                           "qsgd:levels=7,entropy=zstd",
                           "topk:entropy=zstd",
                           "onebit:entropy=zstd"})
    specs.emplace_back(more);
  return specs;
}

std::vector<std::string> specs_where(bool (*wanted)(const CodecRow&)) {
  std::vector<std::string> specs = every_spec();
  std::erase_if(specs, [&](const std::string& spec) {
    return !wanted(*parse_compression(spec).value().codec);
  });
  return specs;
}

std::vector<std::string> payload_specs() {
  return specs_where([](const CodecRow& row) { return row.make != nullptr; });
}
std::vector<std::string> unbiased_specs() {
  return specs_where([](const CodecRow& row) {
    return row.make != nullptr && row.traits.unbiased && !row.traits.lossless;
  });
}
std::vector<std::string> linear_specs() {
  return specs_where([](const CodecRow& row) { return row.make_linear != nullptr; });
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

std::vector<float> normal(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

class CodecContract : public testing::TestWithParam<std::string> {
 protected:
  CompressionSpec spec() const { return parse_compression(GetParam()).take(); }
  std::unique_ptr<Codec> make(size_t count) const {
    const CompressionSpec chosen = spec();
    return make_codec(chosen, {.count_max = count});
  }

  // In memory of exactly its size, so that a sanitizer sees a byte too far.
  static std::vector<std::byte> encode(Codec& codec, const EncodeInput& input) {
    std::vector<std::byte> room(codec.payload_bytes_max(input.count()));
    const size_t bytes = codec.encode(input, room);
    EXPECT_LE(bytes, room.size());
    return {room.begin(), room.begin() + static_cast<ptrdiff_t>(bytes)};
  }
  static std::vector<float> decode(const Codec& codec, std::span<const std::byte> payload,
                                   size_t count) {
    std::vector<float> values(count, 7.0F);
    codec.decode(payload, 1, values);
    return values;
  }
};

class UnbiasedCodec : public CodecContract {};

TEST_P(CodecContract, WhatItWritesItReads) {
  for (const size_t count : kCounts) {
    const auto codec = make(count);
    const std::vector<float> gradient = normal(count, 1);
    const auto payload = encode(*codec, {.gradient = gradient, .seed = 5});
    ASSERT_TRUE(codec->check(payload, count).ok())
        << count << ": " << codec->check(payload, count).message();
    const std::vector<float> decoded = decode(*codec, payload, count);
    std::vector<float> sum(count, 1.0F);
    codec->accumulate(payload, -0.5F, sum);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(std::isfinite(decoded[i])) << count << " element " << i;
      ASSERT_NEAR(sum[i], 1.0F - 0.5F * decoded[i], 1e-5 * (1 + std::abs(decoded[i])));
    }
  }
}

// Expect: what is sent again and again of the difference to a vector brings a view of it nearer,
// and never takes it farther away, where contracts() says so; else it does not for this small
// vector.
TEST_P(CodecContract, DifferencesShrinkWhereItContracts) {
  constexpr size_t kCount = 4096;
  const auto codec = make(kCount);
  std::vector<float> wanted = normal(kCount, 21);
  for (float& value : wanted) value *= 0.01F;
  std::vector<float> view(kCount), difference = wanted;
  const auto distance = [&] {
    double sum = 0;
    for (const float value : difference) sum += double{value} * value;
    return std::sqrt(sum);
  };
  const double first = distance();
  bool grew = false;
  for (uint64_t round = 1; round <= 40; ++round) {
    const double before = distance();
    const auto payload =
        encode(*codec, {.gradient = difference, .seed = mix_u64(round), .round = round});
    codec->accumulate(payload, 1, view);
    for (size_t i = 0; i < kCount; ++i) difference[i] = wanted[i] - view[i];
    grew = grew || distance() > before + 1e-6 * first;
  }
  if (contracts(spec())) {
    EXPECT_FALSE(grew);
    EXPECT_LT(distance(), 0.95 * first);
  } else {
    EXPECT_TRUE(grew) << distance() / first;
  }
}

TEST_P(CodecContract, SameInputAndSeedSameBytes) {
  const std::vector<float> gradient = normal(5000, 2);
  const EncodeInput input{.gradient = gradient, .seed = 9};
  EXPECT_EQ(encode(*make(5000), input), encode(*make(6000), input));
}

// Sent + residual = gradient + decay * residual before.
TEST_P(CodecContract, TheResidualKeepsWhatIsNotSent) {
  for (const size_t count : kCounts) {
    const auto codec = make(count);
    std::vector<float> residual = normal(count, 3);
    for (uint32_t round = 1; round <= 3; ++round) {
      const std::vector<float> gradient = normal(count, 10 + round);
      const std::vector<float> before = residual;
      const auto payload = encode(*codec, {.gradient = gradient,
                                           .residual = residual,
                                           .decay = 0.5F,
                                           .seed = round,
                                           .round = round});
      const std::vector<float> decoded = decode(*codec, payload, count);
      for (size_t i = 0; i < count; ++i) {
        const float v = gradient[i] + 0.5F * before[i];
        ASSERT_NEAR(decoded[i] + residual[i], v, 1e-5 * (1 + std::abs(decoded[i])))
            << count << " element " << i << " round " << round;
      }
    }
  }
}

TEST_P(CodecContract, AnEmptyGradientIsZeros) {
  const std::vector<float> zeros(3000);
  std::vector<float> a = normal(3000, 4);
  std::vector<float> b = a;
  const auto with = encode(*make(3000), {.gradient = zeros, .residual = a, .seed = 1});
  const auto without = encode(*make(3000), {.residual = b, .seed = 1});
  EXPECT_EQ(with, without);
  EXPECT_EQ(a, b);
}

TEST_P(CodecContract, NotFiniteIsSeenAndTheResidualStaysFinite) {
  for (const float bad : {kNan, kInf, -kInf}) {
    for (const size_t at : {size_t{0}, size_t{1500}, size_t{4999}}) {
      const auto codec = make(5000);
      std::vector<float> gradient = normal(5000, 5);
      gradient[at] = bad;
      std::vector<float> residual = normal(5000, 6);
      const auto payload = encode(*codec, {.gradient = gradient, .residual = residual, .seed = 1});
      ASSERT_TRUE(codec->check(payload, 5000).ok()) << codec->check(payload, 5000).message();
      const auto finite = [](float value) { return std::isfinite(value); };
      const std::vector<float> decoded = decode(*codec, payload, 5000);
      EXPECT_FALSE(std::all_of(decoded.begin(), decoded.end(), finite)) << bad << " at " << at;
      EXPECT_TRUE(std::all_of(residual.begin(), residual.end(), finite)) << bad << " at " << at;
    }
  }
}

// The mean over N seeds is v to 6 standard errors: one element in 10^9 would miss that by chance.
// An element that is rounded up once in N seeds shows no deviation at all; 20 steps over N is what
// chances below e^-20 add (Poisson).
TEST_P(UnbiasedCodec, MeansWhatItWasGiven) {
  constexpr size_t kElements = 600;
  constexpr int kSeeds = 2000;
  const auto codec = make(kElements);
  const std::vector<float> gradient = normal(kElements, 7);
  std::vector<double> sum(kElements);
  std::vector<double> squares(kElements);
  std::vector<double> steps(kElements);
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto payload =
        encode(*codec, {.gradient = gradient, .seed = mix_u64(static_cast<uint64_t>(seed))});
    const std::vector<float> decoded = decode(*codec, payload, kElements);
    for (size_t i = 0; i < kElements; ++i) {
      const double error = static_cast<double>(decoded[i]) - gradient[i];
      sum[i] += error;
      squares[i] += error * error;
      steps[i] = std::max(steps[i], std::abs(error));
    }
  }
  double step = 0;
  for (size_t i = 0; i < kElements; ++i) step = std::max(step, steps[i]);
  double total = 0;
  double variance = 0;
  for (size_t i = 0; i < kElements; ++i) {
    const double deviation = std::sqrt(squares[i] / kSeeds) + 1e-6 * std::abs(gradient[i]) + 1e-9;
    EXPECT_LE(std::abs(sum[i] / kSeeds), 6 * deviation / std::sqrt(kSeeds) + 20 * step / kSeeds)
        << "element " << i;
    total += sum[i] * (gradient[i] < 0 ? -1 : 1);
    variance += squares[i];
  }
  // Towards or away from zero, all together.
  EXPECT_LE(std::abs(total), 6 * std::sqrt(variance) + 1e-3);
}

TEST_P(CodecContract, EncodingAndDecodingAllocateNothing) {
  const auto codec = make(20000);
  const std::vector<float> gradient = normal(20000, 8);
  std::vector<float> residual(20000);
  std::vector<std::byte> room(codec->payload_bytes_max(20000));
  const uint64_t before = test::allocations();
  for (uint64_t round = 1; round <= 3; ++round) {
    const size_t bytes = codec->encode(
        {.gradient = gradient, .residual = residual, .seed = round, .round = round}, room);
    codec->accumulate(std::span(room).first(bytes), 1, residual);
    codec->clear_sent(std::span(room).first(bytes), residual);
  }
  EXPECT_EQ(test::allocations() - before, 0u);
}

// ---- hostile payloads

// Whatever passes check() is safe to use; with a sanitizer a byte too far is seen.
void use_if_allowed(const Codec& codec, std::span<const std::byte> payload, size_t count) {
  const std::vector<std::byte> exact(payload.begin(), payload.end());
  if (!codec.check(exact, count).ok()) return;
  std::vector<float> values(count);
  codec.accumulate(exact, 1, values);
  codec.decode(exact, 1, values);
  codec.clear_sent(exact, values);
}

TEST_P(CodecContract, DamagedPayloadsAreRefusedOrHarmless) {
  std::mt19937 random(11);
  for (const size_t count : {size_t{1}, size_t{65}, size_t{1000}}) {
    const auto codec = make(count);
    const std::vector<float> gradient = normal(count, 9);
    const auto payload = encode(*codec, {.gradient = gradient, .seed = 4});
    for (int i = 0; i < 3000; ++i) {
      auto damaged = payload;
      for (uint32_t flips = 1 + random() % 3; flips > 0; --flips)
        damaged[random() % damaged.size()] = static_cast<std::byte>(random());
      use_if_allowed(*codec, damaged, count);
    }
    for (size_t bytes = 0; bytes < std::min<size_t>(payload.size(), 300); ++bytes)
      EXPECT_FALSE(codec->check(std::span(payload).first(bytes), count).ok()) << bytes;
    auto longer = payload;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(codec->check(longer, count).ok());
    EXPECT_FALSE(codec->check(payload, count + 1).ok());
    EXPECT_FALSE(codec->check(payload, count - 1).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, CodecContract, testing::ValuesIn(payload_specs()), test_name);
INSTANTIATE_TEST_SUITE_P(Registry, UnbiasedCodec, testing::ValuesIn(unbiased_specs()), test_name);

// ---- codecs that are summed on their way

class LinearContract : public testing::TestWithParam<std::string> {
 protected:
  static constexpr uint32_t kAgents = 3;
  using Floats = LinearExchange::Floats;

  LinearExchange make(size_t count) const {
    CodecShape shape{.count_max = count};
    const bool matrix = parse_compression(GetParam()).value().codec->traits.needs_matrix;
    if (matrix && count % 10 == 0) shape.rows = count / 10, shape.columns = 10;
    return {GetParam(), kAgents, shape};
  }
  static std::vector<Floats> gradients(size_t count) {
    std::vector<Floats> all;
    for (uint32_t agent = 0; agent < kAgents; ++agent) all.push_back(normal(count, 20 + agent));
    return all;
  }
  static bool all_finite(const Floats& values) {
    return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
  }
};

TEST_P(LinearContract, ResultAndResidualsKeepTheSum) {
  for (const size_t count : {size_t{1}, size_t{65}, size_t{1000}, size_t{20001}}) {
    LinearExchange exchange = make(count);
    const std::vector<Floats> given = gradients(count);
    for (int round = 1; round <= 3; ++round) {
      std::vector<double> expected(count);
      std::vector<double> magnitude(count, 1);
      for (uint32_t agent = 0; agent < kAgents; ++agent) {
        for (size_t i = 0; i < count; ++i) {
          const double v = static_cast<double>(given[agent][i]) + exchange.residual(agent)[i];
          expected[i] += v;
          magnitude[i] += std::abs(v);
        }
      }
      const Floats result = exchange.run(given);
      for (size_t i = 0; i < count; ++i) {
        double kept = result[i];
        for (uint32_t agent = 0; agent < kAgents; ++agent) kept += exchange.residual(agent)[i];
        // Each of two sums of bf16 rounds by half a unit of the last place, 2^-8 of it at most.
        ASSERT_NEAR(kept, expected[i], 2 * 0x1p-8 * magnitude[i])
            << count << " element " << i << " round " << round;
      }
    }
  }
}

TEST_P(LinearContract, NotFiniteIsSeenAndTheResidualsStayFinite) {
  for (const float bad : {kNan, kInf}) {
    LinearExchange exchange = make(1000);
    std::vector<Floats> given = gradients(1000);
    given[1][500] = bad;
    EXPECT_FALSE(all_finite(exchange.run(given)));
    for (uint32_t agent = 0; agent < kAgents; ++agent)
      EXPECT_TRUE(all_finite(exchange.residual(agent))) << "agent " << agent;
    given[1][500] = 1;
    EXPECT_TRUE(all_finite(exchange.run(given)));
  }
}

TEST_P(LinearContract, ARoundAllocatesNothing) {
  LinearExchange exchange = make(20000);
  LinearCodec& codec = exchange.codec(0);
  const Floats gradient = normal(20000, 8);
  Floats result(20000);
  const EncodeInput input{.gradient = gradient, .residual = exchange.residual(0)};
  std::vector<std::vector<std::byte>> vectors;
  for (uint32_t round = 0; round < codec.rounds(); ++round)
    vectors.emplace_back(codec.vector_elements(round) * dtype_bytes(codec.dtype(round)));
  const uint64_t before = test::allocations();
  codec.project(0, input, 1, {}, vectors[0]);
  if (codec.rounds() > 1) codec.project(1, input, 1, vectors[0], vectors[1]);
  codec.finish(input, 1, 1, vectors.back(), 1, result);
  EXPECT_EQ(test::allocations() - before, 0u);
}

INSTANTIATE_TEST_SUITE_P(Registry, LinearContract, testing::ValuesIn(linear_specs()), test_name);

}  // namespace
}  // namespace gradbus
