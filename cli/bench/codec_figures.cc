#include "cli/bench/codec_figures.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <random>

#include "cli/bench/json_file.h"
#include "cli/command.h"
#include "common/errors.h"
#include "compression/error_feedback.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

using Json = nlohmann::ordered_json;

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

double input_gbs(size_t elements, double seconds) {
  return static_cast<double>(elements) * 4e-9 / seconds;
}

double bits_per_element(const CodecFigures& figures, size_t elements) {
  return figures.payload_bytes * 8 / static_cast<double>(elements);
}

Json json_of(const CodecFigures& figures, size_t elements) {
  return {{"codec", figures.codec},
          {"elements", elements},
          {"encode_gbs", input_gbs(elements, figures.encode_s)},
          {"decode_gbs", input_gbs(elements, figures.decode_s)},
          {"encode_bound", figures.encode_bound_s / figures.encode_s},
          {"decode_bound", figures.decode_bound_s / figures.decode_s},
          {"bits_per_element", bits_per_element(figures, elements)},
          {"error", figures.error}};
}

std::vector<std::string> cells_of(const CodecFigures& figures, size_t elements) {
  return {figures.codec,
          fixed(input_gbs(elements, figures.encode_s), 2),
          fixed(100 * figures.encode_bound_s / figures.encode_s, 0) + " %",
          fixed(input_gbs(elements, figures.decode_s), 2),
          fixed(100 * figures.decode_bound_s / figures.decode_s, 0) + " %",
          fixed(bits_per_element(figures, elements), 3),
          fixed(figures.error, 4)};
}

}  // namespace

Result<std::vector<CompressionSpec>> chosen_specs(const CodecBenchOptions& options) {
  std::vector<CompressionSpec> specs;
  std::vector<std::string> texts = options.specs;
  if (texts.empty())
    for (const CodecRow* row : codec_rows()) texts.emplace_back(row->name);
  for (const std::string& text : texts) {
    Result<CompressionSpec> spec = parse_compression(text);
    if (!spec.ok()) return spec.status();
    if (spec.value().codec->make != nullptr || spec.value().codec->make_linear != nullptr)
      specs.push_back(spec.take());
  }
  return specs;
}

Result<size_t> parse_elements(const std::string& text) {
  uint64_t elements = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), elements);
  if (end.ec == std::errc() && end.ptr == text.data() + text.size() && elements > 0 &&
      elements <= 1u << 30)
    return static_cast<size_t>(elements);
  return error("F100", "--elements is \"" + text.substr(0, 40) + "\"", "give 1 to 1073741824");
}

LargeVector<float> normal_gradient(size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 1e-3F);
  LargeVector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

double relative_error(std::span<const float> values, std::span<const float> decoded) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = static_cast<double>(values[i]) - decoded[i];
    error += difference * difference;
    norm += static_cast<double>(values[i]) * values[i];
  }
  return norm == 0 ? 0 : std::sqrt(error / norm);
}

double kept_vectors(const CompressionSpec& spec) {
  const double of_codec = spec.codec->id == CodecId::kSignum ? 1 : 0;
  switch (error_feedback_options(spec, 1).kind) {
    case ErrorFeedbackKind::kNone: return of_codec;
    case ErrorFeedbackKind::kResidual: return of_codec + 1;
    case ErrorFeedbackKind::kDgc: return of_codec + 2;
  }
  return of_codec;
}

CodecTable::CodecTable(size_t elements)
    : elements_(elements),
      table_({{"codec"},
              {"encode", 8, true},
              {"of bound", 8, true},
              {"decode+add", 10, true},
              {"of bound", 8, true},
              {"bits/element", 12, true},
              {"error", 8, true}}) {}

void CodecTable::add(const CodecFigures& figures) {
  table_.add(cells_of(figures, elements_));
  rows_.push_back(json_of(figures, elements_));
}

int CodecTable::finish(const std::string& json) const {
  std::fputs(table_.text().c_str(), table_stream(json));
  const Status written = write_json(json, rows_.dump(1) + "\n");
  return written.ok() ? kExitOk : fail(written, kExitFailed);
}

}  // namespace gradbus
