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

#include "common/daemon/log_queue.h"
#include "common/environment/unknown_variables.h"
#include "common/errors.h"
#include "common/log.h"

namespace gradbus {
namespace {

constexpr std::string_view kJobWord = "job \"";
constexpr std::string_view kRankWord = "rank ";
constexpr std::string_view kMessageField = "MESSAGE=";
constexpr size_t kRecordBytes = 64 * 1024;               // longer ones are written in parts
constexpr std::chrono::milliseconds kLastRecords{1000};  // are waited for at the end

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

void tell_of_lost(uint64_t lost) {
  spdlog::warn("{} records of this log were lost: nobody read them in time", lost);
}

// Its thread may outlive main(), so it is never destroyed.
LogQueue& start_queue(LogQueue::Target target) {
  static LogQueue* queue = nullptr;
  queue = new LogQueue(std::move(target));
  std::atexit([] { queue->finish(kLastRecords); });
  return *queue;
}

// What is written to it goes to stderr, a record at each flush.
FILE* queued_stderr() {
  cookie_io_functions_t functions{};
  functions.write = [](void* queue, const char* text, size_t bytes) {
    static_cast<LogQueue*>(queue)->put({text, bytes});
    return static_cast<ssize_t>(bytes);
  };
  FILE* const file = fopencookie(&start_queue(stderr_target(tell_of_lost)), "w", functions);
  if (file == nullptr) return stderr;  // no memory
  setvbuf(file, nullptr, _IOFBF, kRecordBytes);
  return file;
}

// One object a line. Bytes that are not UTF-8 become U+FFFD.
class JsonSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit JsonSink(FILE* file) : file_(file) {}

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
    std::fwrite(text.data(), 1, text.size(), file_);
    flush_();
  }
  void flush_() override { std::fflush(file_); }

 private:
  FILE* const file_;
};

// Sends a record of JournalSink.
void send_to_journal(std::string_view record) {
  std::vector<iovec> parts;
  std::string_view message;
  for (size_t end = 0; !record.empty(); record.remove_prefix(end + 1)) {
    end = record.find('\0');
    parts.push_back({const_cast<char*>(record.data()), end});
    if (message.empty()) message = record.substr(kMessageField.size(), end - kMessageField.size());
  }
  // The journal is gone or full: the line still goes to stderr.
  if (sd_journal_sendv(parts.data(), static_cast<int>(parts.size())) < 0)
    std::fprintf(stderr, "%.*s\n", static_cast<int>(message.size()), message.data());
}

// Records are fields; each ends with a NUL, and the message is the first.
class JournalSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& record) override {
    const std::string_view message(record.payload.data(), record.payload.size());
    const LogSubject subject = subject_of(message);
    std::string fields;
    const auto add = [&](std::string_view field, std::string_view value) {
      if (value.empty()) return;
      fields += field;
      for (const char c : value) fields += c == '\0' ? '?' : c;
      fields += '\0';
    };
    add(kMessageField, message);
    add("PRIORITY=", priority(record.level));
    add("SYSLOG_IDENTIFIER=", {record.logger_name.data(), record.logger_name.size()});
    add("GRADBUS_JOB=", subject.job);
    add("GRADBUS_RANK=", subject.rank);
    if (!subject.code.empty()) add("GRADBUS_CODE=", "GB-" + std::string(subject.code));
    queue_.put(fields);
  }
  void flush_() override {}

 private:
  static size_t write_nothing(std::string_view) { return 0; }  // the journal's socket may wait

  LogQueue& queue_ = start_queue({write_nothing, send_to_journal, tell_of_lost});
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
  if (format == "json")
    return start_log(program, level, std::make_shared<JsonSink>(queued_stderr()));
  if (format == "text" || format == "auto")
    return start_log(program, level, text_sink(queued_stderr()));
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
