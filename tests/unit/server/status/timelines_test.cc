// The timeline of a traced job: its bounds, the clocks of nodes, and which steps are shown.
#include "server/status/timelines.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "proto/trace.h"

namespace gradbus {
namespace {

using nlohmann::json;

void add_span(v1::TraceTrack& track, TraceKind kind, uint64_t begin, uint64_t end,
              const std::string& name = "") {
  v1::TraceSpan& span = *track.add_spans();
  span.set_kind(static_cast<uint32_t>(kind));
  span.set_begin_ns(begin);
  span.set_end_ns(end);
  span.set_name(name);
}

v1::TraceRecords records_of(uint64_t job, int32_t rank) {
  v1::TraceRecords records;
  records.set_job_id(job);
  records.add_tracks()->set_rank(rank);
  return records;
}

// `steps` steps of 10 us, each with a wait in its last microsecond.
v1::TraceRecords steps_of(uint64_t job, int32_t rank, uint64_t steps, uint64_t from = 0) {
  v1::TraceRecords records = records_of(job, rank);
  for (uint64_t i = 0; i < steps; ++i) {
    add_span(*records.mutable_tracks(0), TraceKind::kWait, from + i * 10'000 + 9'000,
             from + i * 10'000 + 10'000, "secret");
    add_span(*records.mutable_tracks(0), TraceKind::kPhase, from + i * 10'000,
             from + i * 10'000 + 10'000, "step");
  }
  return records;
}

json shown(Timelines& timelines) {
  return json::parse(timeline_json(*timelines.copies()[0].second));
}

TEST(Timelines, ShowsTheLastStepsOfTheFirstRank) {
  Timelines timelines;
  timelines.add(steps_of(5, 0, 10), 0, "node-a", 0, kSecond);
  timelines.add(steps_of(5, 1, 9, 10'000), 1, "node-b", 10'000,
                2 * kSecond);  // its clock is 10 us ahead
  const json timeline = shown(timelines);
  EXPECT_EQ(timeline["steps"], kTimelineSteps);
  EXPECT_EQ(timeline["length_us"], 30);
  ASSERT_EQ(timeline["tracks"].size(), 2);
  EXPECT_EQ(timeline["tracks"][0]["rank"], 0);
  EXPECT_EQ(timeline["tracks"][1]["node"], "node-b");
  const json wait = json::array({"wait", 9, 10});
  EXPECT_EQ(timeline["tracks"][0]["spans"][0], wait);
  EXPECT_EQ(timeline["tracks"][1]["spans"][0], wait) << "the same time on both nodes";
  EXPECT_EQ(timeline["tracks"][0]["spans"].size(), 3);
  EXPECT_EQ(timeline["tracks"][1]["spans"].size(), 2) << "its tenth step was not received";
  EXPECT_EQ(timelines.copies()[0].second->received, 2 * kSecond);
}

TEST(Timelines, HasNoNamesAndOfAgentsTheNetworkOnly) {
  Timelines timelines;
  v1::TraceRecords records = steps_of(5, 0, 3);
  v1::TraceTrack& agent = *records.add_tracks();
  agent.set_rank(-1);
  add_span(agent, TraceKind::kSend, 20'000, 25'000);
  add_span(agent, TraceKind::kEncode, 20'000, 25'000);
  add_span(*records.mutable_tracks(0), TraceKind::kPhase, 0, 30'000, "my secret layer");
  timelines.add(records, 0, "node-a", 0, kSecond);
  const json timeline = shown(timelines);
  EXPECT_EQ(timeline.dump().find("secret"), std::string::npos);
  EXPECT_TRUE(timeline["tracks"][1]["rank"].is_null());
  EXPECT_EQ(timeline["tracks"][1]["spans"], json::array({json::array({"send", 10, 15})}));
}

TEST(Timelines, WithoutStepsShowsTheLastTenth) {
  Timelines timelines;
  v1::TraceRecords records = records_of(5, 0);
  add_span(*records.mutable_tracks(0), TraceKind::kWait, 0, 40'000);
  add_span(*records.mutable_tracks(0), TraceKind::kFlight, 50'000, 100'000);
  timelines.add(records, 0, "node-a", 0, kSecond);
  const json timeline = shown(timelines);
  EXPECT_EQ(timeline["steps"], 0);
  EXPECT_EQ(timeline["length_us"], 10);
  EXPECT_EQ(timeline["tracks"][0]["spans"], json::array({json::array({"in flight", 0, 10})}));
}

TEST(Timelines, IsBoundedAndForgetsTheOldestJob) {
  Timelines timelines;
  for (uint64_t job = 1; job <= kTimelinesMax + 2; ++job)
    for (int32_t rank = 0; rank < 100; ++rank)
      timelines.add(steps_of(job, rank, 400), 0, "node", 0, static_cast<Nanos>(job) * kSecond);
  const Timelines::ById all = timelines.copies();
  ASSERT_EQ(all.size(), kTimelinesMax);
  EXPECT_EQ(all[0].first, 3);
  EXPECT_EQ(all[0].second->tracks.size(), kTimelineTracksMax);
  EXPECT_EQ(all[0].second->tracks.at(0).spans.size(), kTrackSpansMax);
}

TEST(Timelines, CopiesOnlyWhatHasChanged) {
  Timelines timelines;
  timelines.add(steps_of(5, 0, 3), 0, "node-a", 0, kSecond);
  timelines.add(steps_of(6, 0, 3), 0, "node-a", 0, kSecond);
  const Timelines::ById before = timelines.copies();
  timelines.add(steps_of(6, 0, 1, 30'000), 0, "node-a", 0, 2 * kSecond);
  const Timelines::ById after = timelines.copies();
  EXPECT_EQ(before[0].second, after[0].second);
  EXPECT_NE(before[1].second->version, after[1].second->version);
}

TEST(Timelines, IsEmptyForSpansThatEndBeforeTheyBegin) {
  Timelines timelines;
  v1::TraceRecords records = records_of(5, 0);
  add_span(*records.mutable_tracks(0), TraceKind::kWait, 10, 5);
  timelines.add(records, 0, "node-a", 0, kSecond);
  EXPECT_EQ(shown(timelines)["length_us"], 0);
}

}  // namespace
}  // namespace gradbus
