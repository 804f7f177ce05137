#include "common/metrics/process_figures.h"

#include <dirent.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "common/clock.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/system_error.h"

namespace gradbus {
namespace {

struct ProcessNumbers {
  double threads = 0;
  double memory = 0;
  double start = 0;
};

// proc(5): fields 20, 22 and 24 after the name in brackets, which may contain anything.
ProcessNumbers read_stat() {
  ProcessNumbers numbers;
  char text[1024] = "";
  std::FILE* const file = std::fopen("/proc/self/stat", "re");
  if (file == nullptr) return numbers;
  const size_t bytes = std::fread(text, 1, sizeof(text) - 1, file);
  std::fclose(file);
  text[bytes] = '\0';
  const char* const rest = std::strrchr(text, ')');
  long threads = 0;
  unsigned long long start = 0;
  long pages = 0;
  if (rest == nullptr ||
      std::sscanf(rest + 1,
                  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d "
                  "%llu %*u %ld",
                  &threads, &start, &pages) != 3)
    return numbers;
  timespec now{}, since_boot{};
  clock_gettime(CLOCK_REALTIME, &now);
  clock_gettime(CLOCK_BOOTTIME, &since_boot);
  numbers.threads = static_cast<double>(threads);
  numbers.memory = static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE));
  numbers.start = static_cast<double>(now.tv_sec - since_boot.tv_sec) +
                  static_cast<double>(start) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return numbers;
}

double open_files() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  double count = -3;  // ".", ".." and the folder itself
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

// One twentieth, and enough to accept a caller who asks why.
Status check_open_files() {
  const uint64_t most = open_files_max();
  const double spare = std::max(8.0, static_cast<double>(most) / 20);
  const double used = open_files();  // 0: there was no descriptor to count them
  if (used > 0 && used + spare <= static_cast<double>(most)) return {};
  return error("S220", "this daemon has used nearly all of the " + std::to_string(most) +
                           " files that it may open; it refuses connections and jobs when none is "
                           "left");
}

void add_process_figures(MetricPage& page, const std::string& role) {
  page.add(Metric::kBuildInfo, {GRADBUS_VERSION, role}, 1);
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  page.add(Metric::kProcessCpu, seconds(used.ru_utime) + seconds(used.ru_stime));
  const ProcessNumbers numbers = read_stat();
  page.add(Metric::kProcessMemory, numbers.memory);
  page.add(Metric::kProcessThreads, numbers.threads);
  page.add(Metric::kProcessStart, numbers.start);
  page.add(Metric::kProcessFiles, open_files());
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  page.add(Metric::kProcessFilesMax, static_cast<double>(limit.rlim_cur));
  for (const auto& [level, count] : logged_records())
    page.add(Metric::kLogRecords, {level}, static_cast<double>(count));
  for (const auto& [code, count] : logged_errors())
    page.add(Metric::kErrors, {code}, static_cast<double>(count));
}

}  // namespace gradbus
