#include "cli/cluster/embedded_daemon.h"

namespace gradbus {

const char* EmbeddedDaemon::error_id() const {
  switch (spec.role) {
    case Role::kCoordinator: return "C501";
    case Role::kAgent: return "A301";
    case Role::kShard: return "P103";
  }
  return "X001";
}

std::string EmbeddedDaemon::last_words() const {
  const std::string& said = *last_line;
  const std::string end = process.running() ? "it runs" : process.exit().text();
  return end + (said.empty() ? "; it said nothing" : "; its last line: " + said.substr(0, 400));
}

std::string EmbeddedDaemon::obituary() const {
  return process.name() + " (pid " + std::to_string(process.pid()) +
         ") ended while the job ran: " + last_words();
}

}  // namespace gradbus
