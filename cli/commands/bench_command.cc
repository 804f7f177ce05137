// `gradbus bench`: options -> embedded daemons -> gradbus-bench-rank as every rank; or the limits
// of the machine. The rows are rank 0's output.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "cli/bench/codec_bench.h"
#include "cli/bench/json_file.h"
#include "cli/bench/machine.h"
#include "cli/bench/models.h"
#include "cli/bench/work.h"
#include "cli/cluster/cluster_layout.h"
#include "cli/cluster/embedded_cluster.h"
#include "cli/command.h"
#include "cli/launch/launch_plan.h"
#include "cli/launch/launched_job.h"
#include "cli/options/run_options.h"
#include "cli/process/orphan_guard.h"
#include "common/edit_distance.h"
#include "common/errors.h"
#include "common/text/help_text.h"
#include "compression/spec.h"
#include "proto/numbers.h"
#include "transport/registry.h"

namespace gradbus {
namespace {

constexpr char kMachine[] = "machine";
constexpr char kCodec[] = "codec";

// What only the launcher needs to know.
struct ClusterOptions {
  std::string ranks = "2";
  std::string agents = "1";
  std::string shards;
  std::string transport = "tcp";
  std::string algorithm = "auto";
  std::string shards_on;
  std::string link;
  std::vector<std::string> link_of;
  std::string op_timeout;
  bool verbose = false;
};

struct CommandOptions {
  BenchOptions bench;
  ClusterOptions cluster;
  CodecBenchOptions codec;
};

Status bad_option(const std::string& what, const std::string& next) {
  return error("F100", "gradbus bench: " + what, next);
}

Status unknown_collective(const std::string& word, const Status& otherwise) {
  std::vector<std::string> names = collective_names();
  names.emplace_back(kMachine);
  names.emplace_back(kCodec);
  const std::string nearest = closest_name(word, names);
  if (nearest.empty()) return otherwise;
  return bad_option("there is no collective \"" + word + "\"",
                    "did you mean: gradbus bench " + nearest);
}

Status check_transport(const std::string& names) {
  if (check_transports(names).ok()) return {};
  std::string known;
  for (const TransportRow& row : all_transports())
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  return bad_option("--transport is \"" + names.substr(0, 40) + "\"",
                    "take one of: " + known + "; or several with commas between");
}

// Those that the coordinator takes: shards are what a mode asks for.
Status check_algorithm(const std::string& name) {
  std::string known;
  std::vector<std::string> names;
  for (uint32_t number = 0; is_algorithm(number); ++number) {
    const auto algorithm = static_cast<Algorithm>(number);
    if (algorithm == Algorithm::kShards) continue;
    names.emplace_back(algorithm_name(algorithm));
    if (names.back() == name) return {};
    known += (known.empty() ? "" : ", ") + names.back();
  }
  const std::string nearest = closest_name(name, names);
  std::string next = nearest.empty() ? "" : "did you mean: --algorithm " + nearest + "; ";
  if (name == algorithm_name(Algorithm::kShards))
    next = "did you mean: --mode ps:sync --shards 1; ";
  return bad_option("--algorithm is \"" + name.substr(0, 40) + "\"",
                    next + "take one of: " + known);
}

// Found now, not after the minutes a benchmark may take; nothing of an earlier run stays in it.
Status begin_json(const std::string& path, const char* text) {
  if (path.empty() || path == kStandardOutput) return {};
  std::ofstream file(path, std::ios::trunc);
  if (file << text << std::flush) return {};
  return bad_option("--json " + path + " cannot be written: " + std::strerror(errno),
                    "choose another file");
}

// An installation or a build without the program of the ranks.
Status check_rank_program() {
  const std::string path = sibling_program("gradbus-bench-rank");
  if (access(path.c_str(), X_OK) == 0) return {};
  return error("H201", path + " is not there, so no benchmark can be run",
               "install all programs into one directory, or build the target gradbus-bench-rank");
}

Result<BenchWork> check_options(const CommandOptions& options) {
  Result<int> ranks = parse_rank_count(options.cluster.ranks, "--ranks", "for example: --ranks 4");
  if (!ranks.ok()) return ranks.status();
  Result<BenchWork> work = make_work(options.bench, ranks.value());
  if (!work.ok() && !find_collective(options.bench.collective).ok())
    return unknown_collective(options.bench.collective, work.status());
  if (!work.ok()) return work.status();
  if (!options.bench.codec.empty())
    if (Result<CompressionSpec> codec = parse_compression(options.bench.codec); !codec.ok())
      return codec.status();
  GRADBUS_RETURN_IF_ERROR(check_transport(options.cluster.transport));
  GRADBUS_RETURN_IF_ERROR(check_algorithm(options.cluster.algorithm));
  GRADBUS_RETURN_IF_ERROR(check_rank_program());
  GRADBUS_RETURN_IF_ERROR(begin_json(options.bench.json, "[]\n"));
  return work;
}

RunOptions launch_options(const CommandOptions& options) {
  RunOptions launch;
  launch.ranks = options.cluster.ranks;
  launch.agents = options.cluster.agents;
  launch.shards = options.cluster.shards;
  launch.shards_on = options.cluster.shards_on;
  launch.link = options.cluster.link;
  launch.link_of = options.cluster.link_of;
  launch.op_timeout = options.cluster.op_timeout;
  launch.embedded = true;
  launch.no_prefix = true;
  launch.verbose = options.cluster.verbose;
  launch.command = bench_words(options.bench);
  launch.command.insert(launch.command.begin(), sibling_program("gradbus-bench-rank"));
  return launch;
}

std::string model_text(const BenchWork& work) {
  const Result<Model> model = load_model(work.model);
  if (!model.ok()) return work.model;
  const size_t parts =
      backward_order(model.value(), work.fuse_bytes / dtype_bytes(work.dtype)).size();
  return work.model + ", " + std::to_string(model.value().tensors.size()) + " tensors in " +
         std::to_string(parts) + " parts";
}

std::string header_text(const CommandOptions& options, const BenchWork& work) {
  const ClusterOptions& cluster = options.cluster;
  std::string where = "ranks " + cluster.ranks + ", agents " + cluster.agents + ", transport " +
                      cluster.transport + ", algorithm " + cluster.algorithm;
  if (!cluster.shards.empty()) where += ", shards " + cluster.shards;
  if (!cluster.shards_on.empty()) where += " on " + cluster.shards_on;
  if (!cluster.link.empty()) where += ", link " + cluster.link;
  for (const std::string& link : cluster.link_of) where += ", " + link;
  std::string what = std::string(work.collective->name);
  if (work.collective->number != kBarrier)
    what += work.registered ? (work.on_device ? " of registered tensors, in memory of GPUs"
                                              : " of registered tensors, in place")
                            : " of private buffers";
  if (!work.model.empty()) what += ": " + model_text(work);
  const std::string how = "iterations " + std::to_string(work.iterations) + ", warm-up " +
                          std::to_string(work.warmup) +
                          "; time: best iteration, slowest rank; below 64 KiB an iteration is a "
                          "batch";
  return commented("gradbus " GRADBUS_VERSION " bench: " + what) + commented(machine_text()) +
         commented(where) + commented(how);
}

int start_ranks_and_wait(const CommandOptions& options, const BenchWork& work,
                         const RunOptions& launch, const LaunchPlan& plan,
                         const ClusterLayout& layout) {
  SignalQueue signals;
  Result<OrphanGuard> guard = OrphanGuard::start();
  if (!guard.ok()) return fail(guard.status(), kExitFailed);
  Screen screen(STDOUT_FILENO, STDERR_FILENO, {});
  EmbeddedCluster cluster(screen, guard.value(), launch.verbose);
  const Status started = cluster.start(layout, signals);
  if (signals.first() != 0) return 128 + signals.first();
  if (!started.ok()) return fail(started, kExitFailed);
  const Target table = options.bench.json == kStandardOutput ? Target::kErr : Target::kOut;
  screen.raw(table, header_text(options, work));
  const RankStarter starter{
      plan,           launch,       screen, guard.value(), cluster.sockets(), cluster.coordinator(),
      usable_cores(), cluster.lab()};
  return LaunchedJob(starter, screen, signals, &cluster, nullptr).run();
}

// The daemons read their options from the environment, too.
void tell_daemons(const ClusterOptions& options) {
  setenv("GRADBUS_AGENT_TRANSPORT", options.transport.c_str(), 1);
  setenv("GRADBUS_SERVER_ALGORITHM", options.algorithm.c_str(), 1);
}

int bench(const CommandOptions& options) {
  Result<BenchWork> work = check_options(options);
  if (!work.ok()) return fail(work.status(), kExitUsage);
  const RunOptions launch = launch_options(options);
  if (const Status status = check_run_options(launch); !status.ok())
    return fail(status, kExitUsage);
  Result<LaunchPlan> plan = make_plan(launch, "");
  if (!plan.ok()) return fail(plan.status(), kExitUsage);
  const Result<ClusterLayout> layout =
      make_layout(launch, static_cast<int>(plan.value().blocks.size()));
  if (!layout.ok()) return fail(layout.status(), kExitUsage);
  if (Result<std::string> program = find_program(launch.command.front(), ""); !program.ok())
    return fail(program.status(), kExitFailed);
  tell_daemons(options.cluster);
  return start_ranks_and_wait(options, work.value(), launch, plan.value(), layout.value());
}

// Nothing but --json says anything about the machine.
Status check_machine_options(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    if (option->count() > 0 && option->get_name() != "collective" && option->get_name() != "--json")
      return bad_option(option->get_name() + " has no meaning for the machine",
                        "gradbus bench machine [--json FILE]");
  return {};
}

CodecBenchOptions codec_options(const CLI::App& app, const CommandOptions& options) {
  CodecBenchOptions codec = options.codec;
  codec.json = options.bench.json;
  if (app.count("--iterations") > 0) codec.iterations = options.bench.iterations;
  return codec;
}

int act(const CLI::App& app, const CommandOptions& options) {
  if (!trailing_words().empty())
    return fail(bad_option("\"" + trailing_words().front() + "\" is no option",
                           "gradbus bench starts its own ranks: leave out \"--\""),
                kExitUsage);
  if (options.bench.collective == kCodec) return bench_codecs(codec_options(app, options));
  if (!options.codec.specs.empty() || options.codec.list || options.codec.device != kProcessor)
    return fail(bad_option("codecs, --list and --device belong to gradbus bench codec",
                           "gradbus bench codec [SPEC...]; --codec SPEC compresses an all_reduce"),
                kExitUsage);
  if (options.bench.collective != kMachine) return bench(options);
  if (const Status status = check_machine_options(app); !status.ok())
    return fail(status, kExitUsage);
  if (const Status status = begin_json(options.bench.json, ""); !status.ok())
    return fail(status, kExitUsage);
  return bench_machine(options.bench.json);
}

constexpr char kFooter[] =
    "The columns are those of nccl-tests. For reduce_scatter, all_gather, gather, scatter and "
    "all_to_all `count` is a rank's block and `size` all blocks together; algbw = size / time; "
    "busbw = algbw * 2(n-1)/n (all_reduce), * (n-1)/n (those with blocks), * 1 (others).\n\n"
    "An iteration begins with a barrier, which is not timed. Its time is that of the slowest "
    "rank. `time` is the best iteration; p50 and p99 are percentiles of all. Below 64 KiB an "
    "iteration is a batch of operations back to back, as many as take 200 us, at most 128. Its "
    "time is divided by their number. --check exchanges known data before and after the timed "
    "iterations; if elements are wrong, the exit code is 1.\n\n"
    "  gradbus bench all_reduce --ranks 4 --agents 2 -b 4 -e 256M -f 4 --check\n"
    "  gradbus bench all_reduce --ranks 2 --model resnet50\n"
    "  gradbus bench codec topk:ratio=0.01 efsignsgd   codecs alone, and the limit of memory\n"
    "  gradbus bench codec --device cuda               their kernels on a GPU\n"
    "  gradbus bench machine           streaming rates and latencies: the limits of this machine";

}  // namespace

Action declare_bench(CLI::App& app) {
  auto options = std::make_shared<CommandOptions>();
  ClusterOptions& cluster = options->cluster;
  app.footer(kFooter);
  app.add_option("collective", options->bench.collective,
                 "all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all "
                 "barrier; or machine, or codec")
      ->required();
  app.add_option("codecs", options->codec.specs,
                 "codecs for bench codec: topk:ratio=0.01 ..., or all");
  app.add_flag("--list", options->codec.list, "bench codec: lists the codecs and their options");
  app.add_option("--elements", options->codec.elements, "bench codec: elements of f32")
      ->capture_default_str();
  app.add_option("--device", options->codec.device, "bench codec: cpu, cuda or cuda:1")
      ->capture_default_str();
  app.add_option("--ranks", cluster.ranks, "processes to start")->capture_default_str();
  app.add_option("--agents", cluster.agents, "embedded agents that share the ranks")
      ->capture_default_str();
  app.add_option("--shards", cluster.shards, "embedded parameter-server shards, for --mode ps:*");
  app.add_option("--shards-on", cluster.shards_on, "with --link: own, agents, or e.g. agent-0,own");
  app.add_option("--transport", cluster.transport,
                 "transport of agents; several separated by commas, in the order of preference")
      ->capture_default_str();
  app.add_option(
         "--algorithm", cluster.algorithm,
         "algorithm of agents: auto ring chain halving_doubling recursive_doubling tree direct")
      ->capture_default_str();
  app.add_option("--link", cluster.link,
                 "RATE[,DELAY], e.g. 1gbit,200us: emulates a network between agents; needs root");
  app.add_option("--link-of", cluster.link_of,
                 "NODE=RATE[,DELAY], e.g. shard-1=500mbit; may be repeated")
      ->allow_extra_args(false);
  declare_bench_options(app, options->bench);
  app.add_option("--op-timeout", cluster.op_timeout,
                 "seconds in which a collective must end (default 1800)");
  app.add_flag("-v,--verbose", cluster.verbose, "prints pids, addresses and the daemons' logs");
  return [&app, options] { return act(app, *options); };
}

}  // namespace gradbus
