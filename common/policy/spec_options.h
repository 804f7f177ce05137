// The options of texts such as "topk:ratio=0.01,ef=residual": a name, then what differs from the
// defaults, in any order. Which names there are belongs to the callers: compressions, modes.
//
// Pure; control plane only (it allocates).
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace gradbus {

// One option: a number in [min, max], or one of `choices` when there are any.
struct SpecOption {
  std::string_view name;
  std::string_view default_text;
  double min = 0;
  double max = 0;
  std::vector<std::string_view> choices = {};
  std::string_view sentence;
  bool whole = false;  // numbers: only whole ones
  bool kept = false;   // if it is given with its default, the canonical text has it, too
};

// The options of one text, all present and valid.
class SpecOptions {
 public:
  SpecOptions() = default;
  explicit SpecOptions(std::map<std::string, std::string, std::less<>> values)
      : values_(std::move(values)) {}
  const std::string& text(std::string_view name) const;
  double number(std::string_view name) const;
  // The same with another number.
  SpecOptions with(std::string_view name, double number) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

struct ReadOptions {
  SpecOptions options;
  // "ratio=0.1,ef=none": those that differ from their defaults and those kept, in order
  std::string canonical;
};

// Reads what follows the colon, "" for nothing. kInvalid with what is wrong and what was meant.
Result<ReadOptions> read_spec_options(std::string_view text,
                                      std::span<const SpecOption* const> known);

// "; did you mean "topk"?" where one of `known` is close to `name`, else "".
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

}  // namespace gradbus
