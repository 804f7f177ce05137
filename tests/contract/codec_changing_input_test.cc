// A trainer may write to a gradient that it has given away, by mistake or to do harm. Codecs read
// that memory while it changes. They must stay inside their memory, and what they write must be a
// payload that every agent can read: at worst its values are nonsense. Every row of the registry,
// with every memory, while another thread writes into the gradient.
//
// The races are meant, so ThreadSanitizer does not get this program (tests/add_test.cmake).
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "compression/error_feedback.h"
#include "compression/random.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

constexpr uint32_t kAgents = 2;

// Besides the defaults: what chooses other loops.
constexpr const char* kMoreSpecs[] = {"topk:ratio=0.3",
                                      "topk:ratio=1",
                                      "topk:values=fp16",
                                      "dgc:ratio=0.3",
                                      "dgc:values=bf16",
                                      "randk:ratio=0.7",
                                      "randk:values=fp16",
                                      "threshold:value=0.5",
                                      "threshold:value=0",
                                      "threshold:values=fp16",
                                      "rows:dim=7",
                                      "rows:dim=3000,values=bf16",
                                      "int8:rounding=stochastic",
                                      "int4:bucket=0",
                                      "qsgd:levels=1",
                                      "qsgd:levels=7,bucket=0",
                                      "terngrad:bound=0",
                                      "efsignsgd:block=0",
                                      "onebit:block=0",
                                      "blocktopk:block=64",
                                      "topk:entropy=zstd",
                                      "qsgd:levels=7,entropy=zstd"};

std::vector<std::string> every_spec() {
  std::vector<std::string> names(std::begin(kMoreSpecs), std::end(kMoreSpecs));
  for (const CodecRow* row : codec_rows()) names.emplace_back(row->name);
  std::vector<std::string> specs;
  for (const std::string& name : names)
    for (const char* memory : {"ef=none", "ef=residual", "ef=dgc", "ef=dgc,nesterov=yes,clip=1"})
      specs.push_back(name + (name.find(':') == std::string::npos ? ":" : ",") + memory);
  std::erase_if(specs, [](const std::string& spec) {
    const auto parsed = parse_compression(spec);
    return !parsed.ok() || parsed.value().none();
  });
  return specs;
}

// How the gradient changes. One float that is NaN at one look and finite at the next is what ended
// agents: a search for it has no end. Many make the passes of a selection disagree.
enum class Changes : uint8_t { kOneFloat, kMany };

// Writes into `values` until it is destroyed; has begun when it is constructed.
class Scribbler {
 public:
  Scribbler(std::vector<float>& values, Changes changes)
      : thread_([this, &values, changes] {
          std::mt19937 random(1);
          while (!stops_.load(std::memory_order_relaxed)) {
            changes == Changes::kMany ? write(values, random) : flip(values, random);
            began_.store(true);
          }
        }) {
    while (!began_.load()) std::this_thread::yield();
  }
  ~Scribbler() {
    stops_.store(true);
    thread_.join();
  }

 private:
  static float any(std::mt19937& random) {
    constexpr float kSome[] = {0,
                               1,
                               -1,
                               0.25F,
                               1e-38F,
                               1e30F,
                               -2.5,
                               1e-3F,
                               0.5F,
                               std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()};
    return kSome[random() % std::size(kSome)];
  }
  static void put(float& to, float value) {
    std::atomic_ref<float>(to).store(value, std::memory_order_relaxed);
  }
  static void flip(std::vector<float>& values, std::mt19937& random) {
    float& one = values[random() % values.size()];
    const float before = one;
    for (int i = 0; i < 500; ++i)
      put(one, i % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : before);
    put(one, before);
  }
  static void write(std::vector<float>& values, std::mt19937& random) {
    const size_t first = random() % values.size();
    const size_t count = std::min<size_t>(random() % 4096, values.size() - first);
    const float one = random() % 4 == 0 ? any(random) : 0.75F;
    const bool alike = random() % 2 == 0;
    for (size_t i = first; i < first + count; ++i)
      put(values[i], alike ? one : static_cast<float>(random() % 1000) * 1e-3F);
    for (int i = 0; i < 3; ++i) put(values[random() % values.size()], any(random));
    for (int i = 0; i < 200; ++i) put(values[random() % values.size()], 0.5F);
  }

