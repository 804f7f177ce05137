// `gradbus run`: options -> plan -> daemons (those that answer, or embedded ones) -> job.
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "cli/cluster/agent_socket.h"
#include "cli/cluster/cluster_layout.h"
#include "cli/cluster/coordinator_client.h"
#include "cli/cluster/embedded_cluster.h"
#include "cli/command.h"
#include "cli/launch/launch_plan.h"
#include "cli/launch/launched_job.h"
#include "cli/options/horovod_options.h"
#include "cli/options/number_range.h"
#include "cli/options/policy_file.h"
#include "cli/options/run_options.h"
#include "cli/process/orphan_guard.h"
#include "common/environment/state_folder.h"
#include "common/errors.h"
#include "common/policy/sync_mode.h"
#include "common/system_error.h"
#include "common/units.h"
#include "transport/registry.h"

namespace gradbus {
namespace {

constexpr rlim_t kOwnFiles = kDaemonFilesMin;  // daemons inherit the limit

bool wants_colour(const RunOptions& options) {
  const char* no_colour = std::getenv("NO_COLOR");
  return !options.no_colour && (no_colour == nullptr || *no_colour == '\0');
}

// The local agent is looked for unless the user wants embedded ones.
Result<LaunchPlan> plan_job(const RunOptions& options) {
  if (options.embedded || !options.agents.empty() || shard_count(options) > 0)
    return make_plan(options, "");
  Result<std::string> socket = find_agent_socket();
  if (!socket.ok()) return socket.status();
  return make_plan(options, socket.value());
}

// Each rank costs three descriptors here and a few more while it starts.
Status prepare_open_files(int ranks) {
  rlimit limit{};
  const rlim_t wanted = static_cast<rlim_t>(ranks) * 4 + 64;
  const rlim_t needed = static_cast<rlim_t>(ranks) * 3 + kOwnFiles;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return {};
  limit.rlim_cur = std::min(limit.rlim_max, wanted);
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= needed) return {};
  return error("S220",
               counted(ranks, "rank") + " and their daemons need " + std::to_string(needed) +
                   " open files, and this process may open " + std::to_string(limit.rlim_cur),
               "raise the limit: ulimit -n " + std::to_string(wanted));
}

Status make_output_directory(const std::string& path) {
  std::error_code problem;
  if (!path.empty()) std::filesystem::create_directories(path, problem);
  if (!problem) return {};
  return error("H200", "the directory " + path + " cannot be made: " + problem.message(),
               "choose another --output-filename");
}

void tell_plan(Screen& screen, const RunOptions& options, const LaunchPlan& plan,
               const EmbeddedCluster& cluster) {
  std::string text = "gradbus run: job " + plan.job + ", " + counted(plan.ranks, "rank") + ", ";
  const int shards = shard_count(options);
  const std::string and_shards = shards > 0 ? " and " + counted(shards, "shard") : "";
  text += plan.embedded
              ? counted(plan.blocks.size(), "embedded agent") + and_shards + ", coordinator " +
                    cluster.coordinator() + ", token file " + cluster.token_file()
              : "the agent at " + (plan.socket.empty() ? "each host" : plan.socket);
  if (cluster.lab() != nullptr) text += ", links of " + options.link;
  screen.note(text);
}

using FileTime = std::filesystem::file_time_type;

// The earliest time for a file that is not there.
FileTime written_at(const std::string& path) {
  std::error_code problem;
  const FileTime time = std::filesystem::last_write_time(path, problem);
  return problem ? FileTime::min() : time;
}

int start_and_wait(const RunOptions& options, const LaunchPlan& plan, const ClusterLayout& layout,
                   SignalQueue& signals, OrphanGuard& guard) {
  Screen screen(STDOUT_FILENO, STDERR_FILENO, {wants_colour(options)});
  EmbeddedCluster cluster(screen, guard, options.verbose);
  if (plan.embedded) {
    const Status started = cluster.start(layout, signals);
    if (signals.first() != 0) return 128 + signals.first();
    if (!started.ok()) return fail(started, kExitFailed);
    cluster.restart_agents(options.restart_agents);
  }
  if (options.verbose) tell_plan(screen, options, plan, cluster);
  const auto sockets =
      plan.embedded ? cluster.sockets() : std::vector<std::string>(plan.blocks.size(), plan.socket);
  std::unique_ptr<TraceRecorder> trace;
  if (!options.timeline.empty()) {
    Result<std::unique_ptr<TraceRecorder>> recorder = TraceRecorder::start(
        options.timeline, plan.job, plan.embedded ? cluster.coordinator() : coordinator_address(""),
        plan.embedded ? cluster.token_file() : "",
        cluster.lab() != nullptr ? cluster.lab()->coordinator_netns() : -1);
    if (!recorder.ok()) return fail(recorder.status(), kExitFailed);
    trace = recorder.take();
  }
  const RankStarter starter{
      plan, options, screen, guard, sockets, cluster.coordinator(), usable_cores(), cluster.lab()};
  const FileTime before = written_at(options.record);
  const int code =
      LaunchedJob(starter, screen, signals, plan.embedded ? &cluster : nullptr, trace.get()).run();
  if (!options.record.empty() && written_at(options.record) == before)
    std::fprintf(stderr,
                 "warning: --record %s: nothing was recorded: it needs gradbus.torch and at "
                 "least 10 steps | next: docs/how-to/plan-a-cluster.md\n",
                 options.record.c_str());
  return code;
}

// As a shell has it.
int exit_code_without(const std::string& program) {
  const bool is_path = program.find('/') != std::string::npos;
  return is_path && access(program.c_str(), F_OK) == 0 ? kExitNotExecutable : kExitNotFound;
}

// The ranks find it in their environment. An embedded coordinator ends with its job, so it keeps
// what was found in a folder of the user.
void tell_tuning() {
  setenv("GRADBUS_AUTOTUNE", "1", 1);
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::string folder;
  if (state != nullptr && *state == '/') folder = state;
  if (folder.empty() && home != nullptr && *home == '/')
    folder = std::string(home) + "/.local/state";
  if (folder.empty() || std::getenv("GRADBUS_SERVER_STATE_DIR") != nullptr) return;
  folder += "/gradbus";
  const Status writable = check_state_folder(folder);
  if (writable.ok()) setenv("GRADBUS_SERVER_STATE_DIR", folder.c_str(), 0);
  // It is our own choice of a folder, so the job runs without it.
  if (!writable.ok())
    std::fprintf(stderr, "warning: %s\n",
                 writable.with_context("settings end with this job").message().c_str());
}

// The ranks find it in their environment, those of other hosts too.
Status tell_policy(const RunOptions& options) {
  const Result<PolicyVariables> found =
      policy_variables(options.compression, options.mode, options.policy, options.schedule);
  if (!found.ok()) return found.status();
  const auto set = [](const RuleVariable& variable, const std::string& text) {
    if (!text.empty()) setenv(variable.name, text.c_str(), 1);
  };
  set(compression_variable(), found.value().compression);
  set(mode_variable(), found.value().mode);
  if (!found.value().schedule.empty())
    setenv("GRADBUS_SCHEDULE", found.value().schedule.c_str(), 1);
  if (options.autotune) tell_tuning();
  if (!options.record.empty())
    setenv("GRADBUS_RECORD", std::filesystem::absolute(options.record).c_str(), 1);
  if (!options.autotune_log.empty())
    setenv("GRADBUS_AUTOTUNE_LOG", options.autotune_log.c_str(), 1);
  return {};
}

// Embedded agents read it from the environment.
Status tell_transport(const RunOptions& options, const LaunchPlan& plan) {
  if (options.transport.empty()) return {};
  if (!check_transports(options.transport).ok())
    return error("H200", "--transport is \"" + options.transport.substr(0, 40) + "\"",
                 "take tcp or rdma, or both with a comma between (docs/concepts/transports.md)");
  if (!plan.embedded)
    return error(
        "H200", "--transport is for embedded agents, but an agent runs here already",
        "add --embedded, or start that agent with gradbus-agent --transport " + options.transport);
  const TransportRow* row = find_transport(options.transport);  // of several, agents find out
  if (row != nullptr) GRADBUS_RETURN_IF_ERROR(row->available());
  setenv("GRADBUS_AGENT_TRANSPORT", options.transport.c_str(), 1);
  return {};
}

// The embedded coordinator reads an option of its own from the environment.
Status tell_coordinator(const LaunchPlan& plan, const char* option, const char* variable,
                        const std::string& value) {
  if (!plan.embedded)
    return error(
        "H200",
        std::string(option) + " is for an embedded coordinator, but daemons run here already",
        "add --embedded, or start that coordinator with gradbus-server " + std::string(option) +
            " " + value);
  setenv(variable, value.c_str(), 1);
  return {};
}

Status tell_rules(const RunOptions& options, const LaunchPlan& plan) {
  if (!options.late_mode.empty()) {
    GRADBUS_RETURN_IF_ERROR(parse_mode(options.late_mode).status());
    GRADBUS_RETURN_IF_ERROR(
        tell_coordinator(plan, "--late-mode", "GRADBUS_SERVER_LATE_MODE", options.late_mode));
  }
  if (options.loss_percent == 0) return {};
  return tell_coordinator(plan, "--loss-percent", "GRADBUS_SERVER_LOSS_PERCENT",
                          std::to_string(options.loss_percent));
}

// Embedded shards read it from the environment, and have other working directories on other days.
Status tell_snapshots(const RunOptions& options) {
  if (options.snapshots.empty()) return {};
  if (shard_count(options) == 0)
    return error("H200", "--snapshots is for embedded shards, and there are none",
                 "add --shards N; shards that run already have an option of this name themselves");
  std::error_code problem;
  const auto directory = std::filesystem::absolute(options.snapshots, problem);
  std::filesystem::create_directories(directory, problem);
  if (problem || access(directory.c_str(), W_OK) != 0)
    return error("H200", "--snapshots " + options.snapshots + " cannot be written to",
                 "name a directory that this user may write to");
  setenv("GRADBUS_AGENT_SNAPSHOTS", directory.c_str(), 1);
  return {};
}

Status check_restarts(const RunOptions& options, const LaunchPlan& plan) {
  if (options.restart_agents == 0 || plan.embedded) return {};
  return error("H200", "--restart-agents is for embedded agents, but an agent runs here already",
               "add --embedded, or have systemd restart that agent (deploy/README.md)");
}

int run(const RunOptions& options) {
  if (const Status status = check_run_options(options); !status.ok())
    return fail(status, kExitUsage);
  if (const Status status = tell_policy(options); !status.ok()) return fail(status, kExitUsage);
  Result<LaunchPlan> plan = plan_job(options);
  if (!plan.ok()) return fail(plan.status(), kExitUsage);
  const Result<ClusterLayout> layout =
      make_layout(options, static_cast<int>(plan.value().blocks.size()));
  if (!layout.ok()) return fail(layout.status(), kExitUsage);
  if (const Status status = tell_transport(options, plan.value()); !status.ok())
    return fail(status, kExitUsage);
  if (const Status status = tell_rules(options, plan.value()); !status.ok())
    return fail(status, kExitUsage);
  if (const Status status = tell_snapshots(options); !status.ok()) return fail(status, kExitUsage);
  if (const Status status = check_restarts(options, plan.value()); !status.ok())
    return fail(status, kExitUsage);
  const char* path = std::getenv("PATH");
  Result<std::string> program = find_program(options.command.front(), path == nullptr ? "" : path);
  if (!program.ok() && plan.value().ranks_on_this_machine() > 0)
    return fail(program.status(), exit_code_without(options.command.front()));
  if (const Status status = make_output_directory(options.output_directory); !status.ok())
    return fail(status, kExitUsage);
  if (const Status files = prepare_open_files(plan.value().ranks); !files.ok())
    return fail(files, kExitFailed);
  SignalQueue signals;
  Result<OrphanGuard> guard = OrphanGuard::start();
  if (!guard.ok()) return fail(guard.status(), kExitFailed);
  return start_and_wait(options, plan.value(), layout.value(), signals, guard.value());
}

constexpr char kFooter[] =
    "gradbus run -np N [OPTIONS] [--] COMMAND [ARGUMENTS...]\n\n"
    "If an agent answers on this machine, the job uses it. Otherwise an embedded coordinator and "
    "embedded agents are started for the job, and stopped after it. Each rank gets GRADBUS_RANK, "
    "GRADBUS_SIZE, GRADBUS_LOCAL_RANK, GRADBUS_JOB and GRADBUS_SOCKET, and what torch.distributed "
    "reads: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. The exit code is that of "
    "the first rank that failed (128 + number for a signal).\n\n"
    "  gradbus run -np 4 -- python train.py --epochs 3\n"
    "  gradbus run -np 4 --agents 2 -- ./train        two agents, TCP between them\n"
    "  gradbus run -np 6 --agents 3 --link 1gbit -- ./train   emulated network\n"
    "  gradbus run -H node1:8,node2:8 -- python train.py   over ssh; agents run there";

// The options of embedded daemons and their network.
void declare_cluster(CLI::App& app, const std::shared_ptr<RunOptions>& options) {
  app.add_option("--agents", options->agents, "embedded agents that share the ranks");
  app.add_option("--shards", options->shards, "embedded parameter-server shards, for modes ps:*");
  app.add_option("--shards-on", options->shards_on,
                 "with --link, the links of the shards: own (default), agents (they share links "
                 "with agents, in turn), or one word for each shard, e.g. agent-0,own");
  app.add_option("--snapshots", options->snapshots,
                 "directory for the snapshots of embedded shards "
                 "(docs/how-to/use-a-parameter-server.md)");
  app.add_option("--link", options->link,
                 "RATE[,DELAY], e.g. 1gbit,200us: emulates a network between agents; needs root");
  app.add_option("--link-of", options->link_of,
                 "NODE=RATE[,DELAY], e.g. shard-1=500mbit: the link of one node; may be repeated")
      ->allow_extra_args(false);
  app.add_option(
      "--transport", options->transport,
      "transport of embedded agents: tcp, rdma or rdma,tcp (docs/concepts/transports.md)");
}

void declare_hosts(CLI::App& app, const std::shared_ptr<RunOptions>& options) {
  app.add_option("-H,--hosts", options->hosts,
                 "HOST[:SLOTS],..., also ranges: node[01-04,07]:2; other hosts are reached by ssh");
  app.add_option("--hostfile", options->hostfile,
                 "file with lines \"HOST slots=N\"; ranges as in -H");
}

// The options that measure steps.
void declare_measurements(CLI::App& app, const std::shared_ptr<RunOptions>& options) {
  app.add_flag("--autotune", options->autotune,
               "tries schedules and sizes of buckets in the first steps, and keeps the fastest");
  app.add_option("--autotune-log-file", options->autotune_log,
                 "with --autotune: file for the time of each trial, as CSV")
      ->needs("--autotune");
  app.add_option("--timeline,--timeline-filename", options->timeline,
                 "records the job into FILE (gradbus timeline FILE; ui.perfetto.dev); also "
                 "HOROVOD_TIMELINE")
      ->envname("HOROVOD_TIMELINE");
  app.add_option("--record", options->record,
                 "writes what steps compute into FILE, for gradbus plan --replay FILE");
}

// --help has those that do something: docs/how-to/run-jobs.md has a table of all.
void declare_horovod_options(CLI::App& app, const std::shared_ptr<GivenHorovodOptions>& given) {
  for (const HorovodOption& option : horovod_options()) {
    const std::string name = option.name;
    const std::string group = help_of(option).empty() ? "" : "Options of horovodrun";
    if (option.has_value)
      app.add_option_function<std::string>(
             name, [given, name](const std::string& value) { (*given)[name] = value; },
             help_of(option))
          ->group(group);
    else
      app.add_flag_callback(name, [given, name] { (*given)[name] = ""; })->group("");
  }
}

int run_as_given(const GivenHorovodOptions& given, RunOptions* options) {
  std::vector<std::string> sentences;
  const Status status = apply_horovod_options(given, options, &sentences);
  if (!status.ok()) return fail(status, kExitUsage);
  for (const std::string& sentence : sentences)
    std::fprintf(stderr, "gradbus run: %s\n", sentence.c_str());
  return run(*options);
}

}  // namespace

