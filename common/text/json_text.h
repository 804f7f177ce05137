// JSON of another process or of a file. Any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace gradbus {

// What follows the parser (copy, compare, dump) calls itself once a level. A text of 1 MiB could
// hold 500,000 levels, which overflows a thread's stack.
inline constexpr int kJsonDepthMax = 32;

// is_discarded(): this is no JSON, or it is nested more deeply than kJsonDepthMax.
inline nlohmann::json parse_json(std::string_view text) {
  bool too_deep = false;
  const auto keep = [&](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
    too_deep = too_deep || depth > kJsonDepthMax;
    return !too_deep;
  };
  nlohmann::json parsed = nlohmann::json::parse(text, keep, false);
  return too_deep ? nlohmann::json(nlohmann::json::value_t::discarded) : parsed;
}

}  // namespace gradbus
