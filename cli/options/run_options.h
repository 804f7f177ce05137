// What the user asked of `gradbus run`, and the checks that need no machine. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace gradbus {

struct RunOptions {
  std::string ranks;      // -np, as typed: "nan" and "1e9" deserve a sentence, too
  std::string job;        // name; "" : a random one
  std::string agents;     // "" : not given
  std::string shards;     // "" : not given
  std::string snapshots;  // directory; "" : not given
  std::string shards_on;  // own, agents, or by shard own or an agent's name; "" : not given
  std::string link;       // "" : not given
  std::vector<std::string> link_of;  // NODE=RATE[,DELAY]
  std::string transport;             // "" : not given
  std::string compression;           // "" : not given
  std::string mode;                  // "" : not given
  std::string schedule;              // "" : not given
  bool autotune = false;
  std::string autotune_log;  // file; "" : not given
  std::string late_mode;     // "" : not given
  int loss_percent = 0;      // 0: not given
  std::string policy;        // file; "" : not given
  std::string record;        // file of what steps compute; "" : not given
  std::string timeline;      // file of the job's trace; "" : not given
  uint32_t fence_every = 0;  // steps; 0: not given
  bool embedded = false;
  int restart_agents = 0;  // of embedded ones, in all
  std::string hosts;       // -H
  std::string hostfile;
  std::string start_timeout;  // seconds, as typed
  std::string op_timeout;
  std::string elastic_timeout;
  std::string output_directory;  // "" : to our stdout and stderr
  bool no_colour = false;
  bool no_prefix = false;
  bool verbose = false;
  std::string ssh = "ssh -o BatchMode=yes";
  std::vector<std::string> variables;  // -x NAME or NAME=VALUE
  std::vector<std::string> command;
};

// Of --shards, which check_run_options() has seen.
int shard_count(const RunOptions& options);

// Contradictions and texts that are no numbers: GB-H200, GB-J401.
Status check_run_options(const RunOptions& options);

// The file that execvp() would start for `program`. GB-H201 when there is none.
Result<std::string> find_program(const std::string& program, const std::string& search_path);

}  // namespace gradbus
