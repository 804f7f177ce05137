// The daemons' log over spdlog. start_log() is called once at start-up; logging from any thread.
#include "common/log.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/details/os.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>

#include "common/errors.h"

namespace gradbus {
namespace {

struct LevelName {
  std::string_view name;
  spdlog::level::level_enum level;
};

constexpr LevelName kLevels[] = {
    {"trace", spdlog::level::trace}, {"debug", spdlog::level::debug}, {"info", spdlog::level::info},
    {"warn", spdlog::level::warn},   {"error", spdlog::level::err},
};

// The message with control characters as '?': names in it came from other processes, and none of
// them may begin a second record or move the cursor of a terminal.
class OneLineMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& record, const std::tm&,
              spdlog::memory_buf_t& line) override {
    for (const char c : record.payload) {
      line.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c);
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<OneLineMessage>();
  }
};

std::unique_ptr<spdlog::formatter> one_line_formatter() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<OneLineMessage>('*').set_pattern("%Y-%m-%d %H:%M:%S.%e %^%L%$ %n: %*");
  return formatter;
}

// https://no-color.org: any non-empty value.
spdlog::color_mode color_mode() {
  const char* no_color = std::getenv("NO_COLOR");
  const bool refused = no_color != nullptr && *no_color != '\0';
  const bool shown = isatty(STDERR_FILENO) != 0 && spdlog::details::os::is_color_terminal();
  return shown && !refused ? spdlog::color_mode::always : spdlog::color_mode::never;
}

constexpr size_t kErrorsMax = 256;
std::array<std::atomic<uint64_t>, std::size(kLevels)> level_counts;
std::array<std::atomic<uint64_t>, kErrorsMax> error_counts;  // by row of the error table

// Counts what is logged; writes nothing.
class CountingSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& record) override {
    const auto level = static_cast<size_t>(record.level);
    if (level < level_counts.size()) level_counts[level].fetch_add(1, std::memory_order_relaxed);
    if (record.level < spdlog::level::warn) return;
    const std::string_view code = code_in({record.payload.data(), record.payload.size()});
    if (code.empty()) return;
    const auto row = static_cast<size_t>(find_error(code) - all_errors().data());
    if (row < kErrorsMax) error_counts[row].fetch_add(1, std::memory_order_relaxed);
  }
  void flush_() override {}
};

Result<spdlog::level::level_enum> parse_level(const std::string& level) {
  const auto row = std::find_if(std::begin(kLevels), std::end(kLevels),
                                [&](const LevelName& known) { return known.name == level; });
  if (row != std::end(kLevels)) return row->level;
  return error("F100", "log level '" + level + "' is not one of trace, debug, info, warn, error");
}

}  // namespace

std::string_view code_in(std::string_view message) {
  constexpr std::string_view kPrefix = "GB-";
  constexpr size_t kCodeBytes = 4;
  const size_t at = message.find(kPrefix);
  if (at == std::string_view::npos) return {};
  const std::string_view code = message.substr(at + kPrefix.size(), kCodeBytes);
  return find_error(code) == nullptr ? std::string_view() : code;
}

std::shared_ptr<spdlog::sinks::sink> text_sink(FILE* file) {
  using Sink = spdlog::sinks::ansicolor_sink<spdlog::details::console_mutex>;
  auto sink = std::make_shared<Sink>(file, color_mode());
  sink->set_formatter(one_line_formatter());
  return sink;
}

Status start_log(const std::string& program, const std::string& level,
                 std::shared_ptr<spdlog::sinks::sink> sink) {
  const Result<spdlog::level::level_enum> wanted = parse_level(level);
  if (!wanted.ok()) return wanted.status();
  const spdlog::sinks_init_list sinks{std::make_shared<CountingSink>(), std::move(sink)};
  auto logger = std::make_shared<spdlog::logger>(program, sinks);
  logger->set_level(wanted.value());
  spdlog::set_default_logger(std::move(logger));
  return {};
}

Status set_log_level(const std::string& level) {
  const Result<spdlog::level::level_enum> wanted = parse_level(level);
  if (!wanted.ok()) return wanted.status();
  spdlog::default_logger()->set_level(wanted.value());
  return {};
}

std::vector<std::pair<std::string, uint64_t>> logged_records() {
  std::vector<std::pair<std::string, uint64_t>> counts;
  for (const LevelName& row : kLevels)
    counts.emplace_back(row.name, level_counts[static_cast<size_t>(row.level)].load());
  return counts;
}

std::vector<std::pair<std::string, uint64_t>> logged_errors() {
  std::vector<std::pair<std::string, uint64_t>> counts;
  const auto errors = all_errors();
  for (size_t row = 0; row < std::min(errors.size(), kErrorsMax); ++row)
    if (const uint64_t count = error_counts[row].load(); count > 0)
      counts.emplace_back(errors[row].id, count);
  return counts;
}

}  // namespace gradbus
