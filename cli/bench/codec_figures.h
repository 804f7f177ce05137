// What `gradbus bench codec` says of a codec, whether a core or a device ran it: the figures, the
// table and the file of them.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cli/bench/codec_bench.h"
#include "cli/terminal/text_table.h"
#include "common/large_vector.h"
#include "common/status.h"
#include "compression/spec.h"

namespace gradbus {

struct CodecFigures {
  std::string codec;
  double encode_s = 0;
  double decode_s = 0;
  double encode_bound_s = 0;
  double decode_bound_s = 0;
  double payload_bytes = 0;
  double error = 0;
};

// Those asked for, or every codec.
Result<std::vector<CompressionSpec>> chosen_specs(const CodecBenchOptions& options);
Result<size_t> parse_elements(const std::string& text);

LargeVector<float> normal_gradient(size_t count);
// |values - decoded| / |values|
double relative_error(std::span<const float> values, std::span<const float> decoded);
// Vectors of the gradient's size that encoding reads and writes: residual, momentum.
double kept_vectors(const CompressionSpec& spec);

class CodecTable {
 public:
  explicit CodecTable(size_t elements);
  void add(const CodecFigures& figures);
  // Prints it, and writes `json` (json_file.h); the exit code.
  int finish(const std::string& json) const;

 private:
  const size_t elements_;
  TextTable table_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

}  // namespace gradbus
