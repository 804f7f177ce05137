// Links that no job has accepted: how many wait, for how long, and who goes first.
#include "data_plane/pending_links.h"

#include <gmock/gmock.h>

#include <array>
#include <functional>
#include <vector>

#include "tests/unit/data_plane/engine_cluster.h"
#include "tests/unit/data_plane/manual_clock.h"

namespace gradbus {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class PendingLinksTest : public testing::Test {
 protected:
  // An intruder opens a link for a job of this number.
  void open(uint64_t job) {
    FrameHeader hello;
    hello.job = job;
    const LinkId link = intruder_->connect(here_->local_address(), hello).take();
    job_of_.resize(std::max<size_t>(job_of_.size(), link.index + 1));
    job_of_[link.index] = job;
    take(*here_, TransportEvent::Kind::kAccepted,
         [this](const TransportEvent& event) { pending_.add(event.link, event.hello); });
  }
  // The jobs of the links that were closed since.
  std::vector<uint64_t> closed() {
    std::vector<uint64_t> jobs;
    take(*intruder_, TransportEvent::Kind::kClosed,
         [&](const TransportEvent& event) { jobs.push_back(job_of_[event.link.index]); });
    return jobs;
  }
  static void take(Transport& transport, TransportEvent::Kind kind,
                   const std::function<void(const TransportEvent&)>& use) {
    std::array<TransportEvent, 64> events;
    for (size_t count = transport.poll(events); count > 0; count = transport.poll(events))
      for (size_t i = 0; i < count; ++i)
        if (events[i].kind == kind) use(events[i]);
  }

  test::ManualClock clock_;
  std::unique_ptr<Transport> here_ = test::loopback_by(clock_);
  std::unique_ptr<Transport> intruder_ = test::loopback_by(clock_);
  PendingLinks pending_{*here_};
  std::vector<uint64_t> job_of_;  // by the intruder's link
};

TEST_F(PendingLinksTest, TheOldestOfTooManyGoes) {
  for (uint64_t job = 1; job <= kPendingLinksMax; ++job) open(job);
  EXPECT_THAT(closed(), IsEmpty());
  open(kPendingLinksMax + 1);
  open(kPendingLinksMax + 2);
  EXPECT_THAT(closed(), ElementsAre(1, 2));
  EXPECT_TRUE(here_->connect(intruder_->local_address(), {}).ok()) << "room is left for jobs";
}

TEST_F(PendingLinksTest, TheyWaitForTheirDeadlineOrTheirJob) {
  open(1);
  clock_.advance(kPendingLinkDeadline / 2);
  open(2);
  open(3);
  const auto taken = pending_.take([](const FrameHeader& hello) { return hello.job == 2; });
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].hello.job, 2u);
  clock_.advance(kPendingLinkDeadline / 2);
  pending_.expire();
  EXPECT_THAT(closed(), ElementsAre(1));
  clock_.advance(kPendingLinkDeadline / 2);
  pending_.expire();
  EXPECT_THAT(closed(), ElementsAre(3));
  EXPECT_TRUE(pending_.empty());
}

}  // namespace
}  // namespace gradbus
