// Which tensors of a job are compressed, and how: rules by name, size and dimension; the first that
// matches wins, none means dense. Pure; the compression itself is a text that the agents read
// (compression/spec.h).
//
// What a policy file says (cli/policy_file.h) reaches the ranks as GRADBUS_COMPRESSION, in this
// text form: rules separated by ';', each `glob|min elements|max elements|min dims|max
// dims|compression`. A text without '|' is one compression for all gradients that are worth it: at
// least 2 dimensions (biases and norms stay dense, as in DGC) and 16,384 elements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace gradbus {

inline constexpr uint64_t kCompressedElementsMin = 16 << 10;  // 64 KiB: below, messages cost more

struct CompressionRule {
  std::string name = "*";  // glob: * any text, ? any character
  uint64_t elements_min = 0;
  uint64_t elements_max = UINT64_MAX;
  uint32_t dims_min = 0;
  uint32_t dims_max = UINT32_MAX;
  std::string compression = "none";

  bool operator==(const CompressionRule&) const = default;
  // `dims` 0: not known, fits.
  bool matches(std::string_view tensor, uint64_t elements, uint32_t dims) const;
};

class CompressionPolicy {
 public:
  CompressionPolicy() = default;  // dense
  explicit CompressionPolicy(std::vector<CompressionRule> rules) : rules_(std::move(rules)) {}

  // The text form above; "" is dense. GB-O910 names the rule that is malformed.
  static Result<CompressionPolicy> parse(std::string_view text);
  std::string text() const;

  const std::vector<CompressionRule>& rules() const { return rules_; }
  // The compression of a gradient, "" for dense.
  std::string_view find(std::string_view tensor, uint64_t elements, uint32_t dims) const;

 private:
  std::vector<CompressionRule> rules_;
};

// Whether `text` matches `glob`. Linear in practice: one star is remembered at a time.
bool glob_matches(std::string_view glob, std::string_view text);

}  // namespace gradbus
