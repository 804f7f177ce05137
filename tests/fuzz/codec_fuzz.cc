// libFuzzer: whatever bytes a peer sends as a payload, check() refuses them or they are safe to
// use.
//
// The codec is that of GRADBUS_FUZZ_CODEC, a spec as in compression/spec.h. The first two bytes of
// an input say how many elements the receiver expects; the next says whether the payload's header
// is put right, so that the fuzzer need not guess it; the rest is the payload.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "compression/payload.h"
#include "compression/registry.h"

namespace {

constexpr size_t kCountMax = 5000;

const gradbus::CompressionSpec& spec() {
  static const gradbus::CompressionSpec chosen = [] {
    const char* text = std::getenv("GRADBUS_FUZZ_CODEC");
    auto parsed = gradbus::parse_compression(text == nullptr ? "topk" : text);
    if (!parsed.ok() || parsed.value().codec->make == nullptr) std::abort();
    return parsed.take();
  }();
  return chosen;
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto codec = make_codec(spec(), {.count_max = kCountMax});
  if (size < 3) return 0;
  uint16_t wanted = 0;
  std::memcpy(&wanted, data, sizeof(wanted));
  const size_t count = wanted % (kCountMax + 1);
  std::vector<std::byte> payload(size - 3);
  if (size > 3) std::memcpy(payload.data(), data + 3, size - 3);
  if (data[2] % 4 != 0) put_header_right(payload, count);
  if (!codec->check(payload, count).ok()) return 0;
  std::vector<float> values(count, 1.0F);
  codec->accumulate(payload, 0.5F, values);
  codec->clear_sent(payload, values);
  codec->decode(payload, 1, values);
  return 0;
}
