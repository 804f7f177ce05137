// `gradbus env`: which launcher's variables would decide rank and world size of a process here.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/command.h"
#include "client_lib/src/launch_env.h"
#include "client_lib/src/launch_traces.h"

namespace gradbus {
namespace {

void print(const char* what, const std::string& value) {
  std::printf("%-12s %s\n", what, value.c_str());
}

int show_environment() {
  const Result<LaunchIdentity> identity = find_identity({}, read_environment);
  if (!identity.ok()) return fail(identity.status(), kExitFailed);
  print("launcher", identity.value().launcher);
  print("job", identity.value().job);
  print("rank", std::to_string(identity.value().rank));
  print("world size", std::to_string(identity.value().world_size));
  print("socket", default_socket_path(read_environment));
  const std::string warning = alone_warning(identity.value(), read_environment);
  if (!warning.empty()) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  return kExitOk;
}

}  // namespace

Action declare_env(CLI::App& app) {
  app.footer(
      "The first of these decides: GRADBUS_*, torchrun, Horovod, Open MPI, PMI, Slurm. Without "
      "any of them, the process is a world of one.");
  return show_environment;
}

}  // namespace gradbus
