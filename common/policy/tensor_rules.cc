#include "common/policy/tensor_rules.h"

#include <array>
#include <charconv>

#include "common/errors.h"

namespace gradbus {
namespace {

constexpr size_t kFields = 6;

Status malformed(const RuleVariable& variable, std::string_view rule) {
  return error(variable.error, std::string(variable.name) + " holds the rule \"" +
                                   std::string(rule.substr(0, 200)) +
                                   "\", expected glob|elements|elements|dims|dims|value");
}

template <typename Number>
bool read_number(std::string_view text, Number& number) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  return end.ec == std::errc() && end.ptr == text.data() + text.size();
}

Result<TensorRule> parse_rule(const RuleVariable& variable, std::string_view text) {
  std::array<std::string_view, kFields> fields;
  std::string_view rest = text;
  for (size_t i = 0; i + 1 < kFields; ++i) {
    const size_t bar = rest.find('|');
    if (bar == std::string_view::npos) return malformed(variable, text);
    fields[i] = rest.substr(0, bar);
    rest.remove_prefix(bar + 1);
  }
  TensorRule rule;
  rule.name = fields[0];
  rule.value = rest;
  const bool numbers =
      read_number(fields[1], rule.elements_min) && read_number(fields[2], rule.elements_max) &&
      read_number(fields[3], rule.dims_min) && read_number(fields[4], rule.dims_max);
  if (!numbers || rule.name.empty() || rest.empty()) return malformed(variable, text);
  return rule;
}

}  // namespace

bool glob_matches(std::string_view glob, std::string_view text) {
  size_t g = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;  // the last one seen, and where its text ends so far
  size_t taken = 0;
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      taken = t;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == text[t])) {
      ++g, ++t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

bool TensorRule::matches(std::string_view tensor, uint64_t elements, uint32_t dims) const {
  const bool dims_fit = dims == 0 || (dims >= dims_min && dims <= dims_max);
  return dims_fit && elements >= elements_min && elements <= elements_max &&
         glob_matches(name, tensor);
}

const RuleVariable& compression_variable() {
  static const RuleVariable variable{
      .name = "GRADBUS_COMPRESSION",
      .error = "O910",
      .nothing = "none",
      .whole = {.elements_min = kCompressedElementsMin, .dims_min = 2, .value = {}}};
  return variable;
}

const RuleVariable& mode_variable() {
  static const RuleVariable variable{
      .name = "GRADBUS_MODE", .error = "O911", .nothing = "sync", .whole = {}};
  return variable;
}

Result<TensorRules> TensorRules::parse(const RuleVariable& variable, std::string_view text) {
  if (text.empty() || text == variable.nothing) return TensorRules();
  if (text.find('|') == std::string_view::npos) {
    TensorRule whole = variable.whole;
    whole.value = text;
    return TensorRules({std::move(whole)});
  }
  std::vector<TensorRule> rules;
  while (!text.empty()) {
    const size_t end = text.find(';');
    Result<TensorRule> rule = parse_rule(variable, text.substr(0, end));
    if (!rule.ok()) return rule.status();
    rules.push_back(rule.take());
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
  }
  return TensorRules(std::move(rules));
}

std::string TensorRules::text() const {
  std::string text;
  for (const TensorRule& rule : rules_)
    text += (text.empty() ? "" : ";") + rule.name + "|" + std::to_string(rule.elements_min) + "|" +
            std::to_string(rule.elements_max) + "|" + std::to_string(rule.dims_min) + "|" +
            std::to_string(rule.dims_max) + "|" + rule.value;
  return text;
}

std::string_view TensorRules::find(std::string_view tensor, uint64_t elements,
                                   uint32_t dims) const {
  for (const TensorRule& rule : rules_)
    if (rule.matches(tensor, elements, dims)) return rule.value;
  return {};
}

}  // namespace gradbus