  std::atomic<bool> stops_{false};
  std::atomic<bool> began_{false};
  std::thread thread_;
};

class ChangingInput : public testing::TestWithParam<std::string> {
 protected:
  CompressionSpec spec() const { return parse_compression(GetParam()).take(); }
  ErrorFeedback memory(size_t count) const {
    return {error_feedback_options(spec(), kAgents), count};
  }
  static size_t rounds(size_t count) { return count > 100'000 ? 5 : 100; }

  void encode_payloads(size_t count, Changes changes) const {
    const auto codec = make_codec(spec(), {.count_max = count});
    ErrorFeedback kept = memory(count);
    std::vector<float> gradient = numbers(count);
    std::vector<float> sum(count);
    std::vector<std::byte> room(codec->payload_bytes_max(count));
    const Scribbler scribbler(gradient, changes);
    for (uint64_t round = 1; round <= rounds(count); ++round) {
      const size_t bytes = codec->encode(kept.compensate(gradient, mix_u64(round), round), room);
      ASSERT_LE(bytes, room.size());
      const auto payload = std::span<const std::byte>(room).first(bytes);
      ASSERT_TRUE(codec->check(payload, count).ok()) << codec->check(payload, count).message();
      kept.update(*codec, payload);
      codec->accumulate(payload, 1, sum);
    }
  }

  void exchange_vectors(size_t count, Changes changes) const {
    const size_t columns = count % 5 == 0 ? 5 : 1;
    const CodecShape shape{count, count / columns, columns};
    const auto codec = spec().codec->make_linear(spec().options, shape);
    ErrorFeedback kept = memory(count);
    std::vector<float> gradient = numbers(count);
    const Scribbler scribbler(gradient, changes);
    for (uint64_t round = 1; round <= rounds(count); ++round) {
      const EncodeInput input = kept.compensate(gradient, mix_u64(round), round);
      std::vector<std::byte> before;
      for (uint32_t stage = 0; stage < codec->rounds(); ++stage) {
        std::vector<std::byte> vector(codec->vector_elements(stage) *
                                      dtype_bytes(codec->dtype(stage)));
        codec->project(stage, input, round, before, vector);
        before = std::move(vector);
      }
      codec->finish(input, round, 1, before, 1, gradient);
      kept.update(*codec);
    }
  }

 private:
  static std::vector<float> numbers(size_t count) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 7919 % 1000) * 1e-3F;
    return values;
  }
};

constexpr size_t kCounts[] = {1, 65, 5000, 70'001, 1'100'000};

// Expect: no byte outside, no failed check, and a payload that passes its own check.
TEST_P(ChangingInput, PayloadsStayReadable) {
  if (spec().codec->make == nullptr) GTEST_SKIP() << "only exists in flight";
  for (const size_t count : kCounts)
    for (const Changes changes : {Changes::kOneFloat, Changes::kMany})
      ASSERT_NO_FATAL_FAILURE(encode_payloads(count, changes)) << count;
}

// Expect: the same of codecs whose payloads are summed on their way.
TEST_P(ChangingInput, VectorsStayInside) {
  if (spec().codec->make_linear == nullptr) GTEST_SKIP() << "is not linear";
  for (const size_t count : kCounts) {
    // Matrices have no other way for large partitions, and take 20 s with sanitizers.
    if (count > 100'000 && spec().codec->traits.needs_matrix) continue;
    for (const Changes changes : {Changes::kOneFloat, Changes::kMany})
      ASSERT_NO_FATAL_FAILURE(exchange_vectors(count, changes)) << count;
  }
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Codecs, ChangingInput, testing::ValuesIn(every_spec()), test_name);

}  // namespace
}  // namespace gradbus
