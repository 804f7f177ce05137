// Tests of segments: they are sealed, preallocated, and refused when they differ from the
// announcement.
#include "common/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

namespace gradbus {
namespace {

TEST(Segment, IsZeroSharedAndCannotBeResized) {
  auto made = Segment::create("test", 8192);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(*made.value()->at(8191), std::byte{0});
  auto opened = Segment::open(Fd(dup(made.value()->fd())), 8192);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  *made.value()->at(17) = std::byte{42};
  EXPECT_EQ(*opened.value()->at(17), std::byte{42});
  EXPECT_NE(ftruncate(made.value()->fd(), 4096), 0) << "a client could make the agent fault";
  EXPECT_NE(ftruncate(made.value()->fd(), 16384), 0);
}

// Works with any page size that the machine offers. On most machines the pool is empty and pages
// are small.
TEST(Segment, EveryKindOfPagesIsZeroSealedAndLargeEnough) {
  for (const HugePages pages : {HugePages::kNever, HugePages::kTransparent, HugePages::kReserved}) {
    const size_t wanted = (5 << 20) + 4096;
    const auto made = Segment::create("huge", wanted, {}, pages);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const size_t bytes = made.value()->bytes();
    EXPECT_GE(bytes, wanted);
    EXPECT_EQ(*made.value()->at(bytes - 1), std::byte{0});
    EXPECT_TRUE(Segment::open(Fd(dup(made.value()->fd())), bytes).ok());
    EXPECT_NE(ftruncate(made.value()->fd(), 0), 0);
  }
}

TEST(Segment, AnUnsealedOrShortOneIsRefused) {
  Fd unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  {
    const auto opened = Segment::open(Fd(dup(unsealed.get())), 4096);
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.status().message().find("GB-S212"), std::string::npos);
  }
  auto made = Segment::create("test", 4096);
  ASSERT_TRUE(made.ok());
  EXPECT_FALSE(Segment::open(Fd(dup(made.value()->fd())), 8192).ok());
  EXPECT_FALSE(Segment::open(Fd(open("/dev/null", O_RDWR)), 4096).ok());
}

TEST(Segment, NoMemoryIsAnErrorWithNumbersAndNotASignal) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto made = Segment::create("big", 64 << 20);
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kExhausted);
  EXPECT_NE(made.status().message().find("64 MiB"), std::string::npos) << made.status().message();
}

}  // namespace
}  // namespace gradbus
