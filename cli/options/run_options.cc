#include "cli/options/run_options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "cli/options/host_list.h"
#include "cli/options/link_spec.h"
#include "cli/process/rank_env.h"
#include "common/errors.h"
#include "proto/numbers.h"

namespace gradbus {
namespace {

constexpr int kShardsMax = 128;
constexpr double kTimeoutSecondsMax = 1e7;  // the client library's own bound

Status check_seconds(const char* option, const std::string& text) {
  if (text.empty()) return {};
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  if (*end == '\0' && std::isfinite(seconds) && seconds > 0 && seconds <= kTimeoutSecondsMax)
    return {};
  return error("H200", std::string(option) + " is \"" + text.substr(0, 40) +
                           "\", not a number of seconds above 0");
}

Status check_job(const RunOptions& options) {
  const bool printable =
      std::ranges::all_of(options.job, [](char c) { return c >= 32 && c < 127; });
  if (printable && options.job.size() <= kJobNameBytesMax) return {};
  return error("H200", "--job is not a name of at most " + std::to_string(kJobNameBytesMax) +
                           " printable characters");
}

Status check_shards(const RunOptions& options) {
  if (options.shards.empty() || options.shards == "0") return {};
  const Result<int> shards = parse_rank_count(options.shards, "--shards");
  if (!shards.ok() || shards.value() > kShardsMax)
    return error("H200", "--shards is \"" + options.shards.substr(0, 40) +
                             "\", not a whole number in 0.." + std::to_string(kShardsMax));
  if (!options.hosts.empty() || !options.hostfile.empty())
    return error("H200", "--shards is for this machine alone, but hosts are given",
                 "start gradbus-server --role=shard on the nodes that are to be shards");
  return {};
}

Status check_daemon_choice(const RunOptions& options) {
  if (!options.agents.empty()) {
    Result<int> agents = parse_rank_count(options.agents, "--agents");
    if (!agents.ok())
      return error("H200", "--agents is \"" + options.agents.substr(0, 40) +
                               "\", not a whole number in 1..4096");
  }
  GRADBUS_RETURN_IF_ERROR(check_shards(options));
  if (!options.hosts.empty() && !options.hostfile.empty())
    return error("H200", "-H and --hostfile are both given", "give one of them");
  if (!options.agents.empty() && !(options.hosts.empty() && options.hostfile.empty()))
    return error("H200", "--agents is for this machine alone, but hosts are given",
                 "leave out --agents: each host has its agent");
  return {};
}

// One agent without shards has nobody to send to, so its link would show nothing.
Status check_link(const RunOptions& options) {
  if (options.link.empty()) return {};
  const bool one_agent = options.agents.empty() || options.agents == "1";
  if (one_agent && shard_count(options) == 0)
    return error("H200", "--link needs at least two agents, which are on its two ends",
                 "gradbus run --agents 2 --link " + options.link.substr(0, 40) + " ...");
  Result<LinkSpec> link = parse_link(options.link);
  return link.ok() ? Status() : link.status();
}

bool is_executable_file(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

Status not_startable(const std::string& program) {
  if (program.find('/') == std::string::npos)
    return error("H201", "\"" + program + "\" is not a program on PATH");
  if (access(program.c_str(), F_OK) != 0) return error("H201", program + " does not exist");
  return error("H201", program + " is not an executable file",
               "chmod +x it, or name its interpreter: gradbus run ... -- python " + program);
}

}  // namespace

int shard_count(const RunOptions& options) {
  return options.shards.empty() ? 0 : std::stoi(options.shards);
}

Status check_run_options(const RunOptions& options) {
  if (options.command.empty() || options.command.front().empty())
    return error("H200", "there is no program to run", "gradbus run -np 4 -- python train.py");
  const bool has_hosts = !options.hosts.empty() || !options.hostfile.empty();
  if (options.ranks.empty() && !has_hosts)
    return error("J401", "the number of ranks is missing", "gradbus run -np 4 -- COMMAND");
  if (!options.ranks.empty())
    if (Result<int> ranks = parse_rank_count(options.ranks, "-np"); !ranks.ok())
      return ranks.status();
  GRADBUS_RETURN_IF_ERROR(check_job(options));
  GRADBUS_RETURN_IF_ERROR(check_seconds("--start-timeout", options.start_timeout));
  GRADBUS_RETURN_IF_ERROR(check_seconds("--op-timeout", options.op_timeout));
  GRADBUS_RETURN_IF_ERROR(check_seconds("--elastic-timeout", options.elastic_timeout));
  for (const std::string& variable : options.variables)
    GRADBUS_RETURN_IF_ERROR(check_variable(variable));
  GRADBUS_RETURN_IF_ERROR(check_daemon_choice(options));
  return check_link(options);
}

Result<std::string> find_program(const std::string& program, const std::string& search_path) {
  if (program.find('/') != std::string::npos)
    return is_executable_file(program) ? Result<std::string>(program) : not_startable(program);
  for (size_t begin = 0; begin <= search_path.size();) {
    const size_t end = std::min(search_path.find(':', begin), search_path.size());
    const std::string folder = search_path.substr(begin, end - begin);
    const std::string path = (folder.empty() ? "." : folder) + "/" + program;
    if (is_executable_file(path)) return path;
    begin = end + 1;
  }
  return not_startable(program);
}

}  // namespace gradbus
