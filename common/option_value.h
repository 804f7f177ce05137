// One declared option: where its value lives, what it may be, and who set it last. Start-up only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "common/status.h"

namespace gradbus {

// A TOML basic string, quotes included: one line whatever the text holds.
std::string toml_string(std::string_view text);

struct OptionValue {
  std::string name;  // "shm-bytes-max"
  std::string sentence;
  std::variant<std::string*, bool*, int64_t*> target;
  int64_t min = 0;  // integers only
  int64_t max = 0;
  std::string origin = "default";

  // Sets the value, or refuses it and leaves it alone. `where` opens the error ("flag --port").
  // From text (a flag, a variable), a bool is true, false, 1 or 0.
  Status set_text(const std::string& text, const std::string& where);
  Status set_integer(int64_t value, const std::string& where);

  std::string key() const;        // "shm_bytes_max"
  std::string type_name() const;  // "TEXT", "BOOL", "INTEGER"
  std::string toml() const;       // the value as TOML
};

}  // namespace gradbus
