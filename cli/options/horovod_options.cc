#include "cli/options/horovod_options.h"

#include <charconv>

#include "common/errors.h"

namespace gradbus {
namespace {

constexpr uint64_t kFusionMibMax = 1 << 20;
constexpr char kSameRanks[] =
    "a job keeps its number of ranks: gradbus run -np N --restart-agents M, with gradbus.elastic "
    "(docs/how-to/train-elastically.md)";
constexpr char kNoCycle[] = "there is no cycle, gradients are sent when they are ready";
constexpr char kNoNegotiation[] = "tensors are registered once, so there is nothing to cache";
constexpr char kOneDataPlane[] = "agents move the gradients, with every framework";
constexpr char kNodesFirst[] = "ranks of a node always add up first";
constexpr char kAddresses[] =
    "the agent of each host has an address: gradbus-agent --bind ADDRESS:PORT";
constexpr char kNoise[] = "the noise is estimated from the measured steps";
constexpr char kLog[] = "messages of ranks are not Horovod's; see --verbose";
constexpr char kNoThreads[] = "agents pin their own threads, and NCCL's streams are theirs";
constexpr char kNoLimit[] = "the limits of time are --start-timeout and --op-timeout";
constexpr char kStalls[] = "late ranks are reported after a second; a time limit is --op-timeout";

constexpr HorovodOption kOptions[] = {
    {"--fusion-threshold-mb", true, HorovodUse::kFusion, "MiB in a bucket of gradients"},
    {"-p", true, HorovodUse::kSsh, "-p"},
    {"-i", true, HorovodUse::kSsh, "-i"},
    {"--ssh-port", true, HorovodUse::kSsh, "-p"},
    {"--ssh-identity-file", true, HorovodUse::kSsh, "-i"},
    {"--autotune-warmup-samples", true, HorovodUse::kTuning, "HOROVOD_AUTOTUNE_WARMUP_SAMPLES"},
    {"--autotune-steps-per-sample", true, HorovodUse::kTuning, "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE"},
    {"--autotune-bayes-opt-max-samples", true, HorovodUse::kTuning,
     "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES"},
    {"--autotune-gaussian-process-noise", true, HorovodUse::kNothing, kNoise},
    {"--cycle-time-ms", true, HorovodUse::kNothing, kNoCycle},
    {"--timeline-mark-cycles", false, HorovodUse::kNothing, kNoCycle},
    {"--cache-capacity", true, HorovodUse::kNothing, kNoNegotiation},
    {"--disable-cache", false, HorovodUse::kNothing, kNoNegotiation},
    {"--gloo", false, HorovodUse::kNothing, kOneDataPlane},
    {"--mpi", false, HorovodUse::kNothing, kOneDataPlane},
    {"--tcp", false, HorovodUse::kNothing, kOneDataPlane},
    {"--hierarchical-allreduce", false, HorovodUse::kNothing, kNodesFirst},
    {"--hierarchical-allgather", false, HorovodUse::kNothing, kNodesFirst},
    {"--stall-check-warning-time-seconds", true, HorovodUse::kNothing, kStalls},
    {"--stall-check-shutdown-time-seconds", true, HorovodUse::kTuning,
     "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"},
    {"--no-stall-check", false, HorovodUse::kNothing, kStalls},
    {"--stall-check", false, HorovodUse::kNothing, kStalls},
    {"--no-hierarchical-allreduce", false, HorovodUse::kNothing, kNodesFirst},
    {"--no-hierarchical-allgather", false, HorovodUse::kNothing, kNodesFirst},
    {"--torus-allreduce", false, HorovodUse::kNothing, kNodesFirst},
    {"--no-torus-allreduce", false, HorovodUse::kNothing, kNodesFirst},
    {"--no-timeline-mark-cycles", false, HorovodUse::kNothing, kNoCycle},
    {"--no-autotune", false, HorovodUse::kNothing, "it is off without --autotune"},
    {"--log-level", true, HorovodUse::kNothing, kLog},
    {"--log-with-timestamp", false, HorovodUse::kNothing, kLog},
    {"--log-without-timestamp", false, HorovodUse::kNothing, kLog},
    {"--log-hide-timestamp", false, HorovodUse::kNothing, kLog},
    {"--no-log-hide-timestamp", false, HorovodUse::kNothing, kLog},
    {"--prefix-output-with-timestamp", false, HorovodUse::kNothing, "lines have no time in front"},
    {"--num-nccl-streams", true, HorovodUse::kNothing, kNoThreads},
    {"--thread-affinity", true, HorovodUse::kNothing, kNoThreads},
    {"--gloo-timeout-seconds", true, HorovodUse::kNothing, kNoLimit},
    {"--binding-args", true, HorovodUse::kNothing, kOneDataPlane},
    {"--mpi-threads-disable", false, HorovodUse::kNothing, kOneDataPlane},
    {"--no-mpi-threads-disable", false, HorovodUse::kNothing, kOneDataPlane},
    {"--jsrun", false, HorovodUse::kRefused,
     "start the ranks by jsrun itself, on nodes with an agent"},
    {"--min-num-proc", true, HorovodUse::kRefused, kSameRanks},
    {"--max-num-proc", true, HorovodUse::kRefused, kSameRanks},
    {"--slots-per-host", true, HorovodUse::kRefused, "give the slots of each host: -H HOST:SLOTS"},
    {"--blacklist-cooldown-range", true, HorovodUse::kRefused, kSameRanks},
    {"--min-np", true, HorovodUse::kRefused, kSameRanks},
    {"--max-np", true, HorovodUse::kRefused, kSameRanks},
    {"--reset-limit", true, HorovodUse::kRefused, kSameRanks},
    {"--host-discovery-script", true, HorovodUse::kRefused, kSameRanks},
    {"--network-interface", true, HorovodUse::kRefused, kAddresses},
    {"--network-interfaces", true, HorovodUse::kRefused, kAddresses},
    {"--mpi-args", true, HorovodUse::kRefused,
     "start the ranks by mpirun itself, on nodes with an agent"},
    {"--config-file", true, HorovodUse::kRefused,
     "give the options here, and rules for tensors by --policy FILE"},
    {"--check-build", false, HorovodUse::kRefused, "gradbus doctor"},
};

Status add_fusion(const std::string& text, RunOptions* options) {
  uint64_t mib = 0;
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, mib);
  if (text.empty() || problem != std::errc() || stop != end || mib > kFusionMibMax)
    return error("H200", "--fusion-threshold-mb is \"" + text.substr(0, 40) +
                             "\", not a whole number in 0.." + std::to_string(kFusionMibMax));
  options->variables.push_back("HOROVOD_FUSION_THRESHOLD=" + std::to_string(mib << 20));
  return {};
}

// The command is split at blanks, without a shell.
Status add_ssh(const HorovodOption& option, const std::string& value, RunOptions* options) {
  if (value.empty() || value.find_first_of(" \t\n") != std::string::npos)
    return error("H200",
                 std::string(option.name) + " is \"" + value.substr(0, 80) + "\", not one word",
                 "use --ssh \"ssh " + std::string(option.text) + " ...\", or ~/.ssh/config");
  options->ssh += " " + std::string(option.text) + " " + value;
  return {};
}

}  // namespace

