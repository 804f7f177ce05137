// The shared-memory ring: order, fullness, two threads, and a peer that writes nonsense.
#include "shared_memory/ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "common/clock.h"

namespace gradbus {
namespace {

constexpr uint32_t kSmall = 8;

template <uint32_t kCapacity>
struct RingFixture {
  alignas(128) std::byte bytes[sizeof(RingControl) + kCapacity * kRecordBytes] = {};
  RingMemory memory = RingMemory::at(bytes);
  RingProducer<Submission, kCapacity> producer{memory};
  RingConsumer<Submission, kCapacity> consumer{memory};
};

Submission record(uint64_t round) { return {1, 2, round, 3, 0, 0, 0, 0, 0}; }

TEST(Ring, KeepsOrderAndCountsFullness) {
  RingFixture<kSmall> ring;
  Submission out;
  EXPECT_EQ(ring.consumer.pop(out), Pop::kEmpty);
  for (uint64_t lap = 0; lap < 5; ++lap) {
    for (uint64_t i = 0; i < kSmall; ++i)
      ASSERT_EQ(ring.producer.push(record(lap * kSmall + i)), Push::kDone);
    EXPECT_EQ(ring.producer.push(record(99)), Push::kFull);
    EXPECT_FALSE(ring.consumer.empty());
    for (uint64_t i = 0; i < kSmall; ++i) {
      ASSERT_EQ(ring.consumer.pop(out), Pop::kRecord);
      EXPECT_EQ(out.round, lap * kSmall + i);
    }
    EXPECT_TRUE(ring.consumer.empty());
  }
}

TEST(Ring, EveryRecordCrossesTwoThreadsOnceAndInOrder) {
  auto ring = std::make_unique<RingFixture<kSmall>>();
  // On a busy machine each turn of eight records can take milliseconds, so not more than 5 s.
  constexpr uint64_t kRecordsMax = 200'000;
  constexpr uint64_t kLast = UINT64_MAX;
  uint64_t pushed = 0;
  std::thread producer([&] {
    const auto push = [&](uint64_t round) {
      while (ring->producer.push(record(round)) != Push::kDone) std::this_thread::yield();
    };
    const Nanos deadline = monotonic_now() + 5 * kSecond;
    for (; pushed < kRecordsMax && monotonic_now() < deadline; ++pushed) push(pushed);
    push(kLast);
  });
  Submission out;
  uint64_t next = 0;
  uint64_t wrong = 0;
  for (;;) {
    if (ring->consumer.pop(out) != Pop::kRecord) {
      std::this_thread::yield();
      continue;
    }
    if (out.round == kLast) break;
    wrong += out.round != next++;
  }
  producer.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(next, pushed);
}

TEST(Ring, AHostileTailIsCorruptAndNeverReadsOutside) {
  for (const uint64_t tail : {uint64_t{kSmall + 1}, uint64_t{1} << 40, UINT64_MAX}) {
    RingFixture<kSmall> ring;
    ring.memory.control->tail.count.store(tail);
    Submission out;
    EXPECT_EQ(ring.consumer.pop(out), Pop::kCorrupt) << tail;
    EXPECT_EQ(ring.consumer.pop(out), Pop::kCorrupt) << "again, tail " << tail;
  }
}

TEST(Ring, AHostileHeadIsCorruptForTheProducer) {
  RingFixture<kSmall> ring;
  for (uint32_t i = 0; i < kSmall; ++i) ASSERT_EQ(ring.producer.push(record(i)), Push::kDone);
  ring.memory.control->head.count.store(UINT64_MAX - 5);
  EXPECT_EQ(ring.producer.push(record(9)), Push::kCorrupt);
}

// Both ends step by step over every interleaving of a few operations: what is popped is always a
// prefix of what was pushed, and nothing is lost or doubled.
void interleave(std::vector<int> steps, uint32_t pushes, uint32_t pops) {
  if (pushes > 0) {
    steps.push_back(1);
    interleave(steps, pushes - 1, pops);
    steps.pop_back();
  }
  if (pops > 0) {
    steps.push_back(0);
    interleave(steps, pushes, pops - 1);
    steps.pop_back();
  }
  if (pushes > 0 || pops > 0) return;
  RingFixture<2> ring;
  uint64_t pushed = 0;
  uint64_t popped = 0;
  for (const int push : steps) {
    Submission out;
    if (push) {
      pushed += ring.producer.push(record(pushed)) == Push::kDone;
    } else if (ring.consumer.pop(out) == Pop::kRecord) {
      ASSERT_EQ(out.round, popped++);
    }
    ASSERT_LE(popped, pushed);
    ASSERT_LE(pushed - popped, 2u);
  }
}

TEST(Ring, EveryInterleavingOfSixPushesAndSixPops) { interleave({}, 6, 6); }

}  // namespace
}  // namespace gradbus
