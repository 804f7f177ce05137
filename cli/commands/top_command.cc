// `gradbus top` and `gradbus jobs`: exit 0, or 2 when no coordinator answers.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/cluster/coordinator_client.h"
#include "cli/cluster/coordinator_options.h"
#include "cli/command.h"
#include "cli/options/number_range.h"
#include "cli/process/poll_set.h"
#include "cli/process/signal_queue.h"
#include "cli/status/status_view.h"
#include "cli/status/top_view.h"
#include "cli/terminal/full_screen.h"
#include "cli/terminal/terminal.h"
#include "common/clock.h"

namespace gradbus {
namespace {

struct TopOptions : CoordinatorOptions {
  double every = 1;
  bool once = false;
  bool json = false;
};

// Whether the keys that wait change the view; `ended`: one of them ends the command.
bool take_keys(FullScreen& screen, TopView& view, bool& ended) {
  bool changed = false;
  while (const std::optional<char> key = screen.key()) {
    changed = true;
    if (*key == 'q' || *key == '\x1b') ended = true;
    if (*key == 'n') view.nodes = !view.nodes, view.first = 0;
    if (*key == 'j') ++view.first;
    if (*key == 'k' && view.first > 0) --view.first;
    set_order(*key, view.order);
  }
  ended = ended || screen.ended();
  return changed;
}

// A coordinator that does not answer is shown, and asked again: it may be restarted.
int live(CoordinatorClient& client, TopView view, SignalQueue& signals, Nanos every) {
  FullScreen screen;
  PollSet set;
  Result<v1::StatusReply> reply = client.status("");
  Nanos next = monotonic_now() + every;
  for (bool ended = false; !ended && !signals.take();) {
    const auto [rows, columns] = FullScreen::size();
    view.rows = rows;
    view.columns = columns;
    screen.show(reply.ok() ? top_text(reply.value(), view) : reply.status().message());
    if (std::ferror(stdout) != 0) break;  // the terminal has gone
    set.clear();
    set.watch(signals.fd(), POLLIN);
    set.watch(STDIN_FILENO, POLLIN);
    set.wait_until(next);
    take_keys(screen, view, ended);
    if (ended || monotonic_now() < next) continue;
    reply = client.status("");
    next = monotonic_now() + every;
  }
  return reply.ok() ? kExitOk : kExitNoCoordinator;
}

int print_top(CoordinatorClient& client, const TopOptions& options, const TopView& view) {
  const Result<v1::StatusReply> reply = client.status("");
  if (!reply.ok()) return fail(reply.status(), kExitNoCoordinator);
  std::puts(options.json ? status_json(reply.value(), view.address).c_str()
                         : top_text(reply.value(), view).c_str());
  return kExitOk;
}

int top(const TopOptions& options) {
  TopView view;
  view.address = coordinator_address(options.coordinator);
  const bool terminal = moves_cursor(STDOUT_FILENO) && isatty(STDIN_FILENO) == 1;
  if (!terminal || options.once || options.json) {
    view.rows = 0;
    CoordinatorClient client(view.address, options.token_file);
    return print_top(client, options, view);
  }
  view.bold = shows_colour(STDOUT_FILENO);
  SignalQueue signals;  // before gRPC's threads, so that they leave the signals to us
  CoordinatorClient client(view.address, options.token_file, kPagePatience);
  return live(client, view, signals, static_cast<Nanos>(options.every * kSecond));
}

int jobs(const TopOptions& options) {
  CoordinatorClient client(coordinator_address(options.coordinator), options.token_file);
  const Result<v1::StatusReply> reply = client.status("");
  if (!reply.ok()) return fail(reply.status(), kExitNoCoordinator);
  const size_t columns = terminal_columns(STDOUT_FILENO);
  const std::string text =
      options.json ? jobs_json(reply.value()) : jobs_text(reply.value(), columns);
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace

Action declare_top(CLI::App& app) {
  auto options = std::make_shared<TopOptions>();
  app.footer(
      "Keys: q ends it; w, b, o and r sort by waits, bytes, operations and rank; n changes between "
      "ranks and nodes; j and k scroll.\nExit code: 0; 2 if no coordinator answers.");
  app.add_option("--every", options->every, "seconds between two pages")
      ->check(number_range(0.1, 3600.0));
  app.add_flag("--once", options->once, "print one page and exit; also if this is no terminal");
  app.add_flag("--json", options->json, "one JSON object as of status --json, and exit");
  add_coordinator_options(app, *options);
  return [options] { return top(*options); };
}

Action declare_jobs(CLI::App& app) {
  auto options = std::make_shared<TopOptions>();
  app.footer("Exit code: 0; 2 if no coordinator answers.");
  app.add_flag("--json", options->json, "a JSON array with an object for each job");
  add_coordinator_options(app, *options);
  return [options] { return jobs(*options); };
}

}  // namespace gradbus
