// `gradbus trace JOB`: records what the ranks and agents of a running job do, into a file.
#include <poll.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <random>

#include "cli/cluster/coordinator_client.h"
#include "cli/cluster/coordinator_options.h"
#include "cli/command.h"
#include "cli/options/number_range.h"
#include "cli/process/signal_queue.h"
#include "cli/terminal/json_line.h"
#include "cli/timeline/trace_file.h"
#include "common/clock.h"

namespace gradbus {
namespace {

constexpr int kAskEveryMs = 500;
constexpr int kNice = 10;  // the traced job may need every core
constexpr double kSecondsMax = 1e6;

struct TraceOptions : CoordinatorOptions {
  std::string job;
  std::string file = "trace.json";
  double seconds = 5;
  bool to_the_end = false;
  bool wait = false;
  bool json = false;
};

// Until the job or the time ends, or somebody presses Ctrl-C. The file is made at the first answer.
Status record(const TraceOptions& options, CoordinatorClient& client, SignalQueue& signals,
              std::unique_ptr<TraceFile>& file) {
  std::random_device random;
  const uint64_t tool = uint64_t{random()} << 32 | random();
  Nanos until = 0;  // 0: the job has not started
  for (bool last = false; !last;) {
    v1::TraceRequest request;
    request.set_job(options.job);
    request.set_wait(options.wait);
    request.set_finish(signals.first() != 0 || (until != 0 && monotonic_now() >= until));
    request.set_tool(tool);
    last = request.finish();
    const Result<v1::TraceReply> reply = client.trace(request);
    if (reply.ok()) {
      if (file == nullptr) {
        Result<std::unique_ptr<TraceFile>> made = TraceFile::create(options.file, options.job);
        if (!made.ok()) return made.status();
        file = made.take();
      }
      file->add(reply.value());
      last |= reply.value().state() == v1::TraceReply::ENDED;
      if (until == 0 && !options.to_the_end && reply.value().state() == v1::TraceReply::RUNNING)
        until = monotonic_now() + static_cast<Nanos>(options.seconds * kSecond);
    } else if (!options.to_the_end || reply.status().code() != Code::kUnavailable) {
      return reply.status();
    }  // else: the coordinator may come back
    pollfd stop{.fd = signals.fd(), .events = POLLIN, .revents = 0};
    if (!last && poll(&stop, 1, kAskEveryMs) > 0) signals.take();
  }
  return {};
}

int trace(const TraceOptions& options) {
  setpriority(PRIO_PROCESS, 0, kNice);
  SignalQueue signals;
  CoordinatorClient client(coordinator_address(options.coordinator), options.token_file);
  std::unique_ptr<TraceFile> file;
  const Status recorded = record(options, client, signals, file);
  const Status written = file == nullptr ? Status() : file->finish();
  if (!recorded.ok()) return fail(recorded, kExitFailed);
  if (!written.ok()) return fail(written, kExitFailed);
  if (file == nullptr) return kExitFailed;  // stopped before the first answer
  const uint64_t dropped = file->dropped();
  if (options.json) {
    print_json_line({{"job", options.job},
                     {"file", options.file},
                     {"spans", file->spans()},
                     {"dropped", dropped}});
    return kExitOk;
  }
  std::fprintf(stderr, "gradbus trace: %llu spans of job %s in %s%s\n",
               static_cast<unsigned long long>(file->spans()), options.job.c_str(),
               options.file.c_str(),
               dropped == 0 ? "" : ("; " + std::to_string(dropped) + " found no room").c_str());
  return kExitOk;
}

}  // namespace

Action declare_trace(CLI::App& app) {
  auto options = std::make_shared<TraceOptions>();
  app.add_option("job", options->job, "the job's name, as in gradbus status")->required();
  auto* const seconds = app.add_option("--seconds", options->seconds, "how long; default 5")
                            ->check(number_range(0.1, kSecondsMax));
  app.add_flag("--to-the-end", options->to_the_end, "until the job ends")->excludes(seconds);
  app.add_flag("--wait", options->wait, "wait until a job of this name starts");
  app.add_option("-o,--output", options->file, "file to write; default trace.json");
  app.add_flag("--json", options->json, "one JSON object");
  add_coordinator_options(app, *options);
  app.footer(
      "Only the job's owner and root may do this. The file opens in https://ui.perfetto.dev and "
      "chrome://tracing; gradbus timeline FILE sums it up. Ctrl-C ends the trace early.\n\n"
      "  gradbus trace train --seconds 5 -o trace.json");
  return [options] { return trace(*options); };
}

}  // namespace gradbus
