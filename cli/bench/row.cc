#include "cli/bench/row.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace gradbus {
namespace {

__attribute__((format(printf, 1, 2))) std::string formatted(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

// Four digits that matter, in at most eight columns up to a quarter of an hour.
std::string microseconds_text(double value) {
  return formatted("%.*f", value < 100 ? 2 : value < 10'000 ? 1 : 0, value);
}

std::string type_text(const BenchWork& work) {
  return work.collective->number == kBarrier ? "none" : std::string(dtype_name(work.dtype));
}

}  // namespace

BenchTimes times_of(std::vector<double> microseconds) {
  std::sort(microseconds.begin(), microseconds.end());
  const size_t last = microseconds.size() - 1;
  const auto place = [&](double share) {
    return static_cast<size_t>(std::lround(static_cast<double>(last) * share));
  };
  return {microseconds.front(), microseconds[place(0.5)], microseconds[place(0.99)]};
}

std::optional<double> cpu_s_per_gb(double cpu_seconds, uint64_t operations, uint64_t bytes) {
  if (bytes == 0 || operations == 0) return std::nullopt;
  return cpu_seconds / (static_cast<double>(operations) * static_cast<double>(bytes) / 1e9);
}

BenchRow make_row(const BenchWork& work, const Extent& extent, const BenchTimes& times) {
  BenchRow row;
  row.extent = extent;
  row.times = times;
  // Bytes per microsecond are MB/s.
  if (times.best > 0) row.algbw = static_cast<double>(extent.bytes) / times.best / 1e3;
  row.busbw = row.algbw * bus_factor(*work.collective, work.ranks);
  return row;
}

// 80 columns in all, up to ten digits of elements; a longer number moves the rest of its row.
std::string column_titles() {
  return formatted("#%10s %10s %4s %7s %7s %6s %6s %6s %7s %7s\n", "size", "count", "type", "redop",
                   "time", "algbw", "busbw", "#wrong", "p50", "p99") +
         formatted("#%10s %10s %4s %7s %7s %6s %6s %6s %7s %7s", "(B)", "(elements)", "", "",
                   "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)");
}

std::string row_text(const BenchWork& work, const BenchRow& row) {
  const std::string wrong = row.wrong.has_value() ? std::to_string(*row.wrong) : "N/A";
  return formatted("%11llu %10llu %4s %7s %7s %6.2f %6.2f %6s %7s %7s",
                   static_cast<unsigned long long>(row.extent.bytes),
                   static_cast<unsigned long long>(row.extent.count), type_text(work).c_str(),
                   std::string(reduce_op_name(work.op)).c_str(),
                   microseconds_text(row.times.best).c_str(), row.algbw, row.busbw, wrong.c_str(),
                   microseconds_text(row.times.p50).c_str(),
                   microseconds_text(row.times.p99).c_str());
}

std::string device_text(const BenchRow& row) {
  if (!row.copy_gbs.has_value()) return "";
  const std::string copy = formatted("a copy on one has %.1f GB/s", *row.copy_gbs);
  if (!row.memory_gbs.has_value()) return "#   " + copy;
  return formatted("#   GPUs read and write %.1f GB/s, %.2f of a copy: ", *row.memory_gbs,
                   *row.memory_gbs / *row.copy_gbs) +
         copy;
}

nlohmann::ordered_json row_json(const BenchWork& work, const BenchRow& row) {
  nlohmann::ordered_json object = {{"size", row.extent.bytes},  {"count", row.extent.count},
                                   {"type", type_text(work)},   {"redop", reduce_op_name(work.op)},
                                   {"time", row.times.best},    {"algbw", row.algbw},
                                   {"busbw", row.busbw},        {"#wrong", nullptr},
                                   {"time_p50", row.times.p50}, {"time_p99", row.times.p99},
                                   {"cpu_s_per_gb", nullptr},   {"shards_cpu_s_per_gb", nullptr},
                                   {"batch", row.batch}};
  if (row.wrong.has_value()) object["#wrong"] = *row.wrong;
  if (row.cpu_s_per_gb.has_value()) object["cpu_s_per_gb"] = *row.cpu_s_per_gb;
  if (row.shards_cpu_s_per_gb.has_value()) object["shards_cpu_s_per_gb"] = *row.shards_cpu_s_per_gb;
  if (work.on_device) object["memory"] = "cuda";
  if (row.copy_gbs.has_value()) object["copy_gbs"] = *row.copy_gbs;
  if (row.memory_gbs.has_value()) object["memory_gbs"] = *row.memory_gbs;
  if (!work.model.empty()) object["model"] = work.model;
  if (!work.codec.empty()) object["codec"] = work.codec;
  if (!work.mode.empty()) object["mode"] = work.mode;
  return object;
}

}  // namespace gradbus
