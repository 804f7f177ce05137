#include "common/cgroup.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

namespace gradbus {
namespace {

constexpr uint64_t kNoLimit = uint64_t{1} << 62;  // version 1 writes a huge number for none
constexpr size_t kLevelsMax = 64;

// Where a hierarchy is mounted, and this process's path in it.
struct Group {
  std::string mount;
  std::string root;  // the part of the hierarchy that is mounted
  std::string path;
};

std::vector<std::string> words_of(const std::string& line, char separator = ' ') {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
  return words;
}

bool has_word(const std::string& list, std::string_view word) {
  const std::vector<std::string> words = words_of(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || (end != text.data() + text.size() && *end != '\n')) return {};
  return value;
}

std::optional<uint64_t> number_in(const FileReader& read, const std::string& path) {
  const auto text = read(path);
  return text ? number(*text) : std::nullopt;
}

// The value of a line "key value", as memory.stat has them; 0 if there is none.
uint64_t field_in(const FileReader& read, const std::string& path, const std::string& key) {
  std::istringstream lines(read(path).value_or(""));
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(key + " ", 0) == 0) return number(line.substr(key.size() + 1)).value_or(0);
  return 0;
}

// From /proc/self/cgroup: "4:memory:/pod/container", or "0::/pod/container" of version 2.
std::optional<std::string> member_path(const std::string& file, const std::string& controller) {
  std::istringstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? line.rfind("0::", 0) == 0 : has_word(names, controller))
      return line.substr(second + 1);
  }
  return {};
}

// From /proc/self/mountinfo: "36 25 0:30 ROOT MOUNT rw - cgroup cgroup rw,memory".
std::optional<Group> mounted(const std::string& file, const std::string& controller) {
  std::istringstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> words = words_of(line);
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 5 || words.end() - dash < 4) continue;
    const bool wanted = controller.empty() ? dash[1] == "cgroup2"
                                           : dash[1] == "cgroup" && has_word(dash[3], controller);
    if (wanted) return Group{words[4], words[3], ""};
  }
  return {};
}

std::optional<Group> find_group(const FileReader& read, const std::string& controller) {
  const auto path = member_path(read("/proc/self/cgroup").value_or(""), controller);
  if (!path) return {};
  auto group = mounted(read("/proc/self/mountinfo").value_or(""), controller);
  if (group) group->path = *path;
  return group;
}

// The folders of the group and of those above it, as far as they are mounted.
std::vector<std::string> levels(const Group& group) {
  std::string below;
  const std::string root = group.root == "/" ? "" : group.root;
  if (group.path.find("/..") == std::string::npos && group.path.rfind(root, 0) == 0 &&
      (group.path.size() == root.size() || group.path[root.size()] == '/'))
    below = group.path.substr(root.size());
  if (below == "/") below.clear();
  std::vector<std::string> found;
  while (found.size() < kLevelsMax) {
    found.push_back(group.mount + below);
    if (below.empty()) break;
    below.erase(below.rfind('/'));
  }
  return found;
}

double share(const std::string& quota, const std::string& period) {
  const auto used = number(quota);
  const auto of = number(period);
  if (!used || !of || *used == 0 || *of == 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(*used) / static_cast<double>(*of);
}

double cpus_of_level(const FileReader& read, const std::string& folder, bool second) {
  if (!second)
    return share(read(folder + "/cpu.cfs_quota_us").value_or(""),
                 read(folder + "/cpu.cfs_period_us").value_or(""));
  const std::vector<std::string> words = words_of(read(folder + "/cpu.max").value_or(""));
  return words.size() == 2 ? share(words[0], words[1]) : share("", "");
}

std::optional<MemoryLimit> memory_of_level(const FileReader& read, const std::string& folder,
                                           bool second) {
  MemoryLimit limit;
  limit.file = folder + (second ? "/memory.max" : "/memory.limit_in_bytes");
  const auto most = number_in(read, limit.file);  // "max" is not a number
  if (!most || *most >= kNoLimit) return {};
  limit.bytes_max = *most;
  const uint64_t used =
      number_in(read, folder + (second ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
  const uint64_t cache =
      field_in(read, folder + "/memory.stat", second ? "inactive_file" : "total_inactive_file");
  limit.bytes_used = used - std::min(used, cache);
  return limit;
}

// The group of a controller, and whether it is of version 2. Where both are mounted, a controller
// belongs to one of them.
std::optional<std::pair<Group, bool>> group_of(const FileReader& read, const char* controller) {
  if (auto group = find_group(read, controller)) return std::pair{*group, false};
  if (auto group = find_group(read, "")) return std::pair{*group, true};
  return {};
}

}  // namespace

std::optional<std::string> read_whole_file(const std::string& path) {
  const std::ifstream file(path);
  if (!file) return {};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

CgroupLimits read_cgroup_limits(const FileReader& read) {
  CgroupLimits limits;
  if (const auto found = group_of(read, "cpu"))
    for (const std::string& folder : levels(found->first))
      limits.cpus = std::min(limits.cpus, cpus_of_level(read, folder, found->second));
  const auto found = group_of(read, "memory");
  if (!found) return limits;
  for (const std::string& folder : levels(found->first)) {
    const auto limit = memory_of_level(read, folder, found->second);
    if (!limit) continue;
    limits.memory_bytes_max = std::min(limits.memory_bytes_max, limit->bytes_max);
    if (!limits.memory || limit->left() < limits.memory->left()) limits.memory = limit;
  }
  return limits;
}

uint32_t affinity_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return static_cast<uint32_t>(CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());  // more than 1024 cores
}

uint32_t usable_cores(const CgroupLimits& limits, uint32_t affinity) {
  const double cores = std::min(static_cast<double>(affinity), std::floor(limits.cpus));
  return std::max(1u, static_cast<uint32_t>(cores));
}

}  // namespace gradbus
