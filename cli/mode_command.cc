// `gradbus mode JOB GROUP MODE`: from its next fence on the job exchanges the group in this mode.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/coordinator_client.h"

namespace gradbus {
namespace {

struct ModeOptions {
  std::string job;
  std::string group;
  std::string mode;
  std::string reason;
  std::string coordinator;
};

int change_mode(const ModeOptions& options) {
  v1::ChangeModeRequest request;
  request.set_job(options.job);
  request.set_group(options.group);
  request.set_mode(options.mode);
  request.set_reason(asker("mode") + (options.reason.empty() ? "" : ": " + options.reason));
  const std::string address = coordinator_address(options.coordinator);
  const Status done = CoordinatorClient(address).change_mode(request);
  if (!done.ok()) return fail(done, kExitFailed);
  std::printf("job %s exchanges \"%s\" in mode %s from its next fence on (flush())\n",
              options.job.c_str(), options.group.c_str(), options.mode.c_str());
  return kExitOk;
}

}  // namespace

Action declare_mode(CLI::App& app) {
  auto options = std::make_shared<ModeOptions>();
  app.add_option("job", options->job, "the job's name, as in gradbus status")->required();
  app.add_option("group", options->group, "parameters by name: \"embedding.*\", \"*\"")->required();
  app.add_option("mode", options->mode, "sync, delayed:k=1, ps:async, ... (docs/MODES.md)")
      ->required();
  app.add_option("--reason", options->reason, "a sentence for the log and gradbus status");
  app.add_option("--coordinator", options->coordinator,
                 "HOST:PORT; default: GRADBUS_COORDINATOR, else 127.0.0.1:7400");
  app.footer(
      "A fence is where all ranks are at one point with nothing under way: optimizer.flush(), or\n"
      "every N steps of a job that was started with gradbus run --fence-every N.\n\n"
      "  gradbus mode train \"*\" delayed:k=1 --reason \"node 7 is slow until Monday\"");
  return [options] { return change_mode(*options); };
}

}  // namespace gradbus
