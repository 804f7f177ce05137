// One round of a codec behind a C function, so that tests in NumPy can compare it with the formula.
#include <cstring>
#include <vector>

#include "compression/registry.h"

using namespace gradbus;

namespace {

// Returns payload bytes, or -1 for a spec that is wrong or a payload that its codec refuses.
int64_t round_of_payloads(const CompressionSpec& spec, const EncodeInput& input, float* decoded) {
  const size_t count = input.count();
  const auto codec = make_codec(spec, {.count_max = count});
  std::vector<std::byte> payload(codec->payload_bytes_max(count));
  payload.resize(codec->encode(input, payload));
  if (!codec->check(payload, count).ok()) return -1;
  codec->decode(payload, 1, {decoded, count});
  return static_cast<int64_t>(payload.size());
}

// A linear codec among one agent.
int64_t round_of_vectors(const CompressionSpec& spec, const EncodeInput& input, size_t columns,
                         float* decoded) {
  const size_t count = input.count();
  const CodecShape shape{
      .count_max = count, .rows = columns == 0 ? 1 : count / columns, .columns = columns};
  const auto codec = spec.codec->make_linear(spec.options, shape);
  std::vector<std::byte> before;
  int64_t bytes = 0;
  for (uint32_t round = 0; round < codec->rounds(); ++round) {
    std::vector<std::byte> vector(codec->vector_elements(round) * dtype_bytes(codec->dtype(round)));
    codec->project(round, input, input.seed, before, vector);
    bytes += static_cast<int64_t>(vector.size());
    before = std::move(vector);
  }
  codec->finish(input, input.seed, 1, before, 1, {decoded, count});
  return bytes;
}

}  // namespace

// `residual` may be null: no error feedback; else it is read and written. `columns` matters to
// codecs that need a matrix.
extern "C" __attribute__((visibility("default"))) int64_t codec_probe(
    const char* text, const float* gradient, float* residual, uint64_t count, uint64_t columns,
    uint64_t seed, float* decoded) {
  const Result<CompressionSpec> spec = parse_compression(text);
  if (!spec.ok()) return -1;
  EncodeInput input{.gradient = {gradient, count}, .seed = seed};
  if (residual != nullptr) input.residual = {residual, count};
  if (spec.value().codec->make != nullptr) return round_of_payloads(spec.value(), input, decoded);
  return round_of_vectors(spec.value(), input, columns, decoded);
}
