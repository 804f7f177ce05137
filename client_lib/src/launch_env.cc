#include "client_lib/src/launch_env.h"

#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "client_lib/src/job_name.h"
#include "common/errors.h"
#include "proto/numbers.h"

namespace gradbus {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  // Variables that together name one run of one job, where GRADBUS_JOB is not set.
  const char* job_parts[4];
  const char* local_size;  // how many ranks are on this machine
  const char* with = "";   // set in ranks only: other processes may have the first two as well
};

constexpr Launcher kLaunchers[] = {
    {"gradbus", "GRADBUS_RANK", "GRADBUS_SIZE", {"", "", "", ""}, "GRADBUS_LOCAL_SIZE"},
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"},
     "LOCAL_WORLD_SIZE"},
    {"horovod",
     "HOROVOD_RANK",
     "HOROVOD_SIZE",
     {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT", "", ""},
     "HOROVOD_LOCAL_SIZE"},
    {"openmpi",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "", ""},
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"pmi", "PMI_RANK", "PMI_SIZE", {"PMI_JOBID", "PMI_ID_SPACE", "", ""}, "MPI_LOCALNRANKS"},
    // A batch script has the variables of rank 0, too, but only srun starts ranks: in a step.
    {"slurm",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "", ""},
     "",
     "SLURM_STEP_ID"},
};

Result<int64_t> to_number(const std::string& source, const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);
  if (text.empty() || problem != std::errc() || stop != end)
    return error("J401", source + " is \"" + text.substr(0, 64) + "\", not a whole number");
  return value;
}

std::string this_host() {
  char name[256] = "host";
  gethostname(name, sizeof(name) - 1);
  return name;
}

// Such a launch is known by its host, too: another machine may have one with equal variables.
bool all_ranks_are_here(const Launcher& launcher, const ReadVariable& read) {
  const auto address = read("MASTER_ADDR");
  if (launcher.name == std::string_view("torchrun") && address && is_loopback_address(*address))
    return true;
  if (*launcher.local_size == '\0') return false;
  const auto local = read(launcher.local_size);
  return local && *local == read(launcher.size).value_or("");
}

// On several nodes, each torchrun counts only the failures of its own ranks, so their numbers
// differ after one. The ranks of the next attempt start when those of the last have ended on all
// nodes, so one name serves both. On one node the number keeps the attempts apart.
//
// client_lib/python/gradbus/_launch/torchrun.py (_nodes_count_differently) has this rule with more
// conditions: Python's ranks then agree on a name through torchrun's store. Change both.
bool counts_differ(const Launcher& launcher, const ReadVariable& read) {
  const auto local = read("LOCAL_WORLD_SIZE");
  return launcher.name == std::string_view("torchrun") && local && *local != *read(launcher.size);
}

std::string job_name(const Launcher& launcher, const ReadVariable& read) {
  if (const auto given = read("GRADBUS_JOB"); given && !given->empty()) return *given;
  JobNameSource source{launcher.name, {}, geteuid(), ""};
  for (const char* part : launcher.job_parts) {
    const bool is_count = part == std::string_view("TORCHELASTIC_RESTART_COUNT");
    if (*part == '\0' || (is_count && counts_differ(launcher, read))) continue;
    if (const auto value = read(part); value && !value->empty()) source.parts.push_back(*value);
  }
  if (all_ranks_are_here(launcher, read)) source.host = this_host();
  return derived_job_name(source);
}

Status check_range(const LaunchIdentity& identity) {
  const std::string size = std::to_string(identity.world_size);
  if (identity.world_size < 1 || identity.world_size > kRanksMax)
    return error("J401", "world size " + size + " (from " + identity.launcher + ") is not in 1.." +
                             std::to_string(kRanksMax));
  if (identity.rank < 0 || identity.rank >= identity.world_size)
    return error("J401", "rank " + std::to_string(identity.rank) + " (from " + identity.launcher +
                             ") is not in 0.." + std::to_string(identity.world_size - 1));
  return {};
}

