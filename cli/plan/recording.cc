#include "cli/plan/recording.h"

#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/errors.h"
#include "common/text/json_text.h"

extern char** environ;

namespace gradbus {
namespace {

constexpr double kNumberMax = 1e12;

Status bad(const std::string& where, const std::string& what) {
  return error("F102", where + ": " + what, "record it again: gradbus run --record FILE ...");
}

double number_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return 0;
  const double number = found->get<double>();
  return number >= 0 && number <= kNumberMax ? number : 0;
}

uint32_t count_of(const nlohmann::json& object, const char* key) {
  return static_cast<uint32_t>(std::clamp(number_of(object, key), 1.0, 1e6));
}

class TemporaryFile {
 public:
  TemporaryFile() {
    const int file = mkstemp(name_.data());
    if (file >= 0) close(file);
    made_ = file >= 0;
  }
  ~TemporaryFile() {
    if (made_) unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  bool made() const { return made_; }
  const std::string& name() const { return name_; }
  std::string text() const {
    std::stringstream all;
    all << std::ifstream(name_, std::ios::binary).rdbuf();
    return all.str();
  }

 private:
  std::string name_ = std::filesystem::temp_directory_path() / "gradbus-record-XXXXXX";
  bool made_ = false;
};

// Its stdout becomes our stderr: stdout has the plan.
Result<int> run_and_wait(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int problem = posix_spawnp(&child, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (problem != 0)
    return error("H201", command.front() + " cannot be started: " + std::strerror(problem));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Result<Recording> parse_recording(const std::string& text, const std::string& where) {
  Result<scheduling::Workload> workload = scheduling::parse_workload(text, where);
  if (!workload.ok()) return workload.status();
  const nlohmann::json document = parse_json(text);
  const auto found = document.find("recorded");
  if (found == document.end() || !found->is_object())
    return bad(where, "there is no part \"recorded\"");
  Recording recording{workload.take(), {}};
  RecordedJob& job = recording.job;
  job.ranks = count_of(*found, "ranks");
  job.nodes = count_of(*found, "nodes");
  job.step_us = number_of(*found, "step_us");
  if (!(job.step_us > 0)) return bad(where, "it does not say how long a step took");
  const auto schedule = found->find("schedule");
  if (schedule != found->end() && schedule->is_string())
    job.schedule = schedule->get<std::string>().substr(0, 40);
  const auto network = found->find("network");
  if (network != found->end() && network->is_object()) {
    job.startup_us = number_of(*network, "startup_us");
    job.byte_ns = number_of(*network, "byte_ns");
  }
  return recording;
}

Result<std::string> record_program(const std::vector<std::string>& command) {
  const TemporaryFile file;
  if (!file.made())
    return error("F102", file.name() + " cannot be made: " + std::strerror(errno),
                 "set TMPDIR to a folder that can be written");
  setenv("GRADBUS_RECORD", file.name().c_str(), 1);
  const Result<int> exit_code = run_and_wait(command);
  unsetenv("GRADBUS_RECORD");
  if (!exit_code.ok()) return exit_code.status();
  std::string text = file.text();
  if (exit_code.value() != 0)
    return error("F102", command.front() + " ended with " + std::to_string(exit_code.value()),
                 "run it alone, and see what it prints");
  if (text.empty())
    return error("F102", command.front() + " has recorded nothing",
                 "let it make 9 steps of a gradbus.torch.DistributedOptimizer");
  return text;
}

}  // namespace gradbus
