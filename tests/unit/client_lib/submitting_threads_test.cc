// Whether a wait of a thread blocks its rank.
#include "client_lib/src/submitting_threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

namespace gradbus {
namespace {

void elsewhere(const std::function<void()>& work) { std::thread(work).join(); }

TEST(SubmittingThreads, TheMainThreadBlocksItsRank) {
  SubmittingThreads threads(false);
  EXPECT_TRUE(threads.blocked_with_this_thread());
  elsewhere([&] { threads.note_current_thread(); });  // an autograd thread
  EXPECT_TRUE(threads.blocked_with_this_thread());
}

TEST(SubmittingThreads, AnotherThreadBlocksItOnlyIfItBeginsEverything) {
  SubmittingThreads threads(false);
  elsewhere([&] {
    EXPECT_FALSE(threads.blocked_with_this_thread());
    threads.note_current_thread();
    threads.note_current_thread();
    EXPECT_TRUE(threads.blocked_with_this_thread());
    elsewhere([&] { EXPECT_FALSE(threads.blocked_with_this_thread()); });
    elsewhere([&] { threads.note_current_thread(); });
    EXPECT_FALSE(threads.blocked_with_this_thread());
  });
}

TEST(SubmittingThreads, WithManyThreadsNoneBlocksIt) {
  SubmittingThreads threads(true);
  threads.note_current_thread();
  EXPECT_FALSE(threads.blocked_with_this_thread());
}

TEST(SubmittingThreads, AThreadMayActForAnother) {
  SubmittingThreads threads(false);
  threads.note_current_thread();
  elsewhere([&, main = getpid()] {
    act_for_thread(main);
    threads.note_current_thread();
    EXPECT_TRUE(threads.blocked_with_this_thread());
  });
  elsewhere([&] { EXPECT_FALSE(threads.blocked_with_this_thread()); });
}

TEST(SubmittingThreads, TheMainThreadOfAForkedProcessIsItsOwn) {
  SubmittingThreads(false).note_current_thread();
  const pid_t child = fork();
  if (child == 0) {
    SubmittingThreads threads(false);
    threads.note_current_thread();
    _exit(threads.blocked_with_this_thread() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gradbus
