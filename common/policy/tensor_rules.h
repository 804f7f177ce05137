// What is said of which tensors: rules by name, size and dimension; the first that matches wins. A
// rule's value is a text that others read: a compression (compression/spec.h), a mode
// (common/policy/sync_mode.h). Pure.
//
// What a policy file says (cli/options/policy_file.h) reaches the ranks in variables,
// GRADBUS_COMPRESSION and GRADBUS_MODE, in this text form: rules separated by ';', each `glob|min
// elements|max elements|min dims|max dims|value`. A text without '|' is one value for all tensors
// that the variable is about.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace gradbus {

// Gradients that are worth compressing where nothing else is said: at least 2 dimensions (biases
// and norms stay dense, as in DGC) and 16,384 elements, for below 64 KiB messages cost more than
// bytes.
inline constexpr uint64_t kCompressedElementsMin = 16 << 10;

struct TensorRule {
  std::string name = "*";  // glob: * any text, ? any character
  uint64_t elements_min = 0;
  uint64_t elements_max = UINT64_MAX;
  uint32_t dims_min = 0;
  uint32_t dims_max = UINT32_MAX;
  std::string value;

  bool operator==(const TensorRule&) const = default;
  // `dims` 0: not known, fits.
  bool matches(std::string_view tensor, uint64_t elements, uint32_t dims) const;
};

// A variable that holds rules: what it is called, the value that is the same as no rule, and the
// rule that a text without '|' is the value of.
struct RuleVariable {
  const char* name;
  std::string_view error;  // of a text that is malformed
  std::string_view nothing;
  TensorRule whole;
};
const RuleVariable& compression_variable();  // GRADBUS_COMPRESSION: "none" is dense
const RuleVariable& mode_variable();         // GRADBUS_MODE: "sync"

class TensorRules {
 public:
  TensorRules() = default;  // nothing is said of any
  explicit TensorRules(std::vector<TensorRule> rules) : rules_(std::move(rules)) {}

  // The text form above; "" and `nothing` say nothing. The variable's error names the rule that is
  // malformed.
  static Result<TensorRules> parse(const RuleVariable& variable, std::string_view text);
  std::string text() const;

  const std::vector<TensorRule>& rules() const { return rules_; }
  // The value of the first rule that matches, "" where none does.
  std::string_view find(std::string_view tensor, uint64_t elements, uint32_t dims) const;

 private:
  std::vector<TensorRule> rules_;
};

// Whether `text` matches `glob`. Linear in practice: one star is remembered at a time.
bool glob_matches(std::string_view glob, std::string_view text);

}  // namespace gradbus
