// What --json of `gradbus bench` names: a file, or "-" for standard output. There the JSON stands
// alone, written once, at the end; the table goes to standard error.
#pragma once

#include <cstdio>
#include <string>

#include "common/status.h"

namespace gradbus {

inline constexpr char kStandardOutput[] = "-";

// Where the table goes.
std::FILE* table_stream(const std::string& json);
// Replaces what is in the file; "" writes nothing. F100 when it cannot be written.
Status write_json(const std::string& json, const std::string& text);

}  // namespace gradbus
