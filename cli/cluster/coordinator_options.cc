#include "cli/cluster/coordinator_options.h"

namespace gradbus {

void add_coordinator_options(CLI::App& app, CoordinatorOptions& options) {
  app.add_option(
      "--coordinator", options.coordinator,
      "HOST:PORT; default: GRADBUS_COORDINATOR, else that of /etc/gradbus, else 127.0.0.1:7400");
  app.add_option(
      "--token-file", options.token_file,
      "the cluster token; default: that of this user's own run, else GRADBUS_TOKEN_FILE, else "
      "/etc/gradbus/token");
}

}  // namespace gradbus
