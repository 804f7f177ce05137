// Tests of a process that is watched by its number. It is alive, has ended, or its number was
// reused.
#include "common/process_trace.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gradbus {
namespace {

TEST(ProcessTrace, SeesAnEndBeforeAndAfterTheParentHasWaited) {
  const pid_t pid = fork();
  if (pid == 0) {
    for (;;) pause();
  }
  const ProcessTrace trace(pid);
  EXPECT_FALSE(trace.ended());
  kill(pid, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(trace.ended()) << "it is a zombie";
  waitpid(pid, nullptr, 0);
  EXPECT_TRUE(trace.ended());
}

TEST(ProcessTrace, NoProcessNeverEnds) {
  EXPECT_FALSE(ProcessTrace().ended());
  EXPECT_FALSE(ProcessTrace(getpid()).ended());
}

}  // namespace
}  // namespace gradbus
