#include "common/option_value.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "common/errors.h"

namespace gradbus {
namespace {

Status refuse(const std::string& where, const std::string& why) {
  return error("F100", where + ": " + why);
}

bool parse_integer(const std::string& text, int64_t& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  return failure == std::errc() && stop == end;
}

void append_escaped(std::string& out, char c) {
  if (c == '"' || c == '\\') {
    out.append(1, '\\').append(1, c);
  } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
    char code[8];
    std::snprintf(code, sizeof(code), "\\u%04X", static_cast<unsigned>(c));
    out += code;
  } else {
    out += c;
  }
}

Status set_bool(bool& value, const std::string& text, const std::string& where) {
  if (text != "true" && text != "false" && text != "1" && text != "0") {
    return refuse(where, toml_string(text) + " is not true or false");
  }
  value = text == "true" || text == "1";
  return {};
}

}  // namespace

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) append_escaped(out, c);
  return out + "\"";
}

Status OptionValue::set_text(const std::string& text, const std::string& where) {
  if (auto* const* flag = std::get_if<bool*>(&target)) return set_bool(**flag, text, where);
  if (auto* const* string = std::get_if<std::string*>(&target)) {
    **string = text;
    return {};
  }
  int64_t value = 0;
  if (!parse_integer(text, value)) {
    return refuse(where, toml_string(text) + " is not an integer of 64 bits");
  }
  return set_integer(value, where);
}

Status OptionValue::set_integer(int64_t value, const std::string& where) {
  if (value < min || value > max) {
    return refuse(where, std::to_string(value) + " is outside " + std::to_string(min) + " to " +
                             std::to_string(max));
  }
  *std::get<int64_t*>(target) = value;
  return {};
}

std::string OptionValue::key() const {
  std::string key = name;
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string OptionValue::type_name() const {
  constexpr const char* kNames[] = {"TEXT", "BOOL", "INTEGER"};
  return kNames[target.index()];
}

std::string OptionValue::toml() const {
  if (auto* const* string = std::get_if<std::string*>(&target)) return toml_string(**string);
  if (auto* const* flag = std::get_if<bool*>(&target)) return **flag ? "true" : "false";
  return std::to_string(*std::get<int64_t*>(target));
}

}  // namespace gradbus
