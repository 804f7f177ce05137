#include "cli/bench/machine.h"

#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/bench/json_file.h"
#include "cli/bench/signals.h"
#include "cli/bench/streams.h"
#include "cli/command.h"
#include "cli/terminal/text_table.h"
#include "common/errors.h"
#include "common/text/help_text.h"

namespace gradbus {
namespace {

using Json = nlohmann::ordered_json;

struct Limits {
  size_t cores = 1;
  std::vector<double> on_one;  // by kernel
  std::vector<double> on_all;
  SignalTimes signals;  // empty where there is one core only
};

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const size_t colon = line.find(": ");
        line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  utsname name{};
  uname(&name);
  return name.machine;
}

std::string cache_text(int level) {
  const uint64_t kibibytes = cache_bytes(level) >> 10;
  if (kibibytes == 0) return "";
  const std::string name = "; L" + std::to_string(level) + " ";
  return name + (kibibytes < 1024 ? std::to_string(kibibytes) + " KiB"
                                  : std::to_string(kibibytes >> 10) + " MiB");
}

std::string rate_text(double gbs) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", gbs);
  return text;
}

std::string latency_text(const std::optional<double>& ns) {
  if (!ns.has_value()) return "not measured: one core, or too busy";
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f ns", *ns);
  return text;
}

Result<Limits> measure_limits() {
  const std::vector<int> cores = allowed_cores();
  const uint64_t bytes = stream_array_bytes();
  Limits limits;
  limits.cores = cores.size();
  Result<std::vector<double>> one = measure_streams({cores.front()}, bytes);
  if (!one.ok()) return one.status();
  Result<std::vector<double>> all = cores.size() == 1 ? one : measure_streams(cores, bytes);
  if (!all.ok()) return all.status();
  limits.on_one = one.take();
  limits.on_all = all.take();
  if (cores.size() > 1) limits.signals = measure_signals(cores[0], cores[1]);
  return limits;
}

void print_table(const Limits& limits, std::FILE* to) {
  std::fprintf(to, "# gradbus %s bench machine\n%s", GRADBUS_VERSION,
               commented(machine_text()).c_str());
  std::fprintf(to, "# GB/s of traffic, bytes read and written; arrays of %llu MiB\n",
               static_cast<unsigned long long>(stream_array_bytes() >> 20));
  TextTable table(
      {{"stream"}, {"1 core", 12, true}, {std::to_string(limits.cores) + " cores", 12, true}});
  for (size_t k = 0; k < kStreamKernels; ++k)
    table.add({std::string(stream_kernels()[k].name), rate_text(limits.on_one[k]),
               rate_text(limits.on_all[k])});
  std::fprintf(to, "%s", table.text().c_str());
  std::fprintf(to, "  queue, one way: %s\n", latency_text(limits.signals.queue_one_way_ns).c_str());
  std::fprintf(to, "  futex, one way: %s\n", latency_text(limits.signals.futex_one_way_ns).c_str());
}

Json or_null(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json limits_json(const Limits& limits) {
  Json object = {{"cores", limits.cores}};
  for (size_t k = 0; k < kStreamKernels; ++k)
    object[std::string(stream_kernels()[k].name) + "_gbs"] = {limits.on_one[k], limits.on_all[k]};
  object["queue_one_way_ns"] = or_null(limits.signals.queue_one_way_ns);
  object["futex_one_way_ns"] = or_null(limits.signals.futex_one_way_ns);
  object["machine"] = machine_text();
  return object;
}

}  // namespace

std::string machine_text() {
  utsname name{};
  uname(&name);
  struct sysinfo info {};
  sysinfo(&info);
  const double gib = static_cast<double>(info.totalram) * info.mem_unit / (1u << 30);
  return processor_name() + "; " + std::to_string(allowed_cores().size()) + " cores" +
         cache_text(2) + cache_text(3) + "; " + std::to_string(std::lround(gib)) + " GiB; " +
         name.sysname + " " + name.release;
}

int bench_machine(const std::string& json) {
  Result<Limits> limits = measure_limits();
  if (!limits.ok()) return fail(limits.status(), kExitFailed);
  print_table(limits.value(), table_stream(json));
  const Status written = write_json(json, limits_json(limits.value()).dump(1) + "\n");
  return written.ok() ? kExitOk : fail(written, kExitFailed);
}

}  // namespace gradbus
