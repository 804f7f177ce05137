#include "common/compression_policy.h"

#include <array>
#include <charconv>

#include "common/errors.h"

namespace gradbus {
namespace {

constexpr size_t kFields = 6;

Status malformed(std::string_view rule) {
  return error("O910", "GRADBUS_COMPRESSION holds the rule \"" + std::string(rule.substr(0, 200)) +
                           "\", expected glob|elements|elements|dims|dims|compression");
}

template <typename Number>
bool read_number(std::string_view text, Number& number) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  return end.ec == std::errc() && end.ptr == text.data() + text.size();
}

Result<CompressionRule> parse_rule(std::string_view text) {
  std::array<std::string_view, kFields> fields;
  std::string_view rest = text;
  for (size_t i = 0; i + 1 < kFields; ++i) {
    const size_t bar = rest.find('|');
    if (bar == std::string_view::npos) return malformed(text);
    fields[i] = rest.substr(0, bar);
    rest.remove_prefix(bar + 1);
  }
  CompressionRule rule;
  rule.name = fields[0];
  rule.compression = rest;
  const bool numbers =
      read_number(fields[1], rule.elements_min) && read_number(fields[2], rule.elements_max) &&
      read_number(fields[3], rule.dims_min) && read_number(fields[4], rule.dims_max);
  if (!numbers || rule.name.empty() || rest.empty()) return malformed(text);
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

bool CompressionRule::matches(std::string_view tensor, uint64_t elements, uint32_t dims) const {
  const bool dims_fit = dims == 0 || (dims >= dims_min && dims <= dims_max);
  return dims_fit && elements >= elements_min && elements <= elements_max &&
         glob_matches(name, tensor);
}

Result<CompressionPolicy> CompressionPolicy::parse(std::string_view text) {
  if (text.empty() || text == "none") return CompressionPolicy();
  if (text.find('|') == std::string_view::npos)
    return CompressionPolicy({{.elements_min = kCompressedElementsMin,
                               .dims_min = 2,
                               .compression = std::string(text)}});
  std::vector<CompressionRule> rules;
  while (!text.empty()) {
    const size_t end = text.find(';');
    Result<CompressionRule> rule = parse_rule(text.substr(0, end));
    if (!rule.ok()) return rule.status();
    rules.push_back(rule.take());
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
  }
  return CompressionPolicy(std::move(rules));
}

std::string CompressionPolicy::text() const {
  std::string text;
  for (const CompressionRule& rule : rules_)
    text += (text.empty() ? "" : ";") + rule.name + "|" + std::to_string(rule.elements_min) + "|" +
            std::to_string(rule.elements_max) + "|" + std::to_string(rule.dims_min) + "|" +
            std::to_string(rule.dims_max) + "|" + rule.compression;
  return text;
}

std::string_view CompressionPolicy::find(std::string_view tensor, uint64_t elements,
                                         uint32_t dims) const {
  for (const CompressionRule& rule : rules_)
    if (rule.matches(tensor, elements, dims))
      return rule.compression == "none" ? std::string_view() : rule.compression;
  return {};
}

}  // namespace gradbus
