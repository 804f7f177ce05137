// `gradbus stop JOB`: every rank of the job gets an error that says who asked and why.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/coordinator_client.h"

namespace gradbus {
namespace {

struct StopOptions {
  std::string job;
  std::string reason;
  std::string coordinator;
};

int stop(const StopOptions& options) {
  const std::string address = coordinator_address(options.coordinator);
  const std::string reason = asker("stop") + (options.reason.empty() ? "" : ": " + options.reason);
  const Status done = CoordinatorClient(address).stop_job(options.job, reason);
  if (!done.ok()) return fail(done, kExitFailed);
  std::printf("job %s is stopped\n", options.job.c_str());
  return kExitOk;
}

}  // namespace

Action declare_stop(CLI::App& app) {
  auto options = std::make_shared<StopOptions>();
  app.add_option("job", options->job, "the job's name, as in gradbus status")->required();
  app.add_option("--reason", options->reason, "a sentence for the ranks' error");
  app.add_option("--coordinator", options->coordinator,
                 "HOST:PORT; default: GRADBUS_COORDINATOR, else 127.0.0.1:7400");
  return [options] { return stop(*options); };
}

}  // namespace gradbus
