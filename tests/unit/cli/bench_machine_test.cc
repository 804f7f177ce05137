// What `gradbus bench machine` is made of: the loops do what they are counted for; CPU time is
// seen.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "cli/bench/process_cpu.h"
#include "cli/bench/streams.h"
#include "common/clock.h"

namespace gradbus {
namespace {

constexpr size_t kFloats = 1024;

struct Pair {
  alignas(64) float a[kFloats];
  alignas(64) float b[kFloats];

  Pair() {
    for (size_t i = 0; i < kFloats; ++i) {
      a[i] = static_cast<float>(i);
      b[i] = 2 * static_cast<float>(i) + 1;
    }
  }
};

const StreamKernel& kernel(std::string_view name) {
  for (const StreamKernel& one : stream_kernels())
    if (one.name == name) return one;
  ADD_FAILURE() << "no kernel " << name;
  return stream_kernels()[0];
}

TEST(BenchStreams, LoopsTouchEveryElement) {
  const Pair before;
  Pair add;
  kernel("add").run(add.a, add.b, kFloats);
  Pair copy;
  kernel("copy").run(copy.a, copy.b, kFloats);
  Pair mix;
  kernel("mix_2r2w").run(mix.a, mix.b, kFloats);
  for (size_t i = 0; i < kFloats; ++i) {
    EXPECT_EQ(add.a[i], before.a[i] + before.b[i]);
    EXPECT_EQ(copy.a[i], before.b[i]);
    EXPECT_EQ(mix.a[i], before.a[i] + before.b[i]);
    EXPECT_EQ(mix.b[i], mix.a[i]);
    EXPECT_EQ(add.b[i], before.b[i]);
  }
}

// Lanes 0 and 16 of every 32 come together in the first lanes of the two sums.
TEST(BenchStreams, ReadingUsesWhatItReads) {
  Pair read;
  float expected = 0;
  for (size_t i = 0; i < kFloats; i += 16) expected += read.a[i];
  EXPECT_EQ(kernel("read").run(read.a, read.b, kFloats), expected);
}

TEST(BenchStreams, TrafficIsCountedAsReadAndWritten) {
  EXPECT_EQ(kernel("read").traffic, 1);
  EXPECT_EQ(kernel("copy").traffic, 2);
  EXPECT_EQ(kernel("add").traffic, 3);
  EXPECT_EQ(kernel("mix_2r2w").traffic, 4);
}

TEST(BenchProcessCpu, SeesWhatAChildUses) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) monotonic_now();
  }
  const ProcessCpu cpu = ProcessCpu::children_of(getpid());
  EXPECT_EQ(cpu.processes(), 1u);
  const double before = cpu.seconds();
  const Nanos until = monotonic_now() + 30 * kSecond;
  while (cpu.seconds() < before + 0.05 && monotonic_now() < until) usleep(1000);
  EXPECT_GE(cpu.seconds(), before + 0.05);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(cpu.seconds(), 0) << "one that has ended does not count";
}

TEST(BenchProcessCpu, FindsChildrenByTheirArguments) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execlp("sleep", "sleep", "1000", nullptr);
    _exit(1);
  }
  const auto processes = [](const char* argument) {
    return ProcessCpu::children_with(argument, getpid()).processes();
  };
  const Nanos until = monotonic_now() + 30 * kSecond;
  while (processes("1000") == 0 && monotonic_now() < until) usleep(1000);
  EXPECT_EQ(processes("1000"), 1u);
  EXPECT_EQ(processes("100"), 0u) << "a whole argument";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// A process may end after its file has been opened: reading is then ESRCH.
TEST(BenchProcessCpu, AProcessThatEndsWhileItIsReadHasNoParent) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  const std::string stat = "/proc/" + std::to_string(child) + "/stat";
  EXPECT_EQ(parent_in(stat), getpid());
  const int opened = open(stat.c_str(), O_RDONLY | O_CLOEXEC);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(parent_in("/proc/self/fd/" + std::to_string(opened)), -1);
  EXPECT_EQ(parent_in(stat), -1);
  close(opened);
}

}  // namespace
}  // namespace gradbus
