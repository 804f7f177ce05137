// When the log says that a rank waits: less and less often, for each wait by itself.
#include "worker_agent/job/stall_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace gradbus {
namespace {

using testing::ElementsAre;

// A notice every second, as ranks send them, from 1 s to `seconds` of waiting; which are logged.
std::vector<int> logged(StallLog& log, const std::string& tensor, int seconds, Nanos began = 0) {
  std::vector<int> lines;
  for (int waited = 1; waited <= seconds; ++waited)
    if (log.due(7, tensor, 3, began + waited * kSecond)) lines.push_back(waited);
  return lines;
}

TEST(StallLog, GrowsToAMinute) {
  StallLog log;
  EXPECT_THAT(logged(log, "x", 250), ElementsAre(1, 2, 5, 10, 30, 60, 120, 180, 240));
}

TEST(StallLog, BeginsAnewForAnotherWait) {
  StallLog log;
  EXPECT_THAT(logged(log, "x", 12), ElementsAre(1, 2, 5, 10));
  EXPECT_THAT(logged(log, "y", 12), ElementsAre(1, 2, 5, 10));
  EXPECT_THAT(logged(log, "x", 6, 100 * kSecond), ElementsAre(1, 2, 5));
}

TEST(StallLog, TakesNoticesThatComeEarly) {
  StallLog log;
  EXPECT_TRUE(log.due(7, "x", 3, 10 * kSecond));
  EXPECT_TRUE(log.due(7, "x", 3, 10 * kSecond + 900 * kMillisecond));
  EXPECT_FALSE(log.due(7, "x", 3, 11 * kSecond + 900 * kMillisecond));
}

}  // namespace
}  // namespace gradbus
