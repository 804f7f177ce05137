#include "common/daemon/daemon_log.h"

#define SD_JOURNAL_SUPPRESS_LOCATION  // the source's file and line would be this one's
#include <spdlog/sinks/base_sink.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/environment/unknown_variables.h"
#include "common/errors.h"
#include "common/log.h"

namespace gradbus {
namespace {

constexpr std::string_view kJobWord = "job \"";
constexpr std::string_view kRankWord = "rank ";

std::string_view level_name(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace: return "trace";
    case spdlog::level::debug: return "debug";
    case spdlog::level::info: return "info";
    case spdlog::level::warn: return "warn";
    default: return "error";
  }
}

// syslog(3)
std::string_view priority(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
    case spdlog::level::debug: return "7";
    case spdlog::level::info: return "6";
    case spdlog::level::warn: return "4";
    default: return "3";
  }
}

// RFC 3339 in UTC, with milliseconds.
std::string utc(spdlog::log_clock::time_point at) {
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count();
  const auto seconds = static_cast<time_t>(ms / 1000);
  tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  const size_t bytes = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + bytes, sizeof(text) - bytes, ".%03dZ", static_cast<int>(ms % 1000));
  return text;
}

// One object a line. Bytes that are not UTF-8 become U+FFFD.
class JsonSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& record) override {
    const std::string_view message(record.payload.data(), record.payload.size());
    const LogSubject subject = subject_of(message);
    nlohmann::ordered_json line{
        {"time", utc(record.time)},
        {"level", level_name(record.level)},
        {"program", std::string_view(record.logger_name.data(), record.logger_name.size())},
        {"pid", getpid()},
        {"message", message}};
    if (!subject.job.empty()) line["job"] = subject.job;
    if (!subject.rank.empty()) line["rank"] = std::atoll(std::string(subject.rank).c_str());
    if (!subject.code.empty()) line["code"] = "GB-" + std::string(subject.code);
    const std::string text =
        line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
  void flush_() override { std::fflush(stderr); }
};

class JournalSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& record) override {
    const std::string_view message(record.payload.data(), record.payload.size());
    const LogSubject subject = subject_of(message);
    std::vector<std::string> fields;
    const auto add = [&](const char* field, std::string_view value) {
      if (!value.empty()) fields.push_back(field + std::string(value));
    };
    add("MESSAGE=", message);
    add("PRIORITY=", priority(record.level));
    add("SYSLOG_IDENTIFIER=", {record.logger_name.data(), record.logger_name.size()});
    add("GRADBUS_JOB=", subject.job);
    add("GRADBUS_RANK=", subject.rank);
    if (!subject.code.empty()) add("GRADBUS_CODE=", "GB-" + std::string(subject.code));
    std::vector<iovec> parts;
    for (std::string& field : fields) parts.push_back({field.data(), field.size()});
    // The journal is gone or full: the line still goes to stderr.
    if (sd_journal_sendv(parts.data(), static_cast<int>(parts.size())) < 0)
      std::fprintf(stderr, "%.*s\n", static_cast<int>(message.size()), message.data());
  }
  void flush_() override {}
};

// systemd.exec(5): the device and inode of the stream that the journal reads.
bool stderr_is_journal() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat file {};
  if (stream == nullptr || fstat(STDERR_FILENO, &file) != 0) return false;
  return stream == std::to_string(file.st_dev) + ":" + std::to_string(file.st_ino);
}

}  // namespace

LogSubject subject_of(std::string_view message) {
  LogSubject subject;
  subject.code = code_in(message);
  if (const size_t at = message.find(kJobWord); at != std::string_view::npos) {
    const std::string_view rest = message.substr(at + kJobWord.size());
    if (const size_t end = rest.find('"'); end != std::string_view::npos)
      subject.job = rest.substr(0, end);
  }
  for (size_t at = message.find(kRankWord); at != std::string_view::npos;
       at = message.find(kRankWord, at + 1)) {
    const std::string_view rest = message.substr(at + kRankWord.size());
    size_t digits = 0;
    while (digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9') ++digits;
    if (digits == 0 || digits > 9) continue;
    subject.rank = rest.substr(0, digits);
    break;
  }
  return subject;
}

namespace {

Status start_sink(const std::string& program, const std::string& level, const std::string& format) {
  const bool journal = format == "journal" || (format == "auto" && stderr_is_journal());
  if (journal) return start_log(program, level, std::make_shared<JournalSink>());
  if (format == "json") return start_log(program, level, std::make_shared<JsonSink>());
  if (format == "text" || format == "auto") return start_log(program, level);
  return error("F100",
               "--log-format \"" + format.substr(0, 40) + "\" is not auto, text, json or journal");
}

}  // namespace

Status start_daemon_log(const std::string& program, const std::string& level,
                        const std::string& format) {
  GRADBUS_RETURN_IF_ERROR(start_sink(program, level, format));
  for (const std::string& line : take_unknown_variables()) spdlog::warn("{}", line);
  return {};
}

}  // namespace gradbus
