// --loss-percent: a job whose losses jump goes back to synchronous exchange by itself.
#include <gmock/gmock.h>

#include <limits>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using testing::HasSubstr;

class LossRuleOfAJob : public testing::Test {
 protected:
  void open(double share_max) {
    CoordinatorOptions options;
    options.loss.share_max = share_max;
    cluster_ = std::make_unique<Cluster>(options);
    job_ = cluster_->start_job("train", 2);
    cluster_->clear();
  }
  void ask_for(const std::string& mode) {
    v1::ChangeModeRequest request;
    request.set_job("train");
    request.set_group("*");
    request.set_mode(mode);
    request.set_reason("test");
    request.mutable_caller();
    const auto reply = cluster_->coordinator.change_mode(request, "here", cluster_->now);
    ASSERT_EQ(reply.error().message(), "");
    cluster_->collect();
  }
  // Seconds pass; in each, both ranks report ten losses of this size.
  void pass(uint32_t seconds, double loss, uint64_t not_finite = 0) {
    for (uint32_t second = 0; second < seconds; ++second) {
      cluster_->advance(900 * kMillisecond);
      losses_ += 10;
      sum_ += 10 * loss;
      not_finite_ += not_finite;
      for (uint32_t rank = 0; rank < 2; ++rank) {
        v1::AgentMessage message;
        auto* counters = message.mutable_heartbeat()->add_jobs();
        counters->set_job_id(job_);
        auto* of_rank = counters->add_ranks();
        of_rank->set_rank(rank);
        of_rank->set_losses(losses_);
        of_rank->set_loss_sum(sum_);
        of_rank->set_losses_not_finite(not_finite_);
        cluster_->send(rank + 1, message);
      }
      cluster_->advance(100 * kMillisecond);
    }
  }
  v1::JobStatus status() { return cluster_->status("train").jobs(0); }

  std::unique_ptr<Cluster> cluster_;
  uint64_t job_ = 0;
  uint64_t losses_ = 0, not_finite_ = 0;
  double sum_ = 0;
};

// Expect: 1 for many seconds, then 3: the mean of three seconds is 3, above twice 1, after the
// third.
TEST_F(LossRuleOfAJob, AJumpTakesItBackOnce) {
  open(2.0);
  ask_for("delayed:k=2");
  pass(10, 1);
  pass(1, 3);
  EXPECT_EQ(status().mode_changes_size(), 1) << "(1 + 1 + 3) / 3 is below 2";
  pass(2, 3);
  ASSERT_EQ(status().mode_changes_size(), 2);
  EXPECT_EQ(status().mode_changes(1).mode(), "sync");
  EXPECT_EQ(status().mode_changes(1).group(), "*");
  EXPECT_THAT(status().mode_changes(1).reason(), HasSubstr("by rule: the loss rose from 1 to "));
  ASSERT_FALSE(cluster_->inbox[2].empty());
  EXPECT_EQ(cluster_->inbox[2].back().mode_changed().mode(), "sync");
  pass(20, 30);
  EXPECT_EQ(status().mode_changes_size(), 2);
}

TEST_F(LossRuleOfAJob, HoldsAgainAfterAnotherChange) {
  open(2.0);
  ask_for("delayed:k=2");
  pass(10, 1);
  pass(3, 3);
  ask_for("delayed:k=1");
  pass(10, 3);
  EXPECT_EQ(status().mode_changes_size(), 3) << "what was before the change counts no more";
  pass(1, 3, 1);
  ASSERT_EQ(status().mode_changes_size(), 4);
  EXPECT_THAT(status().mode_changes(3).reason(), HasSubstr("a loss is not finite"));
}

// Expect: noise and a falling loss change nothing, nor anything in a synchronous job or without the
// option.
TEST_F(LossRuleOfAJob, DoesNotHoldOtherwise) {
  open(2.0);
  ask_for("delayed:k=2");
  for (int second = 0; second < 40; ++second) pass(1, second % 2 == 0 ? 5 : 8);
  for (int second = 0; second < 40; ++second) pass(1, 8.0 / (1 + second));
  EXPECT_EQ(status().mode_changes_size(), 1);
  open(2.0);
  pass(10, 1);
  pass(10, 10, 1);
  EXPECT_EQ(status().mode_changes_size(), 0) << "it is synchronous";
  open(0);
  ask_for("delayed:k=2");
  pass(10, 1);
  pass(10, 10, 1);
  EXPECT_EQ(status().mode_changes_size(), 1);
}

// Expect: what an agent may send instead of losses spoils nothing.
TEST_F(LossRuleOfAJob, NonsenseIsNoLoss) {
  open(2.0);
  ask_for("delayed:k=2");
  pass(10, std::numeric_limits<double>::quiet_NaN());
  pass(10, -1);
  EXPECT_EQ(status().mode_changes_size(), 1);
}

}  // namespace
}  // namespace gradbus
