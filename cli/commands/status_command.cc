// `gradbus status`: exit 0 when the cluster is healthy, 1 when it is not or the job of --job has
// failed, 2 when no coordinator answers.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/cluster/coordinator_client.h"
#include "cli/cluster/coordinator_options.h"
#include "cli/command.h"
#include "cli/process/poll_set.h"
#include "cli/process/signal_queue.h"
#include "cli/status/status_view.h"
#include "cli/terminal/json_line.h"
#include "cli/terminal/terminal.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr int kExitUnhealthy = 1;
constexpr Nanos kRefresh = kSecond;

struct StatusOptions : CoordinatorOptions {
  std::string job;
  std::string forget;
  bool json = false;
  bool tensors = false;
  bool watch = false;
};

// Lines of a page on the terminal; 0: the output is none, or its size is not known.
size_t terminal_rows() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 2) return 0;
  return size.ws_row - 1u;  // the cursor is below the last line
}

// The newest job of a name is the one that is meant.
bool has_failed(const v1::StatusReply& reply) {
  const auto newest = std::min_element(
      reply.jobs().begin(), reply.jobs().end(),
      [](const auto& one, const auto& other) { return one.age_ms() < other.age_ms(); });
  return newest != reply.jobs().end() && newest->outcome() == "failed";
}

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
  const bool page = options.watch && moves_cursor(STDOUT_FILENO);
  const StatusView view{address, page ? terminal_rows() : 0, !options.job.empty(), options.tensors};
  const std::string text =
      options.json ? status_json(reply.value(), address) + "\n" : status_text(reply.value(), view);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  if (!options.job.empty() && has_failed(reply.value())) return kExitUnhealthy;
  return problems(reply.value()).empty() ? kExitOk : kExitUnhealthy;
}

// Until a signal: that is how a person ends it, so it is no failure.
int watch(CoordinatorClient& client, const StatusOptions& options, const std::string& address,
          SignalQueue& signals) {
  const char* clear = moves_cursor(STDOUT_FILENO) && !options.json ? "\x1b[H\x1b[2J" : "";
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
  if (!options.forget.empty()) {
    const Status done =
        CoordinatorClient(address, options.token_file).forget_node(options.forget, asker("status"));
    if (!done.ok()) return fail(done, kExitFailed);
    if (options.json)
      print_json_line({{"node", options.forget}, {"forgotten", true}});
    else
      std::printf("node %s is forgotten\n", options.forget.c_str());
    return kExitOk;
  }
  if (!options.watch) {
    CoordinatorClient client(address, options.token_file);
    return print_once(client, options, address, "");
  }
  SignalQueue signals;  // before gRPC's threads, so that they leave the signals to us
  CoordinatorClient client(address, options.token_file, kPagePatience);
  return watch(client, options, address, signals);
}

}  // namespace

Action declare_status(CLI::App& app) {
  auto options = std::make_shared<StatusOptions>();
  app.footer(
      "Exit code: 0 if the cluster is healthy; 1 if it is not (lost nodes or shards, late ranks) "
      "or if the job of --job has failed; 2 if no coordinator answers.");
  app.add_flag("--json", options->json, "one JSON object (one a second with --watch)");
  app.add_flag("--watch", options->watch, "refresh each second until Ctrl-C");
  app.add_flag("--tensors", options->tensors,
               "with --job: how each tensor is exchanged, and why; --json always has it")
      ->needs(app.add_option("--job", options->job, "this job only"));
  app.add_option("--forget", options->forget, "forget a lost node that will not return");
  add_coordinator_options(app, *options);
  return [options] { return status(*options); };
}

}  // namespace gradbus
