#include "common/option_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>

#include "common/edit_distance.h"
#include "common/errors.h"

namespace gradbus {
namespace {

// "agent.toml:3"
std::string at_line(const std::string& path, const toml::source_region& region) {
  return path + ":" + std::to_string(region.begin.line);
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& known) {
  const std::string closest = closest_name(name, known);
  return closest.empty() ? "" : "; did you mean " + closest + "?";
}

Status unknown_key(const std::string& where, const std::string& key, const std::string& section,
                   const std::vector<OptionValue*>& options) {
  std::vector<std::string> known;
  for (const OptionValue* option : options) known.push_back(option->key());
  return error("F101", where + ": no key " + toml_string(key) + " in table [" + section + "]" +
                           did_you_mean(key, known));
}

Status wrong_type(const std::string& where, const OptionValue& option) {
  return error("F100", where + ": the value must be of type " + option.type_name());
}

Status set_from_node(OptionValue& option, const toml::node& node, const std::string& where) {
  if (std::holds_alternative<int64_t*>(option.target)) {
    const auto value = node.value_exact<int64_t>();
    return value ? option.set_integer(*value, where) : wrong_type(where, option);
  }
  if (std::holds_alternative<bool*>(option.target)) {
    const auto value = node.value_exact<bool>();
    return value ? option.set_text(*value ? "true" : "false", where) : wrong_type(where, option);
  }
  const auto value = node.value_exact<std::string>();
  return value ? option.set_text(*value, where) : wrong_type(where, option);
}

Status apply_key(const std::string& path, const std::string& section, const toml::key& key,
                 const toml::node& node, const std::vector<OptionValue*>& options) {
  const std::string line = at_line(path, key.source());
  const auto found = std::find_if(options.begin(), options.end(), [&](const OptionValue* each) {
    return each->key() == key.str();
  });
  if (found == options.end()) return unknown_key(line, std::string(key.str()), section, options);
  GRADBUS_RETURN_IF_ERROR(set_from_node(**found, node, line + ", key " + (*found)->key()));
  (*found)->origin = line;
  return {};
}

// Checks what is in the file besides the table of `section`.
Status check_foreign(const std::string& path, const std::string& section, const toml::key& key,
                     const toml::node& node) {
  const std::string line = at_line(path, key.source());
  const std::string name(key.str());
  if (!node.is_table()) {
    return error("F101", line + ": key " + toml_string(name) +
                             " is outside a table; put it into [" + section + "]");
  }
  if (closest_name(name, {section}).empty()) return {};
  return error("F101", line + ": no table " + toml_string(name) + did_you_mean(name, {section}));
}

Status apply_table(const std::string& path, const std::string& section, const toml::table& root,
                   const std::vector<OptionValue*>& options) {
  for (const auto& [key, node] : root) {
    if (key.str() != section || !node.is_table()) {
      GRADBUS_RETURN_IF_ERROR(check_foreign(path, section, key, node));
      continue;
    }
    for (const auto& [inner, value] : *node.as_table()) {
      GRADBUS_RETURN_IF_ERROR(apply_key(path, section, inner, value, options));
    }
  }
  return {};
}

}  // namespace

Status apply_option_file(const std::string& path, const std::string& section,
                         const std::vector<OptionValue*>& options) {
  std::error_code failure;  // toml++ reads a directory as an empty file
  if (std::filesystem::is_directory(path, failure)) {
    return error("F102", path + ": is a directory");
  }
  try {
    return apply_table(path, section, toml::parse_file(path), options);
  } catch (const toml::parse_error& wrong) {
    const uint32_t line = wrong.source().begin.line;  // 0: the file could not be read
    return error("F102",
                 (line == 0 ? path : at_line(path, wrong.source())) + ": " +
                     std::string(wrong.description()),
                 line == 0 ? "name a file that exists and can be read in --config" : "");
  }
}

}  // namespace gradbus
