// The daemons' log: spdlog on stderr, one line a record, levels trace to error. Control plane only;
// the hot path counts instead. The client library never logs.
#pragma once

#include <spdlog/spdlog.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"

namespace gradbus {

// `level`: trace, debug, info, warn, error. `sink`: where records go.
Status start_log(const std::string& program, const std::string& level,
                 std::shared_ptr<spdlog::sinks::sink> sink);
// Lines of text: time, level letter, program name, message. It writes to `file` in place of stderr.
// Colour only if stderr is a terminal, and without NO_COLOR.
std::shared_ptr<spdlog::sinks::sink> text_sink(FILE* file);
// From now on. GB-F100 for an unknown level.
Status set_log_level(const std::string& level);

// Records since the start by level, and warnings and errors that have a code, by code. Any thread.
std::vector<std::pair<std::string, uint64_t>> logged_records();
std::vector<std::pair<std::string, uint64_t>> logged_errors();

// "P101" of a message that has "GB-P101"; "" if it has no known code.
std::string_view code_in(std::string_view message);

}  // namespace gradbus
