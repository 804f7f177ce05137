// `gradbus trace JOB`: records what the ranks and agents of a running job do, into a file.
#include <poll.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/cluster/coordinator_client.h"
#include "cli/command.h"
#include "cli/process/signal_queue.h"
#include "cli/timeline/trace_file.h"
#include "common/clock.h"

namespace gradbus {
namespace {

constexpr int kAskEveryMs = 500;
constexpr double kSecondsMax = 1e6;

struct TraceOptions {
  std::string job;
  std::string file = "trace.json";
  double seconds = 5;
  bool to_the_end = false;
  bool wait = false;
  std::string coordinator;
  std::string token_file;
};

// Until the job or the time ends, or somebody presses Ctrl-C.
Status record(const TraceOptions& options, CoordinatorClient& client, SignalQueue& signals,
              TraceFile& file) {
  Nanos until = 0;  // 0: the job has not started
  for (bool last = false; !last;) {
    pollfd stop{.fd = signals.fd(), .events = POLLIN, .revents = 0};
    const bool pressed = poll(&stop, 1, kAskEveryMs) > 0 && signals.take().has_value();
    last = pressed || (until != 0 && monotonic_now() >= until);
    v1::TraceRequest request;
    request.set_job(options.job);
    request.set_wait(options.wait);
    request.set_finish(last);
    const Result<v1::TraceReply> reply = client.trace(request);
    if (!reply.ok()) return reply.status();
    file.add(reply.value());
    last |= reply.value().state() == v1::TraceReply::ENDED;
    if (until == 0 && !options.to_the_end && reply.value().state() == v1::TraceReply::RUNNING)
      until = monotonic_now() + static_cast<Nanos>(options.seconds * kSecond);
  }
  return {};
}

int trace(const TraceOptions& options) {
  // The traced job may need every core. Where this fails, the trace costs the job a little more.
  const sched_param unused{};
  (void)sched_setscheduler(0, SCHED_IDLE, &unused);
  SignalQueue signals;
  Result<std::unique_ptr<TraceFile>> file = TraceFile::create(options.file, options.job);
  if (!file.ok()) return fail(file.status(), kExitFailed);
  CoordinatorClient client(coordinator_address(options.coordinator), options.token_file);
  const Status recorded = record(options, client, signals, *file.value());
  const Status written = file.value()->finish();
  if (!recorded.ok()) return fail(recorded, kExitFailed);
  if (!written.ok()) return fail(written, kExitFailed);
  const uint64_t dropped = file.value()->dropped();
  std::fprintf(stderr, "gradbus trace: %llu spans of job %s in %s%s\n",
               static_cast<unsigned long long>(file.value()->spans()), options.job.c_str(),
               options.file.c_str(),
               dropped == 0 ? "" : ("; " + std::to_string(dropped) + " found no room").c_str());
  return kExitOk;
}

}  // namespace

Action declare_trace(CLI::App& app) {
  auto options = std::make_shared<TraceOptions>();
  app.add_option("job", options->job, "the job's name, as in gradbus status")->required();
  auto* const seconds = app.add_option("--seconds", options->seconds, "how long; default 5")
                            ->check(CLI::Range(0.1, kSecondsMax));
  app.add_flag("--to-the-end", options->to_the_end, "until the job ends")->excludes(seconds);
  app.add_flag("--wait", options->wait, "wait until a job of this name starts");
  app.add_option("-o,--output", options->file, "file to write; default trace.json");
  app.add_option("--coordinator", options->coordinator,
                 "HOST:PORT; default: GRADBUS_COORDINATOR, else 127.0.0.1:7400");
  app.add_option(
      "--token-file", options->token_file,
      "the cluster token; default: that of this user's own run, else GRADBUS_TOKEN_FILE");
  app.footer(
      "Only the job's owner and root may do this. The file opens in https://ui.perfetto.dev and\n"
      "chrome://tracing; gradbus timeline FILE sums it up. Ctrl-C ends the trace early.\n\n"
      "  gradbus trace train --seconds 5 -o trace.json");
  return [options] { return trace(*options); };
}

}  // namespace gradbus
