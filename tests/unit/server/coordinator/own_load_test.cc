// Whether gRPC's threads keep up, and that no other thread counts.
#include "server/coordinator/own_load.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace gradbus {
namespace {

constexpr Nanos kPatience = 60 * kSecond;

// Looks again and again until it is so.
bool becomes(OwnLoad& load, bool full) {
  for (const Nanos end = monotonic_now() + kPatience; monotonic_now() < end;) {
    if (load.is_full(monotonic_now()) == full) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

// A thread of this name that always has work.
class Busy {
 public:
  explicit Busy(const char* name)
      : thread_([this, name] {
          pthread_setname_np(pthread_self(), name);
          while (!stops_) {
          }
        }) {}
  ~Busy() {
    stops_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

TEST(OwnLoad, IsFullWhileAThreadOfGrpcAlwaysHasWork) {
  OwnLoad load;
  EXPECT_FALSE(load.is_full(monotonic_now()));
  {
    const Busy busy("nexting_thread");
    EXPECT_TRUE(becomes(load, true));
  }
  EXPECT_TRUE(becomes(load, false));
}

TEST(OwnLoad, CountsNoOtherThreads) {
  OwnLoad load;
  const Busy busy("plans");
  for (const Nanos end = monotonic_now() + 2 * kSecond; monotonic_now() < end;) {
    ASSERT_FALSE(load.is_full(monotonic_now()));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace
}  // namespace gradbus
