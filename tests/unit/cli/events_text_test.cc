// The lines of `gradbus events`: they fit the terminal, and nothing of a text is lost.
#include "cli/status/events_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <sstream>

namespace gradbus {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kNow = 1'700'000'000;  // 2023-11-14 22:13:20 UTC

v1::Event event_of(const std::string& text, uint64_t age_ms = 20'000) {
  v1::Event event;
  event.set_kind("job_failed");
  event.set_job("a-job-with-a-very-long-name");
  event.set_text(text);
  event.set_age_ms(age_ms);
  event.set_times(1);
  return event;
}

class EventsText : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "UTC", 1);
    tzset();
  }
};

TEST_F(EventsText, HasTheTimeOfTheEvent) {
  EXPECT_THAT(event_line(event_of("x"), {kNow, 0}), StartsWith("22:13:00  job_failed  "));
  EXPECT_THAT(event_line(event_of("x", 2 * 86'400'000ull), {kNow, 0}), StartsWith("11-12  "));
}

TEST_F(EventsText, FoldsAtTheWidthAndLosesNothing) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "word" + std::to_string(i) + " ";
  text += "end";
  for (const size_t columns : {60u, 80u, 200u}) {
    std::istringstream lines(event_line(event_of(text), {kNow, columns}));
    std::string all;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), columns) << line;
      all += line.substr(line.find_first_not_of(' ')) + " ";
    }
    EXPECT_THAT(all, EndsWith(text + " "));
  }
}

TEST_F(EventsText, AWordLongerThanTheTerminalIsBroken) {
  std::istringstream lines(event_line(event_of(std::string(500, 'x')), {kNow, 80}));
  size_t found = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80);
    found += static_cast<size_t>(std::count(line.begin(), line.end(), 'x'));
  }
  EXPECT_EQ(found, 500);
}

TEST_F(EventsText, WithoutATerminalAnEventIsOneLine) {
  const std::string line = event_line(event_of(std::string(300, 'y')), {kNow, 0});
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

TEST_F(EventsText, ARepeatedEventSaysHowOften) {
  v1::Event event = event_of("refused");
  event.set_times(7);
  EXPECT_THAT(event_line(event, {kNow, 0}), HasSubstr("(7 times) refused"));
}

}  // namespace
}  // namespace gradbus
