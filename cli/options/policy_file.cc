#include "cli/options/policy_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "common/edit_distance.h"
#include "common/errors.h"
#include "common/policy/codec_choice.h"
#include "common/policy/sync_mode.h"
#include "compression/spec.h"
#include "proto/budget.h"
#include "server/scheduling/schedule.h"

namespace gradbus {
namespace {

constexpr char kFix[] = "name a file that exists and can be read in --policy";

std::string at_line(const std::string& path, const toml::source_region& region) {
  return path + ":" + std::to_string(region.begin.line);
}

Status wrong_rule(const std::string& where, const std::string& what) {
  return error("O910", where + ": " + what, "see docs/how-to/write-a-policy.md");
}

Status set_text(const std::string& where, const toml::node& node, std::string& target) {
  const auto value = node.value_exact<std::string>();
  if (!value || value->empty()) return wrong_rule(where, "expected a text that is not empty");
  // What separates rules in GRADBUS_COMPRESSION.
  if (value->find_first_of("|;\n") != std::string::npos)
    return wrong_rule(where, "a text may hold no \"|\", \";\" or line end");
  target = *value;
  return {};
}

template <typename Number>
Status set_number(const std::string& where, const toml::node& node, Number& target) {
  const auto value = node.value_exact<int64_t>();
  if (!value || *value < 0 || *value > UINT32_MAX * int64_t{256})
    return wrong_rule(where, "expected a whole number of 0 or more");
  target = static_cast<Number>(*value);
  return {};
}

// "16M": digits and a unit.
bool is_budget(std::string_view text) {
  constexpr std::string_view kUnits = "KMG";
  const size_t unit = text.empty() ? text.npos : kUnits.find(text.back());
  if (unit != kUnits.npos) text.remove_suffix(1);
  uint64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const uint64_t most = kBudgetBytesMax >> (unit == kUnits.npos ? 0 : 10 * (unit + 1));
  return problem == std::errc() && end == text.data() + text.size() && number > 0 && number <= most;
}

// Of "bytescheduler:budget=16M". Front ends check the other options.
Status check_budget(const std::string& text) {
  constexpr std::string_view kKey = "budget=";
  std::string_view options(text);
  options.remove_prefix(std::min(text.find(':'), text.size()));
  while (!options.empty()) {
    options.remove_prefix(1);
    const std::string_view option = options.substr(0, options.find(','));
    if (option.starts_with(kKey) && !is_budget(option.substr(kKey.size())))
      return error("H200",
                   "schedule \"" + text.substr(0, 60) + "\": \"" +
                       std::string(option.substr(kKey.size(), 40)) +
                       "\" is no number of bytes from 1 to 2^40",
                   "write a budget as 16M, or in bytes");
    options.remove_prefix(option.size());
  }
  return {};
}

Status check_schedule(const std::string& text) {
  const std::string name = text.substr(0, text.find(':'));
  std::vector<std::string> names;
  for (const scheduling::Schedule& schedule : scheduling::schedules())
    names.emplace_back(schedule.name);
  if (name.empty() || std::ranges::find(names, name) != names.end()) return check_budget(text);
  const std::string meant = closest_name(name, names);
  return error("H200",
               "no schedule \"" + name.substr(0, 40) + "\"" +
                   (meant.empty() ? "" : "; did you mean " + meant + "?"),
               "docs/concepts/schedules.md lists them");
}

const std::vector<std::string>& known_keys() {
  static const std::vector<std::string> keys = {
      "name", "min_elements", "max_elements", "min_dims", "max_dims", "compression", "mode"};
  return keys;
}

// One codec, or several of which the training chooses.
Status check_codecs(const std::string& text) {
  if (!is_codec_choice(text)) return parse_compression(text).status();
  const Result<CodecChoice> choice = parse_codec_choice(text);
  if (!choice.ok()) return choice.status();
  for (const std::string& codec : choice.value().codecs)
    GRADBUS_RETURN_IF_ERROR(parse_compression(codec).status());
  return {};
}

// A rule of the file: which tensors, and what of them; "" where it does not say.
struct FileRule {
  TensorRule which;
  std::string compression;
  std::string mode;
};

Status set_key(const std::string& where, std::string_view key, const toml::node& node,
               FileRule& file_rule) {
  TensorRule& rule = file_rule.which;
  if (key == "name") return set_text(where, node, rule.name);
  if (key == "compression") return set_text(where, node, file_rule.compression);
  if (key == "mode") return set_text(where, node, file_rule.mode);
  if (key == "min_elements") return set_number(where, node, rule.elements_min);
  if (key == "max_elements") return set_number(where, node, rule.elements_max);
  if (key == "min_dims") return set_number(where, node, rule.dims_min);
  if (key == "max_dims") return set_number(where, node, rule.dims_max);
  const std::string meant = closest_name(std::string(key), known_keys());
  return error("F101", where + ": no key \"" + std::string(key) + "\" in [[rule]]" +
                           (meant.empty() ? "" : "; did you mean " + meant + "?"));
}

Result<FileRule> read_rule(const std::string& path, const toml::node& node) {
  const std::string begin = at_line(path, node.source());
  if (!node.is_table()) return wrong_rule(begin, "expected [[rule]] tables");
  FileRule rule;
  for (const auto& [key, value] : *node.as_table())
    GRADBUS_RETURN_IF_ERROR(set_key(at_line(path, key.source()), key.str(), value, rule));
  if (rule.compression.empty() && rule.mode.empty())
    return wrong_rule(
        begin,
        "the rule has no compression = \"...\" (\"none\" keeps a tensor dense) and no "
        "mode = \"...\"");
  if (!rule.compression.empty())
    if (Status bad = check_codecs(rule.compression); !bad.ok()) return bad.with_context(begin);
  if (const auto mode = parse_mode(rule.mode); !mode.ok()) return mode.status().with_context(begin);
  return rule;
}

// Every rule counts for both, so that the first that matches decides; one that does not speak of a
// thing says that nothing is to be done.
TensorRules rules_of(const std::vector<FileRule>& rules, std::string FileRule::*value,
                     std::string_view nothing) {
  std::vector<TensorRule> found;
  bool spoken = false;
  for (const FileRule& rule : rules) {
    spoken = spoken || !(rule.*value).empty();
    found.push_back(rule.which);
    found.back().value = (rule.*value).empty() ? std::string(nothing) : rule.*value;
  }
  return spoken ? TensorRules(std::move(found)) : TensorRules();
}

Result<PolicyFile> read_rules(const std::string& path, const toml::table& root) {
  std::vector<FileRule> rules;
  std::string schedule;
  for (const auto& [key, node] : root) {
    const std::string where = at_line(path, key.source());
    if (key.str() == "schedule") {
      GRADBUS_RETURN_IF_ERROR(set_text(where, node, schedule));
      if (const Status known = check_schedule(schedule); !known.ok())
        return known.with_context(where);
      continue;
    }
    if (key.str() != "rule" || !node.is_array())
      return error("F101", where + ": no key \"" + std::string(key.str()) +
                               "\" in a policy file; did you mean [[rule]]?");
    for (const toml::node& each : *node.as_array()) {
      Result<FileRule> rule = read_rule(path, each);
      if (!rule.ok()) return rule.status();
      rules.push_back(rule.take());
    }
  }
  return PolicyFile{rules_of(rules, &FileRule::compression, compression_variable().nothing),
                    rules_of(rules, &FileRule::mode, mode_variable().nothing), schedule};
}

}  // namespace

Result<PolicyFile> read_policy_file(const std::string& path) {
  std::error_code failure;  // toml++ reads a directory as an empty file
  if (std::filesystem::is_directory(path, failure))
    return error("F102", path + ": is a directory", kFix);
  try {
    return read_rules(path, toml::parse_file(path));
  } catch (const toml::parse_error& wrong) {
    const bool unreadable = wrong.source().begin.line == 0;
    return error(
        "F102",
        (unreadable ? path : at_line(path, wrong.source())) + ": " +
            std::string(wrong.description()),
        unreadable ? kFix : "fix that line; docs/how-to/write-a-policy.md describes policies");
  }
}

Result<PolicyVariables> policy_variables(const std::string& compression, const std::string& mode,
                                         const std::string& policy_file,
                                         const std::string& schedule) {
  GRADBUS_RETURN_IF_ERROR(check_schedule(schedule));
  if (!policy_file.empty()) {
    if (!compression.empty() || !mode.empty())
      return error("H200",
                   std::string(compression.empty() ? "--mode" : "--compression") +
                       " and --policy are both given",
                   "give one of them");
    const Result<PolicyFile> policy = read_policy_file(policy_file);
    if (!policy.ok()) return policy.status();
    const std::string& of_file = policy.value().schedule;
    if (!schedule.empty() && !of_file.empty())
      return error("H200", "--schedule is given, and " + policy_file + " has a schedule, too",
                   "give one of them");
    return PolicyVariables{policy.value().compressions.text(), policy.value().modes.text(),
                           schedule.empty() ? of_file : schedule};
  }
  if (!compression.empty()) GRADBUS_RETURN_IF_ERROR(check_codecs(compression));
  if (const auto parsed = parse_mode(mode); !parsed.ok()) return parsed.status();
  return PolicyVariables{compression, mode, schedule};
}

}  // namespace gradbus
