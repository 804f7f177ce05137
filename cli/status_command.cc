// `gradbus status`: exit 0 when all is well, 1 when something is not, 2 when no coordinator
// answers.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/coordinator_client.h"
#include "cli/poll_set.h"
#include "cli/signal_queue.h"
#include "cli/status_view.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr int kExitUnhealthy = 1;
constexpr int kExitNoCoordinator = 2;
constexpr Nanos kRefresh = kSecond;

struct StatusOptions {
  std::string coordinator;
  std::string token_file;
  std::string job;
  bool json = false;
  bool watch = false;
};

int print_once(CoordinatorClient& client, const StatusOptions& options, const std::string& address,
               const char* before) {
  const Result<v1::StatusReply> reply = client.status(options.job);
  std::fputs(before, stdout);
  if (!reply.ok()) {
    std::fflush(stdout);
    return fail(reply.status(), kExitNoCoordinator);
  }
  if (!options.job.empty() && reply.value().jobs().empty())
    return fail(
        error("J406", "the coordinator at " + address + " knows no job \"" + options.job + "\""),
        kExitUnhealthy);
  std::string text = options.json ? status_json(reply.value(), address) + "\n"
                                  : status_text(reply.value(), address);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  return is_healthy(reply.value()) ? kExitOk : kExitUnhealthy;
}

// Until a signal: that is how a person ends it, so it is no failure.
int watch(CoordinatorClient& client, const StatusOptions& options, const std::string& address,
          SignalQueue& signals) {
  const char* clear = isatty(STDOUT_FILENO) == 1 && !options.json ? "\x1b[H\x1b[2J" : "";
  PollSet set;
  int last = kExitOk;
  while (!signals.take()) {
    const Nanos next = monotonic_now() + kRefresh;
    last = print_once(client, options, address, clear);
    if (std::ferror(stdout) != 0) break;  // the reader has gone
    set.clear();
    set.watch(signals.fd(), POLLIN);
    set.wait_until(next);
  }
  return last;
}

int status(const StatusOptions& options) {
  const std::string address = coordinator_address(options.coordinator);
  if (!options.watch) {
    CoordinatorClient client(address, options.token_file);
    return print_once(client, options, address, "");
  }
  SignalQueue signals;  // before gRPC's threads, so that they leave the signals to us
  CoordinatorClient client(address, options.token_file);
  return watch(client, options, address, signals);
}

}  // namespace

Action declare_status(CLI::App& app) {
  auto options = std::make_shared<StatusOptions>();
  app.footer("Exit code: 0 all is well, 1 something is not, 2 no coordinator answers.");
  app.add_flag("--json", options->json, "one JSON object (one a second with --watch)");
  app.add_flag("--watch", options->watch, "refresh each second until Ctrl-C");
  app.add_option("--job", options->job, "this job only");
  app.add_option("--coordinator", options->coordinator,
                 "HOST:PORT; default: GRADBUS_COORDINATOR, else 127.0.0.1:7400");
  app.add_option(
      "--token-file", options->token_file,
      "the cluster token; default: that of this user's own run, else GRADBUS_TOKEN_FILE");
  return [options] { return status(*options); };
}

}  // namespace gradbus
