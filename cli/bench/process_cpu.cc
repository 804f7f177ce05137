#include "cli/bench/process_cpu.h"

#include <time.h>

#include <charconv>
#include <fstream>
#include <string>

namespace gradbus {

pid_t parent_in(const std::filesystem::path& stat) {
  std::ifstream file(stat);
  std::string text;
  // Not by iterators: they throw when the process has ended since the file was opened (ESRCH).
  std::getline(file, text, '\0');
  const size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos || name_end + 4 > text.size()) return -1;
  pid_t parent = -1;
  std::from_chars(text.data() + name_end + 4, text.data() + text.size(), parent);
  return parent;
}

ProcessCpu ProcessCpu::children_of(pid_t parent) {
  std::vector<pid_t> pids;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", problem)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = -1;
    const auto [end, not_a_number] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (not_a_number != std::errc() || end != name.data() + name.size()) continue;
    if (parent_in(entry.path() / "stat") == parent) pids.push_back(pid);
  }
  return ProcessCpu(std::move(pids));
}

ProcessCpu ProcessCpu::children_with(std::string_view argument, pid_t parent) {
  ProcessCpu found = children_of(parent);
  std::erase_if(found.pids_, [&](pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
    for (std::string word; std::getline(file, word, '\0');)
      if (word == argument) return false;
    return true;
  });
  return found;
}

double ProcessCpu::seconds() const {
  double sum = 0;
  for (const pid_t pid : pids_) {
    clockid_t clock{};
    timespec time{};
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) continue;
    sum += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  }
  return sum;
}

}  // namespace gradbus
