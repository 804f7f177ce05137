// `gradbus stop JOB`: every rank of the job gets an error that says who asked and why.
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

struct StopOptions : CoordinatorOptions {
  std::string job;
  std::string reason;
  bool json = false;
};

int stop(const StopOptions& options) {
  const std::string reason = asker("stop") + (options.reason.empty() ? "" : ": " + options.reason);
  const Status done = administer({AdminWish::kStop, options.job, "", "", reason},
                                 options.coordinator, options.token_file);
  if (!done.ok()) return fail(done, kExitFailed);
  if (options.json)
    print_json_line({{"job", options.job}, {"stopped", true}});
  else
    std::printf("job %s is stopped\n", options.job.c_str());
  return kExitOk;
}

}  // namespace

Action declare_stop(CLI::App& app) {
  auto options = std::make_shared<StopOptions>();
  app.add_option("job", options->job, "the job's name, as in gradbus status")->required();
  app.add_option("--reason", options->reason, "a text for the ranks' error");
  app.add_flag("--json", options->json, "one JSON object");
  add_coordinator_options(app, *options);
  app.footer(
      "Only the job's owner and root may do this. Without the cluster token, this node's agent "
      "forwards the request.");
  return [options] { return stop(*options); };
}

}  // namespace gradbus
