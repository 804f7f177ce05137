#include "common/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/daemon/rare_lines.h"

namespace gradbus {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::string logged(const std::string& level, const std::function<void()>& act) {
  testing::internal::CaptureStderr();
  const Status status = start_log("gradbus-agent", level, text_sink(stderr));
  act();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status.ok()) << status.message();
  return text;
}

TEST(RareLines, AreSoManyASecondAndSayHowManyWereLeftOut) {
  RareLines lines(2);
  const Nanos start = 0;
  EXPECT_TRUE(lines.may_write(start));
  EXPECT_EQ(lines.more(), "");
  EXPECT_TRUE(lines.may_write(start + 1));
  EXPECT_FALSE(lines.may_write(start + 2));
  EXPECT_FALSE(lines.may_write(start + kSecond - 1));
  EXPECT_TRUE(lines.may_write(start + kSecond));
  EXPECT_EQ(lines.more(), " (and 2 others since the last such line)");
  EXPECT_EQ(lines.more(), "");
}

TEST(LogTest, RecordHasTimeLevelProgramAndMessage) {
  EXPECT_THAT(logged("info", [] { spdlog::info("listening on {}", 7); }),
              MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3} I "
                           "gradbus-agent: listening on 7\n"));
}

TEST(LogTest, LevelFilters) {
  const auto all = [] {
    spdlog::trace("t-record");
    spdlog::debug("d-record");
    spdlog::info("i-record");
    spdlog::warn("w-record");
    spdlog::error("e-record");
  };
  const std::string records[] = {"t-record", "d-record", "i-record", "w-record", "e-record"};
  const std::string levels[] = {"trace", "debug", "info", "warn", "error"};
  for (size_t level = 0; level < 5; ++level) {
    const std::string text = logged(levels[level], all);
    for (size_t record = 0; record < 5; ++record) {
      const bool shown = text.find(records[record]) != std::string::npos;
      EXPECT_EQ(shown, record >= level) << levels[level] << " " << records[record];
    }
  }
}

TEST(LogTest, AMessageCannotBeginASecondRecordOrReachTheTerminal) {
  const std::string text =
      logged("info", [] { spdlog::info("job a\nI root: \x1b[2Jall\rfine\x7f"); });
  EXPECT_THAT(text, HasSubstr("gradbus-agent: job a?I root: ?[2Jall?fine?\n"));
  EXPECT_EQ(text.find('\n'), text.size() - 1);
}

TEST(LogTest, TextOtherThanAsciiStays) {
  EXPECT_THAT(logged("info",
                     [] {
                       spdlog::info(
                           "Gr\xc3\xb6\xc3\x9f"
                           "e");
                     }),
              HasSubstr("Gr\xc3\xb6\xc3\x9f"
                        "e\n"));
}

TEST(LogTest, NoColourWhenStderrIsNoTerminal) {
  EXPECT_THAT(logged("info", [] { spdlog::error("plain"); }), Not(HasSubstr("\x1b")));
}

TEST(LogTest, UnknownLevelIsRefused) {
  for (const char* level : {"", "loud", "off", "INFO"}) {
    const Status status = start_log("gradbus-agent", level, text_sink(stderr));
    EXPECT_EQ(status.code(), Code::kInvalid);
    EXPECT_THAT(status.message(), HasSubstr("is not one of trace, debug, info, warn, error"));
  }
}

}  // namespace
}  // namespace gradbus
