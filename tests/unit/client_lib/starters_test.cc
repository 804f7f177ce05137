// Whether a wait of a thread blocks its rank.
#include "client_lib/src/starters.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

namespace gradbus {
namespace {

void elsewhere(const std::function<void()>& work) { std::thread(work).join(); }

TEST(Starters, TheMainThreadBlocksItsRank) {
  Starters starters(false);
  EXPECT_TRUE(starters.blocked_with_this_thread());
  elsewhere([&] { starters.note(); });  // an autograd thread
  EXPECT_TRUE(starters.blocked_with_this_thread());
}

TEST(Starters, AnotherThreadBlocksItOnlyIfItBeginsEverything) {
  Starters starters(false);
  elsewhere([&] {
    EXPECT_FALSE(starters.blocked_with_this_thread());
    starters.note();
    starters.note();
    EXPECT_TRUE(starters.blocked_with_this_thread());
    elsewhere([&] { EXPECT_FALSE(starters.blocked_with_this_thread()); });
    elsewhere([&] { starters.note(); });
    EXPECT_FALSE(starters.blocked_with_this_thread());
  });
}

TEST(Starters, WithManyThreadsNoneBlocksIt) {
  Starters starters(true);
  starters.note();
  EXPECT_FALSE(starters.blocked_with_this_thread());
}

TEST(Starters, AThreadMayActForAnother) {
  Starters starters(false);
  starters.note();
  elsewhere([&, main = getpid()] {
    act_for_thread(main);
    starters.note();
    EXPECT_TRUE(starters.blocked_with_this_thread());
  });
  elsewhere([&] { EXPECT_FALSE(starters.blocked_with_this_thread()); });
}

TEST(Starters, TheMainThreadOfAForkedProcessIsItsOwn) {
  Starters(false).note();
  const pid_t child = fork();
  if (child == 0) {
    Starters starters(false);
    starters.note();
    _exit(starters.blocked_with_this_thread() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gradbus
