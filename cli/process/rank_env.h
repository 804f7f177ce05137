// The environment of one rank, for a local process and for a remote shell. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"

namespace gradbus {

using Variables = std::vector<std::pair<std::string, std::string>>;

struct RankIdentity {
  std::string job;
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;           // ranks of the job on this machine's agent
  std::string socket;           // "" : the default of that machine
  std::string coordinator;      // "" : unknown; else for `gradbus status` inside the job
  std::string start_timeout_s;  // "" : not given
  std::string op_timeout_s;
  std::string elastic_timeout_s;
  uint32_t fence_every = 0;  // steps; 0: not given
};

// GRADBUS_* of the rank, the same in the names of torch.distributed, and PYTHONUNBUFFERED so that
// its lines come when they are written.
Variables rank_variables(const RankIdentity& identity);

// `base` ("NAME=VALUE" each) with `changes` in place of what it says about the same names.
std::vector<std::string> merge_environment(const std::vector<std::string>& base,
                                           const Variables& changes);

// What a rank on another host inherits: the variables of Python, CUDA, NCCL, OpenMP, Gradbus and
// the search paths, and those of `extra` ("NAME" or "NAME=VALUE"). Not all, as they appear in that
// host's process list. Without GRADBUS_SOCKET, which names a path of this machine.
Variables forwarded_variables(const std::vector<std::string>& base,
                              const std::vector<std::string>& extra);

// GB-H200 unless `word` is NAME or NAME=VALUE with a name a shell accepts.
Status check_variable(std::string_view word);

// This process's environment as "NAME=VALUE".
std::vector<std::string> own_environment();

}  // namespace gradbus
