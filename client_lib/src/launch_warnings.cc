#include "client_lib/src/launch_warnings.h"

#include <atomic>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "common/environment/unknown_variables.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr size_t kValueBytesMax = 64;

struct LauncherVariables {
  const char* launcher;
  const char* rank;
  const char* size;  // "": no variable of this launcher holds it
};

constexpr LauncherVariables kLauncherVariables[] = {
    {"torchrun", "RANK", "WORLD_SIZE"},
    {"torchrun", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Horovod", "HOROVOD_RANK", "HOROVOD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE"},
    {"PMIx", "PMIX_RANK", ""},
    {"Hydra", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"mpiexec", "MPIEXEC_RANK", ""},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS"},
    {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
    {"PALS", "PALS_RANKID", "PALS_SIZE"},
    {"ALPS", "ALPS_APP_PE", ""},
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
    {"LSF", "LSF_PM_TASKID", ""},
};

bool is_above(const std::string& text, int64_t limit) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size() && value > limit;
}

// A rank without a size contradicts a process that has no launcher. Where a launcher said "one
// rank", only a rank above 0 does: that launcher may have set both variables.
bool contradicts(const LauncherVariables& variables, const LaunchIdentity& identity,
                 const ReadVariable& read) {
  if (const auto size = read(variables.size); size && !size->empty()) return is_above(*size, 1);
  const auto rank = read(variables.rank);
  if (!rank || rank->empty()) return false;
  return identity.launcher == "single" || is_above(*rank, 0);
}

std::string shown(const char* name, const ReadVariable& read) {
  const auto value = read(name);
  if (!value) return "";
  std::string text = value->substr(0, kValueBytesMax);
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return std::string(name) + "=" + text;
}

std::string advice(const LauncherVariables& variables, const ReadVariable& read) {
  if (std::string_view(variables.launcher) == "Slurm")
    return "start the ranks with srun in the batch script or allocation; if one process is right: "
           "GRADBUS_RANK=0 GRADBUS_SIZE=1";
  const std::string rank = read(variables.rank) ? "$" + std::string(variables.rank) : "0..SIZE-1";
  const std::string size = read(variables.size) ? "$" + std::string(variables.size) : "SIZE";
  return "give each process GRADBUS_RANK=" + rank + " GRADBUS_SIZE=" + size +
         " GRADBUS_JOB=NAME, or start it with gradbus run; if one process is right: GRADBUS_RANK=0 "
         "GRADBUS_SIZE=1";
}

}  // namespace

std::string alone_warning(const LaunchIdentity& identity, const ReadVariable& read) {
  if (identity.world_size != 1) return "";
  if (identity.launcher == "arguments" || identity.launcher == "gradbus") return "";
  for (const LauncherVariables& variables : kLauncherVariables) {
    if (!contradicts(variables, identity, read)) continue;
    const std::string rank = shown(variables.rank, read);
    const std::string size = shown(variables.size, read);
    const std::string both = rank + (rank.empty() || size.empty() ? "" : " and ") + size;
    return error("J407",
                 "this process trains alone (world size 1), but a launcher (" +
                     std::string(variables.launcher) + ") has set " + both,
                 advice(variables, read))
        .message();
  }
  return "";
}

void warn_if_alone(const LaunchIdentity& identity) {
  static std::atomic<bool> warned{false};
  const std::string line = alone_warning(identity, read_environment);
  if (line.empty() || warned.exchange(true)) return;
  std::fprintf(stderr, "warning: %s\n", line.c_str());
}

// Does not change the environment, because a program may have threads that read it.
void warn_of_unknown_variables() {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  for (const std::string& line : unknown_variables(environment_words()))
    std::fprintf(stderr, "warning: %s\n", line.c_str());
}

}  // namespace gradbus
