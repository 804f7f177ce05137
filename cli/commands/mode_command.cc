// `gradbus mode JOB GROUP MODE`: from its next fence on the job exchanges the group in this mode.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/cluster/admin_call.h"
#include "cli/cluster/coordinator_client.h"
#include "cli/cluster/coordinator_options.h"
#include "cli/command.h"
#include "cli/terminal/json_line.h"

namespace gradbus {
namespace {

struct ModeOptions : CoordinatorOptions {
  std::string job;
  std::string group;
  std::string mode;
  std::string reason;
  bool json = false;
};

int change_mode(const ModeOptions& options) {
  const std::string reason = asker("mode") + (options.reason.empty() ? "" : ": " + options.reason);
  const Status done =
      administer({AdminWish::kMode, options.job, options.group, options.mode, reason},
                 options.coordinator, options.token_file);
  if (!done.ok()) return fail(done, kExitFailed);
  if (options.json)
    print_json_line({{"job", options.job}, {"group", options.group}, {"mode", options.mode}});
  else
    std::printf("job %s exchanges \"%s\" in mode %s from its next fence on (flush())\n",
                options.job.c_str(), options.group.c_str(), options.mode.c_str());
  return kExitOk;
}

}  // namespace

Action declare_mode(CLI::App& app) {
  auto options = std::make_shared<ModeOptions>();
  app.add_option("job", options->job, "the job's name, as in gradbus status")->required();
  app.add_option("group", options->group, "parameters by name: \"embedding.*\", \"*\"")->required();
  app.add_option("mode", options->mode, "sync, delayed:k=1, ps:async, ... (docs/concepts/modes.md)")
      ->required();
  app.add_option("--reason", options->reason, "a text for the log and gradbus status");
  app.add_flag("--json", options->json, "one JSON object");
  add_coordinator_options(app, *options);
  app.footer(
      "Only the job's owner and root may do this. Without the cluster token, this node's agent "
      "forwards the request. The mode changes at the job's next fence, where nothing is in "
      "flight: optimizer.flush(), or every N steps with gradbus run --fence-every N.\n\n"
      "  gradbus mode train \"*\" delayed:k=1 --reason \"node 7 is slow until Monday\"");
  return [options] { return change_mode(*options); };
}

}  // namespace gradbus
