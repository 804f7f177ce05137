#include "cli/launch/rank_start.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "cli/launch/remote_command.h"
#include "cli/process/rank_env.h"
#include "common/cgroup.h"
#include "common/errors.h"

namespace gradbus {
namespace {

RankIdentity identity_of(const RankStarter& starter, const RankPlace& place) {
  const LaunchPlan& plan = starter.plan;
  RankIdentity identity;
  identity.job = plan.job;
  identity.rank = place.rank;
  identity.size = plan.ranks;
  identity.local_rank = place.local_rank;
  identity.local_size = plan.local_size(place.block);
  if (plan.blocks[place.block].local) identity.socket = starter.sockets[place.block];
  identity.coordinator = starter.coordinator;
  identity.start_timeout_s = starter.options.start_timeout;
  identity.op_timeout_s = starter.options.op_timeout;
  identity.elastic_timeout_s = starter.options.elastic_timeout;
  identity.fence_every = starter.options.fence_every;
  return identity;
}

// Threads of all ranks together should not be more than the cores.
void add_thread_count(const RankStarter& starter, Variables& variables) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const int threads = std::max(1, starter.cores / starter.plan.ranks_on_this_machine());
  variables.emplace_back("OMP_NUM_THREADS", std::to_string(threads));
}

// So that scripts for torch.distributed find each other, with any of its backends.
void add_torch_address(const RankStarter& starter, Variables& variables) {
  const std::vector<std::string>& given = starter.options.variables;
  const auto add_missing = [&](const std::string& name, const std::string& value) {
    const bool is_given = std::any_of(given.begin(), given.end(), [&](const std::string& word) {
      return word.substr(0, word.find('=')) == name;
    });
    if (!is_given && std::getenv(name.c_str()) == nullptr) variables.emplace_back(name, value);
  };
  add_missing("MASTER_ADDR", starter.lab != nullptr ? starter.lab->address(0) : starter.torch.host);
  add_missing("MASTER_PORT", std::to_string(starter.torch.port));
}

ChildSpec local_spec(const RankStarter& starter, const RankPlace& place) {
  Variables variables = rank_variables(identity_of(starter, place));
  add_thread_count(starter, variables);
  add_torch_address(starter, variables);
  for (const std::string& given : starter.options.variables)
    if (const size_t equals = given.find('='); equals != std::string::npos)
      variables.emplace_back(given.substr(0, equals), given.substr(equals + 1));
  ChildSpec spec{starter.options.command, merge_environment(own_environment(), variables)};
  if (starter.lab != nullptr) spec.netns_fd = starter.lab->netns(place.block);
  // A pipe or file is rank 0's to read, as without a launcher. A terminal is not: a process outside
  // the terminal's foreground group would be stopped when it reads.
  if (place.rank == 0 && isatty(STDIN_FILENO) == 0) spec.stdin_fd = STDIN_FILENO;
  return spec;
}

ChildSpec remote_spec(const RankStarter& starter, const RankPlace& place) {
  Variables variables = forwarded_variables(own_environment(), starter.options.variables);
  for (auto& variable : rank_variables(identity_of(starter, place)))
    variables.push_back(std::move(variable));
  add_torch_address(starter, variables);
  std::istringstream words(starter.options.ssh);
  ChildSpec spec{{}, own_environment()};
  for (std::string word; words >> word;) spec.words.push_back(word);
  spec.words.push_back(starter.plan.blocks[place.block].name);
  std::error_code ignored;
  spec.words.push_back(remote_script(std::filesystem::current_path(ignored).string(), variables,
                                     starter.options.command,
                                     starter.plan.local_size(place.block)));
  return spec;
}

Result<std::unique_ptr<OutputStream>> file_stream(const RankStarter& starter, int rank,
                                                  bool is_out) {
  const std::string path = starter.options.output_directory + "/rank." + std::to_string(rank) +
                           (is_out ? ".out" : ".err");
  Result<std::unique_ptr<FileStream>> stream = FileStream::create(starter.screen, path);
  if (!stream.ok()) return stream.status();
  return std::unique_ptr<OutputStream>(stream.take());
}

Result<std::unique_ptr<OutputStream>> stream_of(const RankStarter& starter, int rank,
                                                Target target) {
  const RunOptions& options = starter.options;
  if (!options.output_directory.empty()) return file_stream(starter, rank, target == Target::kOut);
  if (starter.plan.ranks == 1)
    return std::unique_ptr<OutputStream>(std::make_unique<RawStream>(starter.screen, target));
  const bool live = rank == 0 && target == Target::kErr && starter.screen.shows_progress();
  Label label{options.no_prefix ? "" : "[" + std::to_string(rank) + "] ", rank};
  return std::unique_ptr<OutputStream>(
      std::make_unique<LineStream>(starter.screen, target, std::move(label), live));
}

}  // namespace

Result<Process> RankStarter::start(const RankPlace& place) const {
  const bool local = plan.blocks[place.block].local;
  ChildSpec spec = local ? local_spec(*this, place) : remote_spec(*this, place);
  std::vector<OutputPipe> pipes;
  std::vector<Fd> write_ends;
  for (const Target target : {Target::kOut, Target::kErr}) {
    Result<Pipe> pipe = make_pipe(PipeUse::kForPolling);
    if (!pipe.ok()) return pipe.status();
    Result<std::unique_ptr<OutputStream>> stream = stream_of(*this, place.rank, target);
    if (!stream.ok()) return stream.status();
    pipes.push_back({std::move(pipe.value().read), stream.take()});
    write_ends.push_back(std::move(pipe.value().write));
  }
  Result<Pipe> life_line = make_pipe(PipeUse::kForChild);
  if (!life_line.ok()) return life_line.status();
  if (!local) spec.stdin_fd = life_line.value().read.get();
  spec.stdout_fd = write_ends[0].get();
  spec.stderr_fd = write_ends[1].get();
  spec.death_signal = SIGKILL;
  Result<Child> child = start_child(spec);
  if (!child.ok()) return child.status();
  Process process("rank " + std::to_string(place.rank), child.take(), std::move(pipes), guard);
  if (!local) process.hold(std::move(life_line.value().write));
  return process;
}

int usable_cores() {
  return static_cast<int>(usable_cores(read_cgroup_limits(), affinity_cores()));
}

}  // namespace gradbus
