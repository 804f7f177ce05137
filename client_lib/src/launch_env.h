// Which rank of which job is this process? Read from explicit arguments or the launcher's
// variables.
//
// Sources, first complete one wins: explicit options, GRADBUS_*, torchrun, Horovod, Open MPI, PMI
// (MPICH, Slurm's srun --mpi=pmi2), Slurm, else a world of one. A variable that is present but not
// a number in range is an error that names it, never a silent fall-through. So is one of
// GRADBUS_RANK and GRADBUS_SIZE without the other. launch_warnings.h warns about a world of one
// that looks wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/status.h"

namespace gradbus {

struct LaunchIdentity {
  std::string launcher;  // "arguments", "gradbus", "torchrun", "horovod", "openmpi", "pmi",
                         // "slurm", "single"
  std::string job;
  int64_t rank = 0;
  int64_t world_size = 1;
};

struct LaunchArguments {
  std::string job;    // "" : not given
  int64_t rank = -1;  // -1: not given
  int64_t world_size = -1;
};

using ReadVariable = std::function<std::optional<std::string>(const char* name)>;

std::optional<std::string> read_environment(const char* name);

Result<LaunchIdentity> find_identity(const LaunchArguments& arguments, const ReadVariable& read);

// The seconds in variable `name`, as milliseconds; if it is not set, `otherwise_ms`. F100 if it has
// another value than a number above 0.
Result<int64_t> seconds_variable(const ReadVariable& read, const char* name, int64_t otherwise_ms);

// GRADBUS_SOCKET, else the first that exists of /run/gradbus/agent.sock and
// $XDG_RUNTIME_DIR/gradbus/agent.sock, else the former.
std::string default_socket_path(const ReadVariable& read);

}  // namespace gradbus
