// The channel between a rank and its agent: counters, a full ring, and the doorbell.
#include "client_lib/src/rank_channel.h"

#include <gmock/gmock.h>
#include <sys/eventfd.h>

#include <cmath>

namespace gradbus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RankChannelTest : public testing::Test {
 protected:
  void SetUp() override {
    segment_ = Segment::create("channel", kChannelBytes).take();
    header().magic = kChannelMagic;
    header().version = kShmLayoutVersion;
    header().ring_records = kRingRecords;
    rings_ = RingConsumer<Submission>(RingMemory::at(segment_->at(kSubmissionRingOffset)));
    doorbell_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    ASSERT_TRUE(channel_.open(segment_, Fd(doorbell_)).ok());
  }
  ChannelHeader& header() { return *reinterpret_cast<ChannelHeader*>(segment_->at(0)); }
  // The rounds of the records that the agent finds, at most so many.
  std::vector<uint64_t> taken(size_t count) {
    std::vector<uint64_t> rounds;
    Submission record;
    while (rounds.size() < count && rings_.pop(record) == Pop::kRecord)
      rounds.push_back(record.round);
    return rounds;
  }
  Status submit(uint64_t round, bool needed) {
    Submission record{};
    record.round = round;
    return channel_.submit(record, needed);
  }
  bool rung() {
    eventfd_t count = 0;
    return eventfd_read(doorbell_, &count) == 0;
  }

  std::shared_ptr<Segment> segment_;
  RingConsumer<Submission> rings_;
  int doorbell_ = -1;
  RankChannel channel_;
};

TEST_F(RankChannelTest, RefusesAnotherLayout) {
  RankChannel channel;
  header().version = kShmLayoutVersion + 1;
  EXPECT_THAT(channel.open(segment_, Fd()).message(), HasSubstr("GB-V801"));
  header().magic = 0;
  EXPECT_THAT(channel.open(segment_, Fd()).message(), HasSubstr("GB-S212"));
  EXPECT_FALSE(channel.is_open());
}

TEST_F(RankChannelTest, WakesASleepingAgentOnce) {
  ASSERT_TRUE(submit(1, true).ok());
  EXPECT_FALSE(rung());  // it is awake
  header().agent_sleeping.store(1);
  ASSERT_TRUE(submit(2, true).ok());
  EXPECT_TRUE(rung());
  ASSERT_TRUE(submit(3, true).ok());
  EXPECT_FALSE(rung());
  EXPECT_THAT(taken(9), ElementsAre(1, 2, 3));
}

// Expect: needed records come in order after the ring, and the others are lost.
TEST_F(RankChannelTest, KeepsWhatDoesNotFit) {
  for (uint64_t round = 1; round <= kRingRecords; ++round) ASSERT_TRUE(submit(round, true).ok());
  ASSERT_TRUE(submit(1001, false).ok());
  ASSERT_TRUE(submit(1002, true).ok());
  channel_.flush();  // still full
  EXPECT_THAT(taken(1), ElementsAre(1));
  ASSERT_TRUE(submit(1003, true).ok());  // behind the one that waits
  channel_.flush();
  EXPECT_THAT(taken(kRingRecords - 1), testing::SizeIs(kRingRecords - 1));
  channel_.flush();
  EXPECT_THAT(taken(9), ElementsAre(1002, 1003));
}

TEST_F(RankChannelTest, Counts) {
  channel_.count_operation(100);
  channel_.count_operation(20);
  channel_.count_step(7);
  channel_.count_step(5);
  channel_.count_loss(0.5);
  channel_.count_loss(std::nan(""));
  channel_.count_wait(1000, 1250);
  EXPECT_EQ(header().operations.load(), 2u);
  EXPECT_EQ(header().bytes.load(), 120u);
  EXPECT_EQ(header().step.load(), 7u);
  EXPECT_EQ(header().losses.load(), 1u);
  EXPECT_EQ(header().loss_sum.load(), 0.5);
  EXPECT_EQ(header().losses_not_finite.load(), 1u);
  EXPECT_EQ(channel_.waited_ns(), 250u);
  EXPECT_EQ(header().last_call_ns.load(), 1250u);
}

TEST(RankChannelAlone, CountsNothing) {
  RankChannel channel;
  channel.count_operation(1);
  channel.count_step(1);
  channel.count_loss(1);
  channel.count_wait(0, 1);
  channel.flush();
  EXPECT_EQ(channel.waited_ns(), 0u);
  EXPECT_FALSE(channel.trace().on());
}

}  // namespace
}  // namespace gradbus
