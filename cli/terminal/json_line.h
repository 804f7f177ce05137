// One JSON value as a line of standard output. Names of others may not be UTF-8.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>

namespace gradbus {

inline void print_json_line(const nlohmann::ordered_json& value) {
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  std::puts(value.dump(-1, ' ', false, replace).c_str());
}

}  // namespace gradbus
