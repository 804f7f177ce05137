// The log of a daemon as text, as JSON, or as records of the journal with fields for job, rank and
// error code. Start-up only; then any thread logs.
#pragma once

#include <string>
#include <string_view>

#include "common/status.h"

namespace gradbus {

// `format`: text, json, journal, or auto (journal when stderr is the journal's, else text).
// GB-F100 for another one.
Status start_daemon_log(const std::string& program, const std::string& level,
                        const std::string& format);

// The subject of a message, as our messages name it: `rank 3 of job "digits"`.
struct LogSubject {
  std::string_view job;   // "": none
  std::string_view rank;  // digits; "": none
  std::string_view code;  // "P101"; "": none
};
LogSubject subject_of(std::string_view message);

}  // namespace gradbus
