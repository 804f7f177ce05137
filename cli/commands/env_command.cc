// `gradbus env`: which launcher's variables would decide rank and world size of a process here.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "client_lib/src/launch_env.h"
#include "client_lib/src/launch_warnings.h"

namespace gradbus {
namespace {

void print_value(const char* what, const std::string& value) {
  std::printf("%-12s %s\n", what, value.c_str());
}

int show_environment(bool as_json) {
  const Result<LaunchIdentity> identity = find_identity({}, read_environment);
  if (!identity.ok()) return fail(identity.status(), kExitFailed);
  const std::string warning = alone_warning(identity.value(), read_environment);
  if (as_json) {
    const nlohmann::ordered_json object = {{"launcher", identity.value().launcher},
                                           {"job", identity.value().job},
                                           {"rank", identity.value().rank},
                                           {"world_size", identity.value().world_size},
                                           {"socket", default_socket_path(read_environment)},
                                           {"warning", warning}};
    const auto replace = nlohmann::ordered_json::error_handler_t::replace;
    std::puts(object.dump(-1, ' ', false, replace).c_str());
    return kExitOk;
  }
  print_value("launcher", identity.value().launcher);
  print_value("job", identity.value().job);
  print_value("rank", std::to_string(identity.value().rank));
  print_value("world size", std::to_string(identity.value().world_size));
  print_value("socket", default_socket_path(read_environment));
  if (!warning.empty()) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  return kExitOk;
}

}  // namespace

Action declare_env(CLI::App& app) {
  app.footer(
      "The first of these decides: GRADBUS_*, torchrun, Horovod, Open MPI, PMI, Slurm. Without "
      "any of them, the process is a world of one.");
  auto as_json = std::make_shared<bool>(false);
  app.add_flag("--json", *as_json, "one JSON object");
  return [as_json] { return show_environment(*as_json); };
}

}  // namespace gradbus
