// ChangeMode: an administrator wants a running job to exchange a group in another mode.
#include <gmock/gmock.h>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

class ModeChanges : public testing::Test {
 protected:
  std::string ask(const std::string& group, const std::string& mode,
                  const std::string& name = "train") {
    v1::ChangeModeRequest request;
    request.set_job(name);
    request.set_group(group);
    request.set_mode(mode);
    request.set_reason("asked by eve");
    request.mutable_caller();
    cluster.clear();
    const std::string refusal =
        cluster.coordinator.change_mode(request, "here", cluster.now).error().message();
    cluster.collect();
    return refusal;
  }

  Cluster cluster;
};

// Expect: each agent of the job hears of each change, in the order of asking, in canonical form.
TEST_F(ModeChanges, ReachTheJobsAgentsInOrder) {
  const uint64_t job = cluster.start_job("train", 2);
  cluster.hello(3, "node-of-another-job");
  EXPECT_THAT(ask("embedding.*", "delayed:k=1"), IsEmpty());
  for (const uint64_t agent : {1, 2}) {
    ASSERT_THAT(cluster.inbox[agent], SizeIs(1));
    const v1::ModeChanged& change = cluster.inbox[agent][0].mode_changed();
    EXPECT_EQ(change.job_id(), job);
    EXPECT_EQ(change.group(), "embedding.*");
    EXPECT_EQ(change.mode(), "delayed");
  }
  EXPECT_THAT(cluster.inbox[3], IsEmpty());
  cluster.advance(kSecond);
  EXPECT_THAT(ask("*", "sync"), IsEmpty());
  const v1::JobStatus shown = cluster.status("train").jobs(0);
  ASSERT_EQ(shown.mode_changes_size(), 2);
  EXPECT_EQ(shown.mode_changes(0).age_ms(), 1000u);
  EXPECT_EQ(shown.mode_changes(1).group(), "*");
  EXPECT_EQ(shown.mode_changes(1).reason(), "asked by eve");
}

TEST_F(ModeChanges, WhatCannotBeIsRefusedAndNobodyHears) {
  cluster.start_job("train", 2);
  EXPECT_THAT(ask("*", "delaid"), AllOf(StartsWith("GB-O911"), HasSubstr("did you mean")));
  EXPECT_THAT(ask("", "sync"), StartsWith("GB-O911"));
  EXPECT_THAT(ask(std::string(300, 'x'), "sync"), StartsWith("GB-O911"));
  EXPECT_THAT(ask("a\nb", "sync"), StartsWith("GB-O911"));
  EXPECT_THAT(ask("*", "ps:async"), StartsWith("GB-O912"));
  EXPECT_THAT(ask("*", "ps:async,placement=2"),
              AllOf(StartsWith("GB-O911"), HasSubstr("leave it out")));
  EXPECT_THAT(ask("*", "sync", "other"), StartsWith("GB-J406"));
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
  EXPECT_EQ(cluster.status("train").jobs(0).mode_changes_size(), 0);
}

TEST_F(ModeChanges, AJobThatHasNotBegunHasNoModes) {
  cluster.hello(1, "node-a");
  cluster.join(1, "train", 0, 2);
  EXPECT_THAT(ask("*", "sync"), AllOf(StartsWith("GB-J406"), HasSubstr("not running")));
}

// Expect: an administrator's script cannot make the coordinator grow.
TEST_F(ModeChanges, AreLimitedAndTheLastOnesShown) {
  cluster.start_job("train", 2);
  for (size_t i = 0; i < kModeChangesMax; ++i)
    ASSERT_THAT(ask("layer" + std::to_string(i), "delayed"), IsEmpty());
  EXPECT_THAT(ask("*", "sync"), StartsWith("GB-O904"));
  const v1::JobStatus shown = cluster.status("train").jobs(0);
  ASSERT_EQ(size_t(shown.mode_changes_size()), kModeChangesShown);
  EXPECT_EQ(shown.mode_changes(0).group(),
            "layer" + std::to_string(kModeChangesMax - kModeChangesShown));
}

}  // namespace
}  // namespace gradbus
