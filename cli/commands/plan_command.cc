// `gradbus plan`: simulates a training step with each schedule on a cluster that need not exist.
// Talks to no daemon.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <memory>

#include "cli/command.h"
#include "cli/options/number_range.h"
#include "cli/plan/plan_view.h"
#include "common/bit_rate.h"
#include "common/errors.h"
#include "server/scheduling/known_models.h"
#include "server/scheduling/mode_times.h"

namespace gradbus {
namespace {

using scheduling::CodecCost;
using scheduling::Workload;

constexpr double kBitsMin = 1e5;
constexpr double kBitsMax = 1e13;
constexpr double kLatencyMaxNs = 1e9;
constexpr double kComputeMsMax = 1e7;
constexpr QuantityUnit kRates[] = {{"g", 1e9},    {"m", 1e6},    {"k", 1e3},
                                   {"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}};
constexpr QuantityUnit kTimes[] = {{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}};

struct PlanOptions {
  std::string model;
  std::string profile_file;
  std::string replay_file;
  bool profile = false;
  std::string bandwidth;  // "": as recorded, else 10G
  std::string latency;    // "": as recorded, else 20us
  std::string codec = "none";
  std::string algorithm = "auto";
  std::string schedule;
  std::string mode = "sync";
  uint32_t shards = 0;
  uint32_t nodes = 0;  // 0: as recorded
  double compute_ms = 0;
  bool json = false;
  scheduling::ScheduleOptions schedules;
};

// In pieces, because read() reports what an iterator throws: a folder opens, but cannot be read.
Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char piece[4096];
  while (file.read(piece, sizeof(piece)), file.gcount() > 0)
    text.append(piece, static_cast<size_t>(file.gcount()));
  if (!file.is_open() || file.bad())
    return error("F102", "the profile " + path + " cannot be read", "check the path");
  return text;
}

Status check_sources(const PlanOptions& options) {
  const int sources = !options.model.empty() + !options.profile_file.empty() +
                      !options.replay_file.empty() + options.profile;
  if (sources != 1)
    return error("F100",
                 "gradbus plan needs one of --model, --profile-file, --replay and --profile",
                 "gradbus plan --model resnet50 --nodes 16 --bandwidth 25G --latency 10us");
  if (options.profile == trailing_words().empty())
    return error("F100", "--profile and a command belong together",
                 "gradbus plan --profile --nodes 16 -- python train.py");
  return {};
}

// Of a recording, which also says how the job ran.
Status read_recording(const PlanOptions& options, PlannedCluster* question) {
  Result<std::string> text =
      options.profile ? record_program(trailing_words()) : read_file(options.replay_file);
  if (!text.ok()) return text.status();
  Result<Recording> recording =
      parse_recording(text.value(), options.profile ? "the recording" : options.replay_file);
  if (!recording.ok()) return recording.status();
  Recording found = recording.take();
  question->workload = std::move(found.workload);
  question->recorded = std::move(found.job);
  return {};
}

Status read_workload(const PlanOptions& options, PlannedCluster* question) {
  GRADBUS_RETURN_IF_ERROR(check_sources(options));
  if (options.profile || !options.replay_file.empty()) return read_recording(options, question);
  Result<std::string> text =
      options.model.empty() ? read_file(options.profile_file) : Result<std::string>(std::string());
  if (!text.ok()) return text.status();
  Result<Workload> workload = options.model.empty()
                                  ? scheduling::parse_workload(text.value(), options.profile_file)
                                  : scheduling::known_workload(options.model);
  if (!workload.ok()) return workload.status();
  question->workload = workload.take();
  return {};
}

Status set_compute(const PlanOptions& options, Workload* workload) {
  if (options.compute_ms == 0) return {};
  if (!(options.compute_ms > 0 && options.compute_ms <= kComputeMsMax))
    return error("F100", "--compute-ms must be above 0 and at most 1e7",
                 "give the milliseconds of one step on one node");
  scale_compute(*workload, options.compute_ms * 1000);
  return {};
}

Result<Algorithm> algorithm_of(const std::string& name) {
  std::string known = "auto";
  if (name == known) return Algorithm::kAuto;
  for (uint32_t number = 1; is_algorithm(number); ++number) {
    const auto algorithm = static_cast<Algorithm>(number);
    if (!scheduling::models(algorithm)) continue;
    if (algorithm_name(algorithm) == name) return algorithm;
    known += ", " + std::string(algorithm_name(algorithm));
  }
  return error("F100", "--algorithm \"" + name.substr(0, 40) + "\" has no formula",
               "take one of: " + known);
}

// A ring over n nodes takes 2 (n - 1) alpha + 2 (n - 1) / n * m beta: solved for the measured
// times.
PlanOptions with_recorded(PlanOptions options, const std::optional<RecordedJob>& job) {
  const bool has_network = job && job->nodes > 1 && job->byte_ns > 0;
  if (options.nodes == 0 && job) options.nodes = job->nodes;
  if (has_network) {
    const double steps = 2.0 * (job->nodes - 1);
    char text[32];
    std::snprintf(text, sizeof(text), "%.0fk", 8e9 * steps / job->nodes / job->byte_ns / 1e3);
    if (options.bandwidth.empty()) options.bandwidth = text;
    std::snprintf(text, sizeof(text), "%.0fns", job->startup_us * 1000 / steps);
    if (options.latency.empty()) options.latency = text;
  }
  if (options.bandwidth.empty()) options.bandwidth = "10G";
  if (options.latency.empty()) options.latency = "20us";
  return options;
}

Status read_network(const PlanOptions& options, PlannedCluster* question) {
  if (options.nodes == 0)
    return error("F100", "gradbus plan needs the number of nodes", "for example: --nodes 16");
  if (options.nodes > scheduling::kNodesMax)
    return error("F100",
                 "--nodes must be 1 to " + std::to_string(scheduling::kNodesMax) + ", not " +
                     std::to_string(options.nodes),
                 "for example: --nodes 16");
  const double bits = parse_quantity(options.bandwidth, kRates);
  if (!(bits >= kBitsMin && bits <= kBitsMax))
    return error("F100",
                 "--bandwidth \"" + options.bandwidth.substr(0, 40) +
                     "\" is not a rate from 100k to 10000G bit/s",
                 "for example: --bandwidth 25G");
  const double latency_ns = parse_quantity(options.latency, kTimes);
  if (!(latency_ns >= 0 && latency_ns <= kLatencyMaxNs))
    return error("F100",
                 "--latency \"" + options.latency.substr(0, 40) + "\" is not a time up to 1s",
                 "for example: --latency 10us");
  const Result<Algorithm> algorithm = algorithm_of(options.algorithm);
  if (!algorithm.ok()) return algorithm.status();
  question->bits_per_second = bits;
  question->cluster.network = {.nodes = options.nodes,
                               .alpha_us = latency_ns / 1000,
                               .beta_ns = 8e9 / bits,
                               .gamma_ns = 0,
                               .algorithm = algorithm.value()};
  return {};
}

Result<PlannedCluster> question_of(const PlanOptions& options) {
  PlannedCluster question;
  GRADBUS_RETURN_IF_ERROR(read_workload(options, &question));
  GRADBUS_RETURN_IF_ERROR(read_network(with_recorded(options, question.recorded), &question));
  GRADBUS_RETURN_IF_ERROR(set_compute(options, &question.workload));
  Result<CodecCost> codec = scheduling::parse_codec_cost(options.codec);
  if (!codec.ok()) return codec.status();
  question.cluster.codec = codec.take();
  question.options = options.schedules;
  Result<SyncMode> mode = parse_mode(options.mode);
  if (!mode.ok()) return mode.status();
  question.mode = mode.take();
  GRADBUS_RETURN_IF_ERROR(scheduling::apply_mode(question.mode, options.shards, question.cluster));
  return question;
}

int plan(const PlanOptions& options) {
  const Result<PlannedCluster> question = question_of(options);
  if (!question.ok()) return fail(question.status(), kExitUsage);
  const Result<PlanReport> report = plan_report(question.value(), options.schedule);
  if (!report.ok()) return fail(report.status(), kExitUsage);
  const std::string text = options.json ? plan_json(question.value(), report.value()) + "\n"
                                        : plan_text(question.value(), report.value());
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

void declare_forced(CLI::App& app, scheduling::ScheduleOptions& options) {
  const CLI::Validator bytes = whole_range(1, int64_t{1} << 40);
  const CLI::Validator count = whole_range(1, 1'000'000);
  app.add_option("--bucket-bytes", options.bucket_bytes, "ddp: size of a bucket")->check(bytes);
  app.add_option("--fusion-bytes", options.fusion_bytes, "fusion: maximum bytes of one operation")
      ->check(bytes);
  app.add_option("--partition-bytes", options.partition_bytes, "bytescheduler: size of a partition")
      ->check(bytes);
  app.add_option("--budget-bytes", options.budget_bytes, "bytescheduler: bytes in flight")
      ->check(bytes);
  app.add_option("--dear-bytes", options.dear_bytes, "dear: a group has fewer bytes than this")
      ->check(bytes);
  app.add_option("--nearby-layers", options.nearby_layers,
                 "dear: number of layers in a group, instead of its bytes")
      ->check(count);
  app.add_option("--groups", options.groups, "mergecomp: number of groups")->check(count);
}

}  // namespace

Action declare_plan(CLI::App& app) {
  auto options = std::make_shared<PlanOptions>();
  app.prefix_command();
  app.footer(
      "The times are predictions of a model. The "
      "computing times of known models are assumptions: replace them with --compute-ms or "
      "--profile-file.");
  app.add_option("--model", options->model, "a known model, such as resnet50 or bert-large");
  app.add_option("--profile-file", options->profile_file,
                 "JSON file with the layers and times of another model");
  app.add_option("--replay", options->replay_file,
                 "file that gradbus run --record has written; nodes, bandwidth and latency are "
                 "those of the job unless you give others");
  app.add_flag("--profile", options->profile,
               "runs the command after -- as one rank, and records its layers and times");
  app.add_option("--compute-ms", options->compute_ms,
                 "computing time of a step on one node, instead of the model's");
  app.add_option("--nodes", options->nodes, "number of nodes")
      ->check(whole_range(1, scheduling::kNodesMax));
  app.add_option("--bandwidth", options->bandwidth,
                 "bandwidth of a node's link: 25G, 100M; default 10G");
  app.add_option("--latency", options->latency, "latency of a message: 10us; default 20us");
  app.add_option("--algorithm", options->algorithm,
                 "auto, ring, halving_doubling, recursive_doubling or tree");
  app.add_option("--codec", options->codec,
                 "none, or one such as topk:ratio=0.01,encode_us=50,carrier=all_gather");
  app.add_option("--mode", options->mode,
                 "sync, delayed:k=1, localsgd:H=8, diloco:H=50, or a ps mode with --shards");
  app.add_option("--shards", options->shards,
                 "ps modes: number of shards, each on a machine of its own")
      ->check(whole_range(1, scheduling::kNodesMax));
  app.add_option("--schedule", options->schedule,
                 "schedule whose timeline is shown; default: the recommended one");
  app.add_flag("--json", options->json, "one JSON object");
  declare_forced(app, options->schedules);
  return [options] { return plan(*options); };
}

}  // namespace gradbus
