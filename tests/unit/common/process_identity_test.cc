// Tests of a process that is watched by its number. It is alive, has ended, or its number was
// reused.
#include "common/process_identity.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gradbus {
namespace {

TEST(ProcessIdentity, SeesAnEndBeforeAndAfterTheParentHasWaited) {
  const pid_t pid = fork();
  if (pid == 0) {
    for (;;) pause();
  }
  const ProcessIdentity identity(pid);
  EXPECT_FALSE(identity.ended());
  kill(pid, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(identity.ended()) << "it is a zombie";
  waitpid(pid, nullptr, 0);
  EXPECT_TRUE(identity.ended());
}

TEST(ProcessIdentity, NoProcessNeverEnds) {
  EXPECT_FALSE(ProcessIdentity().ended());
  EXPECT_FALSE(ProcessIdentity(getpid()).ended());
}

}  // namespace
}  // namespace gradbus
