#include "server/coordinator/own_load.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace gradbus {
namespace {

// Names of gRPC's threads, 15 characters at most. The coordinator's own threads may be busy with
// plans.
constexpr std::array<std::string_view, 4> kThreads = {"nexting_thread", "default-executo",
                                                      "event_engine", "grpc"};

bool is_of_grpc(const std::filesystem::path& thread) {
  std::ifstream file(thread / "comm");
  std::string name;
  std::getline(file, name);
  return std::ranges::any_of(kThreads, [&](auto known) { return name.starts_with(known); });
}

// Nanoseconds on a processor and in the queue of one.
Nanos busy_time(const std::filesystem::path& thread) {
  std::ifstream file(thread / "schedstat");
  Nanos ran = 0;
  Nanos waited = 0;
  return file >> ran >> waited ? ran + waited : 0;
}

}  // namespace

double OwnLoad::look(Nanos now) {
  std::map<pid_t, Nanos> seen;
  Nanos sum = 0;
  std::error_code problem;  // then some threads are left out
  for (std::filesystem::directory_iterator at("/proc/self/task", problem), end; at != end;
       at.increment(problem)) {
    const std::filesystem::path& path = at->path();
    if (!is_of_grpc(path)) continue;
    const std::string name = path.filename();
    pid_t thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    const Nanos busy = busy_time(path);
    const auto before = busy_.find(thread);
    sum += before == busy_.end() ? 0 : std::max<Nanos>(busy - before->second, 0);
    seen[thread] = busy;
  }
  busy_ = std::move(seen);
  const Nanos before = std::exchange(looked_, now);
  if (before == 0 || now <= before) return 0;
  return static_cast<double>(sum) / static_cast<double>(now - before);
}

}  // namespace gradbus