Result<LaunchIdentity> from_launcher(const Launcher& launcher, const ReadVariable& read) {
  LaunchIdentity identity{launcher.name, job_name(launcher, read), 0, 1};
  Result<int64_t> rank = to_number(launcher.rank, *read(launcher.rank));
  if (!rank.ok()) return rank.status();
  Result<int64_t> size = to_number(launcher.size, *read(launcher.size));
  if (!size.ok()) return size.status();
  identity.rank = rank.value();
  identity.world_size = size.value();
  return identity;
}

bool has_started(const Launcher& launcher, const ReadVariable& read) {
  return read(launcher.rank) && read(launcher.size) &&
         (*launcher.with == '\0' || read(launcher.with));
}

// Half of our own pair is a mistake. Without an error, each rank would train alone.
Status check_pair(const Launcher& launcher, const ReadVariable& read) {
  const auto rank = read(launcher.rank);
  const auto size = read(launcher.size);
  if (rank.has_value() == size.has_value()) return {};
  const char* given = rank ? launcher.rank : launcher.size;
  const char* missing = rank ? launcher.size : launcher.rank;
  return error("J401",
               std::string(given) + " is \"" + (rank ? *rank : *size).substr(0, 64) + "\", but " +
                   missing + " is not set",
               std::string("set both, or start the ranks with gradbus run; one process alone: ") +
                   launcher.rank + "=0 " + launcher.size + "=1, or neither");
}

Result<LaunchIdentity> from_environment(const ReadVariable& read) {
  GRADBUS_RETURN_IF_ERROR(check_pair(kLaunchers[0], read));
  for (const Launcher& launcher : kLaunchers)
    if (has_started(launcher, read)) return from_launcher(launcher, read);
  return LaunchIdentity{"single", "single-" + std::to_string(getpid()), 0, 1};
}

}  // namespace

std::optional<std::string> read_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Result<LaunchIdentity> find_identity(const LaunchArguments& arguments, const ReadVariable& read) {
  if (arguments.rank < -1 || arguments.world_size < -1 ||
      (arguments.rank < 0) != (arguments.world_size < 0))
    return error("J401", "rank and world size must be given together: rank " +
                             std::to_string(arguments.rank) + ", world size " +
                             std::to_string(arguments.world_size));
  LaunchIdentity identity{"arguments", derived_job_name({"arguments", {}, geteuid(), ""}),
                          arguments.rank, arguments.world_size};
  if (arguments.rank < 0) {
    Result<LaunchIdentity> found = from_environment(read);
    if (!found.ok()) return found.status();
    identity = found.take();
  } else if (const auto job = read("GRADBUS_JOB"); job && !job->empty()) {
    identity.job = *job;
  }
  if (!arguments.job.empty()) identity.job = arguments.job;
  if (identity.job.size() > kJobNameBytesMax)
    return error("J401", "the job's name has " + std::to_string(identity.job.size()) +
                             " bytes; at most " + std::to_string(kJobNameBytesMax) +
                             " are allowed");
  GRADBUS_RETURN_IF_ERROR(check_range(identity));
  return identity;
}

Result<int64_t> seconds_variable(const ReadVariable& read, const char* name, int64_t otherwise_ms) {
  const auto text = read(name);
  if (!text) return otherwise_ms;
  char* end = nullptr;
  const double seconds = std::strtod(text->c_str(), &end);
  if (text->empty() || *end != '\0' || !std::isfinite(seconds) || seconds <= 0 || seconds > 1e7)
    return error(
        "F100",
        std::string(name) + " is \"" + text->substr(0, 64) + "\", not a number of seconds above 0",
        "set it to a number, for example 60");
  return static_cast<int64_t>(seconds * 1000);
}

std::string default_socket_path(const ReadVariable& read) {
  if (const auto path = read("GRADBUS_SOCKET"); path && !path->empty()) return *path;
  const std::string system = "/run/gradbus/agent.sock";
  if (access(system.c_str(), F_OK) == 0) return system;
  if (const auto dir = read("XDG_RUNTIME_DIR"); dir && !dir->empty())
    if (const std::string user = *dir + "/gradbus/agent.sock"; access(user.c_str(), F_OK) == 0)
      return user;
  return system;
}

}  // namespace gradbus
