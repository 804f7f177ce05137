// Waits of a rank: deadlines, what they say, and what they move.
#include "client_lib/src/wait_loop.h"

#include <gmock/gmock.h>

#include "client_lib/src/operation.h"
#include "tests/unit/client_lib/alone.h"

namespace gradbus {
namespace {

using test::vector_of;
using testing::HasSubstr;

class WaitLoopTest : public testing::Test {
 protected:
  WaitLoopTest() {
    tensor_ = session_->tensors().request(vector_of("w", 16)).value()->tensor;
    clock_.begin(monotonic_now(), 0);
  }
  WaitSubject subject(uint64_t round) { return {name_, round, clock_}; }

  std::unique_ptr<Session> session_ = test::session_alone();
  Tensor* tensor_ = nullptr;
  const std::string name_ = "w";
  WaitClock clock_;
};

TEST_F(WaitLoopTest, EndsWithTheAttempt) {
  int attempts = 0;
  EXPECT_TRUE(session_->waits()
                  .until(
                      tensor_->local_reduction(), [&] { return ++attempts == 1; }, subject(1), 0)
                  .ok());
  EXPECT_EQ(attempts, 1);
  attempts = 0;
  EXPECT_TRUE(
      session_->waits()
          .until(
              tensor_->local_reduction(), [&] { return ++attempts == 5; }, subject(1), kSecond * 60)
          .ok());
  EXPECT_EQ(attempts, 5);
}

TEST_F(WaitLoopTest, SaysWhoHasNotStarted) {
  const Status late = session_->waits().until(
      tensor_->local_reduction(), [] { return false; }, subject(1), 0);
  EXPECT_EQ(late.code(), Code::kTimeout);
  EXPECT_THAT(
      late.message(),
      testing::ContainsRegex("rank 0 waited .* s for .w. round 1; local rank 0 has not started"));
}

TEST_F(WaitLoopTest, WaitsForWhatAnotherThreadStores) {
  std::atomic<bool> done{true};
  EXPECT_TRUE(session_->waits().until_stored(done, 0, 0, "nothing").ok());
  done.store(false);
  EXPECT_THAT(session_->waits().until_stored(done, 0, 0, "an answer").message(),
              HasSubstr("rank 0 waited 0 s for an answer"));
}

TEST_F(WaitLoopTest, TakesSettledRegistrations) {
  Registration registration(vector_of("x", 1), {});
  registration.failure = Status(Code::kMismatch, "GB-O900 no");
  registration.done.store(true);
  EXPECT_EQ(session_->waits().until_settled(registration, kSecond, clock_).message(), "GB-O900 no");
}

// Expect: a thread that waits for something else sleeps where the newest stream wakes it.
TEST(Streams, AreWatchedByOthers) {
  SessionRegistry& registry = SessionRegistry::of_this_process();
  LocalReduction own, stream;
  {
    Streams streams(registry);
    EXPECT_EQ(&streams.to_watch(own, false), &own);
    streams.begin(stream);
    EXPECT_EQ(registry.streams.load(), 1);
    EXPECT_EQ(&streams.to_watch(own, false), &stream);
    EXPECT_EQ(&streams.to_watch(own, true), &own);
    streams.end(stream);
    EXPECT_EQ(&streams.to_watch(own, false), &own);
    EXPECT_EQ(registry.streams.load(), 0);
    streams.begin(stream);  // it never ends
  }
  EXPECT_EQ(registry.streams.load(), 0);
}

TEST(PendingOperations, AreAdvancedUntilTheyEnd) {
  const auto session = test::session_alone();
  PendingOperations operations;
  OperationRequest request;
  float in[4] = {1, 2, 3, 4};
  float out[4] = {};
  request.spec = vector_of("sum", 4);
  request.in = in;
  request.out = out;
  std::weak_ptr<Operation> ended;
  {
    const std::shared_ptr<Operation> operation = make_operation(*session, request);
    ended = operation;
    operations.add(operation);
    ASSERT_TRUE(operation->run().ok());
  }
  EXPECT_FALSE(ended.expired());
  operations.advance();
  EXPECT_TRUE(ended.expired());
  EXPECT_THAT(out, testing::ElementsAre(1, 2, 3, 4));
  EXPECT_FALSE(operations.advance_one());
}

TEST(UnnamedNumbers, CountUpAndUseAgainWhatWasGivenBack) {
  UnnamedNumbers numbers;
  EXPECT_EQ(numbers.next("sum"), 0u);
  EXPECT_EQ(numbers.next("sum"), 1u);
  EXPECT_EQ(numbers.next("max"), 0u);
  numbers.give_back("sum", 1);
  numbers.give_back("sum", 0);
  EXPECT_EQ(numbers.next("sum"), 0u);
  EXPECT_EQ(numbers.next("sum"), 1u);
  EXPECT_EQ(numbers.next("sum"), 2u);
  EXPECT_EQ(numbers.next("max"), 1u);
}

TEST(PendingOperations, CountAdvances) {
  PendingOperations operations;
  EXPECT_EQ(operations.advances(), 0u);
  operations.note_progress();
  EXPECT_EQ(operations.advances(), 1u);
}

TEST(ReceivedModeChanges, AreTakenInOrderAndNotTooEarly) {
  ReceivedModeChanges changes;
  changes.add({"emb*", "ps:sync"});
  changes.add({"*", "sync"});
  EXPECT_EQ(changes.count(), 2);
  EXPECT_FALSE(changes.take(0));
  EXPECT_EQ(changes.take(1)->group, "emb*");
  EXPECT_FALSE(changes.take(1));  // another rank has not received the second one
  EXPECT_EQ(changes.take(2)->mode, "sync");
  EXPECT_FALSE(changes.take(2));
}

}  // namespace
}  // namespace gradbus
