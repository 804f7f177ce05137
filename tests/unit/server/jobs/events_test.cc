// The log of events: its bound, its numbers, and repeated events.
#include "server/coordinator/jobs/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradbus {
namespace {

using testing::ElementsAre;

TEST(EventLog, GivesNumbersFromOneAndAgesInMilliseconds) {
  EventLog log;
  log.add(EventKind::kAttached, "node-a", "", "agent node-a attached", 10 * kSecond);
  log.add(EventKind::kJobStarted, "", "digits", "2 ranks", 12 * kSecond);
  const v1::EventsReply reply = log.after(0, 15 * kSecond);
  ASSERT_EQ(reply.events_size(), 2);
  EXPECT_EQ(reply.events(0).number(), 1);
  EXPECT_EQ(reply.events(0).kind(), "attached");
  EXPECT_EQ(reply.events(0).node(), "node-a");
  EXPECT_EQ(reply.events(0).age_ms(), 5000);
  EXPECT_EQ(reply.events(1).job(), "digits");
  EXPECT_EQ(reply.events(1).age_ms(), 3000);
  EXPECT_EQ(reply.dropped(), 0);
}

TEST(EventLog, GivesOnlyWhatTheCallerDoesNotHave) {
  EventLog log;
  for (int i = 1; i <= 5; ++i) log.add(EventKind::kMode, "", "job", std::to_string(i), i);
  const auto texts = [](const v1::EventsReply& reply) {
    std::vector<std::string> found;
    for (const v1::Event& event : reply.events()) found.push_back(event.text());
    return found;
  };
  EXPECT_THAT(texts(log.after(3, 9)), ElementsAre("4", "5"));
  EXPECT_THAT(texts(log.after(5, 9)), ElementsAre());
  EXPECT_THAT(texts(log.after(~uint64_t{0}, 9)), ElementsAre());
  EXPECT_THAT(texts(log.after(0, 9, 2)), ElementsAre("4", "5"));
  EXPECT_THAT(texts(log.after(0, 9, 0)), ElementsAre());
}

TEST(EventLog, KeepsTheNewestAndCountsTheDropped) {
  EventLog log;
  const uint64_t added = kEventsKept + 7;
  for (uint64_t i = 1; i <= added; ++i) log.add(EventKind::kMode, "", "job", std::to_string(i), 0);
  const v1::EventsReply reply = log.after(2, 0);
  EXPECT_EQ(static_cast<size_t>(reply.events_size()), kEventsKept);
  EXPECT_EQ(reply.events(0).number(), 8);
  EXPECT_EQ(reply.dropped(), 5);  // the events 3 to 7
}

TEST(EventLog, ARepeatedEventIsCountedAndDropsNothing) {
  EventLog log;
  log.add(EventKind::kAttached, "node-a", "", "attached", 0);
  for (uint64_t i = 0; i < 3 * kEventsKept; ++i)
    log.add(EventKind::kRefused, "node-a", "", "the name belongs to a live agent", kSecond);
  const v1::EventsReply reply = log.after(0, 3 * kSecond);
  ASSERT_EQ(reply.events_size(), 2);
  EXPECT_EQ(reply.events(1).times(), 3 * kEventsKept);
  EXPECT_EQ(reply.events(1).age_ms(), 2000);
}

TEST(EventLog, ATextIsOneLineOfBoundedLength) {
  EventLog log;
  log.add(EventKind::kLost, "n", "", "a\nb" + std::string(10'000, 'x'), 0);
  const std::string text = log.after(0, 0).events(0).text();
  EXPECT_LE(text.size(), kEventTextBytesMax + std::string("...").size());
  EXPECT_EQ(text.substr(0, 3), "a?b");
}

}  // namespace
}  // namespace gradbus
