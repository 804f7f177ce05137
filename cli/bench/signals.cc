#include "cli/bench/signals.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "cli/bench/streams.h"
#include "shared_memory/futex.h"

namespace gradbus {
namespace {

constexpr int kGroup = 100;                // round trips between two looks at the clock
constexpr uint32_t kStop = UINT32_MAX;     // in place of a number: the other thread ends
constexpr Nanos kSleepMax = kMillisecond;  // a lost race costs this, and never a hang
constexpr Nanos kFallAsleep = 50'000;      // from the word to the sleep: a system call, some us

// Two words in lines of their own: one thread writes one, the other the other.
struct Words {
  alignas(128) std::atomic<uint32_t> there{0};
  alignas(128) std::atomic<uint32_t> back{0};
};

// The first value that is not `old`, or `old` when it is late.
uint32_t await(const std::atomic<uint32_t>& word, uint32_t old, Nanos until) {
  for (uint32_t looks = 1;; ++looks) {
    const uint32_t now = word.load(std::memory_order_acquire);
    if (now != old || (looks % 4096 == 0 && monotonic_now() > until)) return now;
  }
}

void answer(Words& words, Nanos until) {
  for (uint32_t seen = 0;;) {
    const uint32_t now = await(words.there, seen, until);
    if (now == seen || now == kStop) return;
    words.back.store(seen = now, std::memory_order_release);
  }
}

// Nanoseconds of the best group's round trip; empty when none was complete in time.
std::optional<double> ask(Words& words, Nanos until) {
  std::optional<double> best;
  uint32_t number = 0;
  while (monotonic_now() < until) {
    const Nanos began = monotonic_now();
    for (int i = 0; i < kGroup; ++i) {
      const uint32_t old = number++;
      words.there.store(number, std::memory_order_release);
      if (await(words.back, old, until) == old) return best;
    }
    const double trip = static_cast<double>(monotonic_now() - began) / kGroup;
    best = std::min(best.value_or(trip), trip);
  }
  return best;
}

// True when this thread slept and was woken, not when the word had changed before it could sleep.
bool slept(std::atomic<uint32_t>& word, uint32_t expected) {
  const timespec limit{0, kSleepMax};
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, expected, &limit,
                 nullptr, 0) == 0;
}

// Sleeps on `there` again and again; `back` says that the next sleep is about to begin.
void sleep_and_look(Words& words, const std::atomic<Nanos>& called, std::optional<double>& best) {
  for (uint32_t seen = 0; seen != kStop;) {
    words.back.store(seen + 1, std::memory_order_release);
    const bool woken = slept(words.there, seen);
    const Nanos now = monotonic_now();
    const uint32_t read = words.there.load(std::memory_order_acquire);
    if (read == seen) continue;  // its time was over
    const auto late = static_cast<double>(now - called.load(std::memory_order_relaxed));
    if (woken && read != kStop) best = std::min(best.value_or(late), late);
    seen = read;
  }
}

void call(std::atomic<uint32_t>& word, uint32_t value, std::atomic<Nanos>& called) {
  called.store(monotonic_now(), std::memory_order_relaxed);
  word.store(value, std::memory_order_release);
  futex_wake_all(word);
}

// Calls when the other has had time to fall asleep.
void call_sleeper(Words& words, std::atomic<Nanos>& called, Nanos until) {
  for (uint32_t number = 1; monotonic_now() < until; ++number) {
    while (words.back.load(std::memory_order_acquire) != number && monotonic_now() < until) {
    }
    for (const Nanos asleep = monotonic_now() + kFallAsleep; monotonic_now() < asleep;) {
    }
    call(words.there, number, called);
  }
  call(words.there, kStop, called);
}

// Both parts at once, each on its core.
template <typename One, typename Other>
void on_two_cores(int core, const One& one, int other_core, const Other& other) {
  std::thread second([&] {
    pin_to(other_core);
    other();
  });
  std::thread first([&] {
    pin_to(core);
    one();
  });
  first.join();
  second.join();
}

std::optional<double> queue_one_way_ns(int core, int other_core) {
  Words words;
  const Nanos until = monotonic_now() + kSignalTime;
  std::optional<double> trip;
  on_two_cores(
      core,
      [&] {
        trip = ask(words, until);
        words.there.store(kStop, std::memory_order_release);
      },
      other_core, [&] { answer(words, until); });
  if (trip.has_value()) *trip /= 2;
  return trip;
}

std::optional<double> futex_one_way_ns(int core, int other_core) {
  Words words;
  std::atomic<Nanos> called{0};
  const Nanos until = monotonic_now() + kSignalTime;
  std::optional<double> best;
  on_two_cores(
      core, [&] { call_sleeper(words, called, until); }, other_core,
      [&] { sleep_and_look(words, called, best); });
  return best;
}

}  // namespace

SignalTimes measure_signals(int core, int other_core) {
  return {queue_one_way_ns(core, other_core), futex_one_way_ns(core, other_core)};
}

}  // namespace gradbus
