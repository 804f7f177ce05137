// `gradbus events`: what has happened in the cluster, oldest first. Exit 0, or 2 when no
// coordinator answers.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <memory>

#include "cli/cluster/coordinator_client.h"
#include "cli/cluster/coordinator_options.h"
#include "cli/command.h"
#include "cli/process/poll_set.h"
#include "cli/process/signal_queue.h"
#include "cli/status/events_text.h"
#include "cli/status/status_view.h"
#include "cli/terminal/full_screen.h"
#include "common/clock.h"

namespace gradbus {
namespace {

constexpr Nanos kFollowEvery = kSecond / 2;

struct EventsOptions : CoordinatorOptions {
  std::string job;
  std::string node;
  bool follow = false;
  bool json = false;
};

bool is_wanted(const v1::Event& event, const EventsOptions& options) {
  return (options.job.empty() || event.job() == options.job) &&
         (options.node.empty() || event.node() == options.node);
}

v1::EventsReply wanted(const v1::EventsReply& reply, const EventsOptions& options) {
  v1::EventsReply shown = reply;
  shown.clear_events();
  for (const v1::Event& event : reply.events())
    if (is_wanted(event, options)) *shown.add_events() = event;
  return shown;
}

void print_lines(const v1::EventsReply& reply, const EventsOptions& options) {
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  const EventsView view{time(nullptr), terminal ? FullScreen::size().columns : 0};
  for (const v1::Event& event : reply.events())
    std::fputs((options.json ? event_json(event) + "\n" : event_line(event, view)).c_str(), stdout);
  std::fflush(stdout);
}

int print_events(CoordinatorClient& client, const EventsOptions& options) {
  const Result<v1::EventsReply> reply = client.events(0);
  if (!reply.ok()) return fail(reply.status(), kExitNoCoordinator);
  const v1::EventsReply shown = wanted(reply.value(), options);
  if (options.json) {
    std::puts(events_json(shown).c_str());
    return kExitOk;
  }
  std::fputs(events_head().c_str(), stdout);
  print_lines(shown, options);
  return kExitOk;
}

// A restarted coordinator counts from 1 again. While none answers, this says so once and waits.
int follow(CoordinatorClient& client, const EventsOptions& options, SignalQueue& signals) {
  PollSet set;
  uint64_t last = 0;
  uint64_t incarnation = 0;
  bool answered = false;
  bool silent = false;
  if (!options.json) std::fputs(events_head().c_str(), stdout);
  while (!signals.take() && std::ferror(stdout) == 0) {
    const Nanos next = monotonic_now() + kFollowEvery;
    Result<v1::EventsReply> reply = client.events(last);
    if (reply.ok() && reply.value().incarnation() != incarnation) {
      incarnation = reply.value().incarnation();
      if (answered) reply = client.events(last = 0);
    }
    if (!reply.ok() && !answered) return fail(reply.status(), kExitNoCoordinator);
    if (!reply.ok() && !silent) fail(reply.status(), 0);
    silent = !reply.ok();
    if (reply.ok()) {
      answered = true;
      print_lines(wanted(reply.value(), options), options);
      if (reply.value().events_size() > 0) last = reply.value().events().rbegin()->number();
    }
    set.clear();
    set.watch(signals.fd(), POLLIN);
    set.wait_until(next);
  }
  return kExitOk;
}

int events(const EventsOptions& options) {
  const std::string address = coordinator_address(options.coordinator);
  if (!options.follow) {
    CoordinatorClient client(address, options.token_file);
    return print_events(client, options);
  }
  SignalQueue signals;  // before gRPC's threads, so that they leave the signals to us
  CoordinatorClient client(address, options.token_file);
  return follow(client, options, signals);
}

}  // namespace

Action declare_events(CLI::App& app) {
  auto options = std::make_shared<EventsOptions>();
  app.footer(
      "The coordinator keeps the last 1,024 events since its start. docs/reference/events.md lists "
      "their kinds.\nExit code: 0; 2 if no coordinator answers.");
  app.add_flag("--follow,-f", options->follow, "print new events until Ctrl-C");
  app.add_option("--job", options->job, "events of this job only");
  app.add_option("--node", options->node, "events of this node only");
  app.add_flag("--json", options->json, "a JSON array; with --follow, one object a line");
  add_coordinator_options(app, *options);
  return [options] { return events(*options); };
}

}  // namespace gradbus
