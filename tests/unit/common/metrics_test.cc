// Pages of metrics, histograms, jobs that come and go, and the watch over threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <sstream>

#include "common/daemon/daemon_log.h"
#include "common/daemon/progress_watch.h"
#include "common/log.h"
#include "common/metrics/job_pages.h"
#include "common/metrics/metric_page.h"
#include "common/metrics/slow_clients.h"

namespace gradbus {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Histogram, CountsAtAndAroundEachBound) {
  DurationHistogram histogram;
  for (const uint64_t bound : kDurationBounds) {
    histogram.observe(bound);      // at the bound: inside
    histogram.observe(bound + 1);  // above it: in the next bucket
  }
  const HistogramSample sample = histogram.sample();
  EXPECT_EQ(sample.counts[0], 1u);
  for (size_t i = 1; i < kDurationBounds.size(); ++i) EXPECT_EQ(sample.counts[i], 2u) << i;
  EXPECT_EQ(sample.counts[kDurationBounds.size()], 1u);
  uint64_t sum = 0;
  for (const uint64_t bound : kDurationBounds) sum += 2 * bound + 1;
  EXPECT_EQ(sample.sum, sum);
}

TEST(MetricPage, HasHelpTypeAndCumulativeBucketsInBaseUnits) {
  DurationHistogram histogram;
  histogram.observe(20'000);         // 20 us
  histogram.observe(2'000'000'000);  // 2 s
  MetricPage page;
  page.add(Metric::kOperationDuration, {"digits", "all_reduce"}, histogram.sample());
  const std::string text = page.text();
  EXPECT_THAT(text, HasSubstr("# TYPE gradbus_operation_duration_seconds histogram\n"));
  const std::string labels = "{job_name=\"digits\",op=\"all_reduce\"";
  const std::string bucket = "gradbus_operation_duration_seconds_bucket" + labels;
  EXPECT_THAT(text, HasSubstr(bucket + ",le=\"1e-05\"} 0\n"));
  EXPECT_THAT(text, HasSubstr(bucket + ",le=\"3\"} 2\n"));
  EXPECT_THAT(text, HasSubstr(bucket + ",le=\"+Inf\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("gradbus_operation_duration_seconds_sum" + labels + "} 2.00002\n"));
}

TEST(MetricPage, AddsUpEqualLabelsAndEscapesOthers) {
  MetricPage page;
  page.add(Metric::kWaitingFrames, {"other"}, 3);
  page.add(Metric::kWaitingFrames, {"other"}, 4);
  page.add(Metric::kWaitingFrames, {"a\"b\\c\nd\xff"}, 1);
  MetricPage more;
  more.add(Metric::kWaitingFrames, {"other"}, 5);
  page.merge(more);
  EXPECT_THAT(page.text(), HasSubstr("gradbus_waiting_frames{job_name=\"other\"} 12\n"));
  EXPECT_THAT(page.text(), HasSubstr("{job_name=\"a\\\"b\\\\c?d?\"} 1\n"));
}

TEST(JobPages, LimitsLabels) {
  JobPages pages;
  for (uint64_t job = 0; job < kJobsLabelledMax; ++job)
    EXPECT_EQ(pages.label(job, "job" + std::to_string(job)), "job" + std::to_string(job));
  EXPECT_EQ(pages.label(1000, "one more"), kOtherLabel);
  EXPECT_EQ(pages.label(0, "job0"), "job0") << "a label does not change";
}

TEST(JobPages, KeepsCountersOfEndedJobsForAWhile) {
  JobPages pages;
  std::map<uint64_t, MetricPage> live;
  live[7].add(Metric::kOperations, {pages.label(7, "digits"), "all_reduce"}, 5);
  live[7].add(Metric::kWaitingFrames, {"digits"}, 2);
  pages.renew(std::move(live), kSecond);
  pages.renew({}, 2 * kSecond);
  MetricPage page;
  pages.add_to(page);
  EXPECT_THAT(page.text(), HasSubstr("gradbus_operations_total{"));
  EXPECT_THAT(page.text(), Not(HasSubstr("gradbus_waiting_frames"))) << "nothing waits any more";
  pages.renew({}, 2 * kSecond + kEndedJobShown);
  MetricPage later;
  pages.add_to(later);
  EXPECT_EQ(later.text(), "");
}

TEST(ProgressWatch, NamesTheThreadThatStandsStill) {
  Tally engine, conductor;
  ProgressWatch watch;
  watch.add("engine", engine);
  watch.add("conductor", conductor);
  watch.look(1 * kSecond);
  conductor.add(1);
  watch.look(6 * kSecond);
  EXPECT_TRUE(watch.check(1 * kSecond + kStuckAfter - 1).ok());
  const Status stuck = watch.check(1 * kSecond + kStuckAfter);
  EXPECT_THAT(stuck.message(), HasSubstr("GB-X002 STUCK: the engine thread"));
  engine.add(1);
  EXPECT_TRUE(watch.check(1 * kSecond + kStuckAfter).ok()) << "it moves again";
}

class StoppedClock final : public Clock {
 public:
  Nanos now() const override { return now_; }
  Nanos now_ = kSecond;
};

TEST(SlowClients, AreReportedAtOnceAndThenOnceAMinute) {
  std::ostringstream out;
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(out);
  ASSERT_TRUE(start_log("test", "info", sink).ok());
  const auto lines = [&] {
    const std::string text = out.str();
    return std::count(text.begin(), text.end(), '\n');
  };
  StoppedClock clock;
  SlowClients slow(clock);
  slow.add("--metrics-listen h:1: a client");
  EXPECT_EQ(lines(), 1);
  EXPECT_THAT(out.str(),
              HasSubstr("GB-D608 SLOW_CLIENTS: --metrics-listen h:1: a client | next: "));
  for (int i = 0; i < 10'000; ++i) slow.add("x");
  clock.now_ += kSlowClientsEvery - 1;
  slow.add("x");
  EXPECT_EQ(lines(), 1);
  clock.now_ += 1;
  slow.add("y");
  EXPECT_EQ(lines(), 2);
  EXPECT_THAT(out.str(), HasSubstr("y (10002 clients since the last such line) | next: "));
}

TEST(LogSubject, FindsJobRankAndCode) {
  const LogSubject lost =
      subject_of("job \"digits\" ends: GB-P101 PEER_LOST: rank 12 of job \"digits\" died");
  EXPECT_EQ(lost.job, "digits");
  EXPECT_EQ(lost.rank, "12");
  EXPECT_EQ(lost.code, "P101");
  const LogSubject none = subject_of("ranks 1, 2 of job digits; GB-ZZZZ; job \"open");
  EXPECT_EQ(none.job, "");
  EXPECT_EQ(none.rank, "");
  EXPECT_EQ(none.code, "");
  EXPECT_EQ(subject_of("the rank that is late is rank 3").rank, "3");
}

}  // namespace
}  // namespace gradbus
