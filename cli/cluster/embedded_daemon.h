// One process of an embedded cluster: the coordinator, an agent or a shard. Main thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/process/process.h"
#include "common/fd.h"

namespace gradbus {

struct EmbeddedDaemon {
  enum class Role { kCoordinator, kAgent, kShard };
  struct Spec {
    std::string name;
    std::vector<std::string> words;
    Role role;
    int netns_fd;
  };

  // The error that its end means.
  const char* error_id() const;
  // "exit status 1; its last line: ..."
  std::string last_words() const;
  // Its name, its pid and its last words.
  std::string obituary() const;

  Spec spec;
  Process process;
  Fd ready;
  std::shared_ptr<std::string> last_line;
  bool restarting = false;  // as soon as nothing is left of it
};

}  // namespace gradbus