Action declare_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  app.prefix_command();
  app.footer(kFooter);
  app.add_option("-n,--np,--num-proc", options->ranks, "ranks to start, 1..4096; also -np N");
  app.add_option("--job", options->job,
                 "name of the job, also of its snapshots; default: a random name");
  declare_cluster(app, options);
  app.add_option(
      "--compression", options->compression,
      "codec of gradients between nodes, e.g. topk:ratio=0.01 (gradbus bench codec --list); auto, "
      "or a list such as fp16,int8: the training measures which one pays, if any");
  app.add_option("--mode", options->mode,
                 "sync mode: sync, delayed:k=1, averaging:every=10, gossip, localsgd:H=8, "
                 "diloco:H=50, ps:sync, ps:async,lr=0.1 ... (docs/concepts/modes.md)");
  app.add_option("--schedule", options->schedule,
                 "when gradients are sent and waited for: auto, wfbp, ddp, fusion, bytescheduler, "
                 "dear, mg-wfbp, mergecomp, mergecomp:groups=2 (docs/concepts/schedules.md)");
  declare_measurements(app, options);
  app.add_option("--late-mode", options->late_mode,
                 "mode to change to at a fence, if ranks wait more than a fifth of a minute for a "
                 "slow rank, e.g. delayed:k=1");
  app.add_option("--loss-percent", options->loss_percent,
                 "changes back to mode sync if the reported losses rise to this percentage of the "
                 "earlier ones, e.g. 200")
      ->check(whole_range(1, 1'000'000));
  app.add_option("--policy", options->policy,
                 "TOML file with rules that give tensors their compression and mode");
  app.add_option("--fence-every", options->fence_every,
                 "calls flush() every N steps, as a fence (gradbus mode)")
      ->check(whole_range(1, 1'000'000'000));
  app.add_flag("--embedded", options->embedded,
               "starts daemons for this job, even if an agent runs here");
  app.add_option("--restart-agents", options->restart_agents,
                 "how many times embedded agents that end are restarted, in total; for programs "
                 "with gradbus.elastic (docs/how-to/train-elastically.md); default 0: the job ends")
      ->check(whole_range(0, 1'000'000));
  declare_hosts(app, options);
  app.add_option("--start-timeout", options->start_timeout, "seconds in which all ranks must join");
  app.add_option(
      "--op-timeout", options->op_timeout,
      "seconds in which a collective must end (default 1800); dead ranks are detected sooner");
  app.add_option("--elastic-timeout", options->elastic_timeout,
                 "seconds in which all ranks must rejoin after a loss (gradbus.elastic)");
  app.add_option("--output-filename", options->output_directory,
                 "directory for rank.N.out and rank.N.err, instead of the terminal");
  app.add_option("-x", options->variables, "NAME or NAME=VALUE for the ranks; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--ssh", options->ssh, "command that reaches other hosts")->capture_default_str();
  app.add_flag("--no-prefix", options->no_prefix, "prints lines without \"[rank] \" in front");
  app.add_flag("--no-color", options->no_colour, "no colours (also: NO_COLOR=1)");
  app.add_flag("-v,--verbose", options->verbose, "prints pids, addresses and the daemons' logs");
  auto given = std::make_shared<GivenHorovodOptions>();
  declare_horovod_options(app, given);
  return [options, given] {
    options->command = trailing_words();
    return run_as_given(*given, options.get());
  };
}

}  // namespace gradbus
