// The daemons' log over spdlog. start_log() is called once at start-up; logging from any thread.
#include "common/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
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
  return refused ? spdlog::color_mode::never : spdlog::color_mode::automatic;
}

}  // namespace

Status start_log(const std::string& program, const std::string& level) {
  const auto row = std::find_if(std::begin(kLevels), std::end(kLevels),
                                [&](const LevelName& known) { return known.name == level; });
  if (row == std::end(kLevels)) {
    return error("F100", "log level '" + level + "' is not one of trace, debug, info, warn, error");
  }
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(color_mode());
  auto logger = std::make_shared<spdlog::logger>(program, std::move(sink));
  logger->set_formatter(one_line_formatter());
  logger->set_level(row->level);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace gradbus