std::span<const HorovodOption> horovod_options() { return kOptions; }

std::string help_of(const HorovodOption& option) {
  const std::string text(option.text);
  switch (option.use) {
    case HorovodUse::kFusion: return text;
    case HorovodUse::kSsh:
      return text == "-p" ? "port of ssh on other hosts" : "file of the private key for ssh";
    case HorovodUse::kTuning: return "sets " + text + " for the ranks";
    case HorovodUse::kNothing:
    case HorovodUse::kRefused: break;
  }
  return "";
}

Status apply_horovod_options(const GivenHorovodOptions& given, RunOptions* options,
                             std::vector<std::string>* sentences) {
  for (const HorovodOption& option : kOptions) {
    const auto found = given.find(option.name);
    if (found == given.end()) continue;
    switch (option.use) {
      case HorovodUse::kFusion: GRADBUS_RETURN_IF_ERROR(add_fusion(found->second, options)); break;
      case HorovodUse::kTuning:
        options->variables.push_back(std::string(option.text) + "=" + found->second);
        break;
      case HorovodUse::kSsh:
        GRADBUS_RETURN_IF_ERROR(add_ssh(option, found->second, options));
        break;
      case HorovodUse::kNothing:
        sentences->push_back(std::string(option.name) + " does nothing here: " + option.text);
        break;
      case HorovodUse::kRefused:
        return error("H200",
                     std::string(option.name) + " is an option of horovodrun, not of gradbus run",
                     option.text);
    }
  }
  return {};
}

}  // namespace gradbus
