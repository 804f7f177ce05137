// libFuzzer: whatever bytes a peer sends as a payload, check() refuses them or they are safe to
// use; and whatever sum the others make of vectors added in flight, it is safe to use and leaves
// the residual finite.
//
// The codec is that of GRADBUS_FUZZ_CODEC, a spec as in compression/spec.h; one that has no
// payloads of its own gets sums. Of an input
//   payloads  the first two bytes say how many elements the receiver expects; the next says whether
//             the payload's header is put right, so that the fuzzer need not guess it; the rest is
//             the payload
//   sums      the first two bytes are the partition's number of elements; the rest are the inputs
//             of one round after the other, which start again at the front when they end
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "compression/payload.h"
#include "compression/registry.h"

namespace {

constexpr size_t kCountMax = 5000;

const gradbus::CompressionSpec& spec() {
  static const gradbus::CompressionSpec chosen = [] {
    const char* text = std::getenv("GRADBUS_FUZZ_CODEC");
    auto parsed = gradbus::parse_compression(text == nullptr ? "topk" : text);
    if (!parsed.ok()) {
      std::fprintf(stderr, "GRADBUS_FUZZ_CODEC: %s\n", parsed.status().message().c_str());
      std::_Exit(2);
    }
    return parsed.take();
  }();
  return chosen;
}

size_t count_of(std::span<const uint8_t> input) {
  return (input[0] + size_t{256} * input[1]) % (kCountMax + 1);
}

void put_header_right(std::vector<std::byte>& payload, size_t count) {
  if (payload.size() < gradbus::kPayloadHeaderBytes) return;
  auto header = gradbus::payload_header(payload);
  header.codec = static_cast<uint8_t>(spec().codec->id);
  header.version = gradbus::kPayloadVersion;
  header.count = static_cast<uint32_t>(count);
  header.bytes = static_cast<uint32_t>(payload.size() - gradbus::kPayloadHeaderBytes);
  gradbus::store_field(payload.data(), header);
}

void feed_payload(std::span<const uint8_t> input) {
  static const auto codec = make_codec(spec(), {.count_max = kCountMax});
  if (input.size() < 3) return;
  const size_t count = count_of(input);
  std::vector<std::byte> payload(input.size() - 3);
  std::ranges::copy(std::as_bytes(input.subspan(3)), payload.begin());
  if (input[2] % 4 != 0) put_header_right(payload, count);
  if (!codec->check(payload, count).ok()) return;
  std::vector<float> values(count, 1.0F);
  codec->accumulate(payload, 0.5F, values);
  codec->clear_sent(payload, values);
  codec->decode(payload, 1, values);
}

// What a partition of so many elements is as a matrix: of 7 columns where that goes.
gradbus::CodecShape shape_of(size_t count) {
  if (count % 7 != 0) return {.count_max = count};
  return {.count_max = count, .rows = count / 7, .columns = 7};
}

void feed_sums(std::span<const uint8_t> input) {
  constexpr uint64_t kSeed = 7;
  if (input.size() < 3) return;
  const size_t count = count_of(input);
  const auto codec = spec().codec->make_linear(spec().options, shape_of(count));
  std::vector<float> gradient(count);
  for (size_t i = 0; i < count; ++i) gradient[i] = static_cast<float>(i % 31) - 15;
  std::vector<float> residual(count, 0.25F);
  const gradbus::EncodeInput partition{.gradient = gradient, .residual = residual};
  std::vector<std::byte> sum;
  size_t at = 2;
  for (uint32_t round = 0; round < codec->rounds(); ++round) {
    std::vector<std::byte> vector(codec->vector_elements(round) * dtype_bytes(codec->dtype(round)));
    codec->project(round, partition, kSeed, sum, vector);
    sum = std::move(vector);
    for (std::byte& byte : sum) {
      if (at == input.size()) at = 2;
      byte = std::byte{input[at++]};
    }
  }
  std::vector<float> values(count);
  codec->finish(partition, kSeed, 3, sum, 0.5F, values);
  codec->clear_sent(values);
  if (!std::ranges::all_of(residual, [](float v) { return std::isfinite(v); })) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (spec().codec->make != nullptr) {
    feed_payload({data, size});
  } else {
    feed_sums({data, size});
  }
  return 0;
}
