// --late-mode: a job whose ranks lose too much time to a late one changes its mode by itself.
#include <gmock/gmock.h>

#include <functional>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using testing::AllOf;
using testing::HasSubstr;

constexpr uint32_t kWindows = 10;

CoordinatorOptions with_rule(const std::string& mode) {
  CoordinatorOptions options;
  options.late = {mode, 0.2, kWindows};
  return options;
}

class LateMode : public testing::Test {
 protected:
  // Seconds pass; in each, rank r waits `share(r, second)` of it.
  void pass(uint32_t seconds, const std::function<double(uint32_t, uint32_t)>& share) {
    for (uint32_t second = 0; second < seconds; ++second) {
      cluster_->advance(900 * kMillisecond);
      for (uint32_t rank = 0; rank < 2; ++rank) {
        waited_[rank] += static_cast<uint64_t>(share(rank, second) * kSecond);
        v1::AgentMessage message;
        auto* counters = message.mutable_heartbeat()->add_jobs();
        counters->set_job_id(job_);
        counters->add_ranks()->set_rank(rank);
        counters->mutable_ranks(0)->set_wait_ns(waited_[rank]);
        cluster_->send(rank + 1, message);
      }
      cluster_->advance(100 * kMillisecond);
    }
  }
  void open(const std::string& mode) {
    cluster_ = std::make_unique<Cluster>(with_rule(mode));
    job_ = cluster_->start_job("train", 2);
    cluster_->clear();
  }
  v1::JobStatus status() { return cluster_->status("train").jobs(0); }

  std::unique_ptr<Cluster> cluster_;
  uint64_t job_ = 0;
  uint64_t waited_[2] = {};
};

// Expect: after the windows that are wanted, once; agents hear of it, and its reason names the
// rank.
TEST_F(LateMode, ComesOnceWhenARankIsLate) {
  open("delayed:k=2");
  const auto rank_1_is_late = [](uint32_t rank, uint32_t) { return rank == 1 ? 0.1 : 0.5; };
  pass(kWindows, rank_1_is_late);
  EXPECT_EQ(status().mode_changes_size(), 0) << "the first second only begins a window";
  pass(1, rank_1_is_late);
  ASSERT_EQ(status().mode_changes_size(), 1);
  EXPECT_EQ(status().mode_changes(0).mode(), "delayed:k=2");
  EXPECT_EQ(status().mode_changes(0).group(), "*");
  EXPECT_THAT(status().mode_changes(0).reason(),
              AllOf(HasSubstr("40 %"), HasSubstr("mostly rank 1"), HasSubstr("bound is 20 %")));
  ASSERT_FALSE(cluster_->inbox[2].empty());
  EXPECT_EQ(cluster_->inbox[2].back().mode_changed().mode(), "delayed:k=2");
  pass(3 * kWindows, rank_1_is_late);
  EXPECT_EQ(status().mode_changes_size(), 1);
}

// Expect: ranks that are late in turn wait alike in the long run, and lose as much.
TEST_F(LateMode, ComesWhenRanksAreLateInTurn) {
  open("delayed:k=1");
  pass(kWindows + 2, [](uint32_t rank, uint32_t second) { return second % 2 == rank ? 0.5 : 0.0; });
  EXPECT_EQ(status().mode_changes_size(), 1);
}

// Expect: what all wait for is the network; a stall or two in many seconds is no straggler; without
// an option nothing happens.
TEST_F(LateMode, DoesNotComeOtherwise) {
  open("delayed:k=1");
  pass(3 * kWindows, [](uint32_t, uint32_t) { return 0.9; });
  pass(3 * kWindows, [](uint32_t rank, uint32_t second) {
    return rank == 0 && second % kWindows == 0 ? 1.5 : 0.0;
  });
  EXPECT_EQ(status().mode_changes_size(), 0);
  open("");
  pass(3 * kWindows, [](uint32_t rank, uint32_t) { return rank == 1 ? 0.0 : 0.9; });
  EXPECT_EQ(status().mode_changes_size(), 0);
}

// Expect: modes that somebody has chosen stay.
TEST_F(LateMode, DoesNotComeWhereModesWereChosen) {
  v1::TensorSpec delayed = test::make_spec("gradients", 10);
  delayed.set_mode("delayed:k=3");
  for (const v1::TensorSpec& chosen : {delayed, test::make_spec("local.0", 10)}) {
    open("delayed:k=1");
    for (uint32_t rank = 0; rank < 2; ++rank)
      cluster_->register_tensors(rank + 1, job_, rank, {chosen});
    ASSERT_EQ(status().tensors_size(), 1);
    pass(2 * kWindows, [](uint32_t rank, uint32_t) { return rank == 1 ? 0.0 : 0.9; });
    EXPECT_EQ(status().mode_changes_size(), 0);
    EXPECT_THAT(cluster_->notes, testing::Contains(HasSubstr("so they stay")));
  }
}

}  // namespace
}  // namespace gradbus
