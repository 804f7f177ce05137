// The local reduction: ranks as threads post, help and sleep; sums are right, rounds never mix,
// nobody hangs.
#include "shared_memory/local_reduction.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

namespace gradbus {
namespace {

struct Shared {
  Shared(uint32_t ranks, uint64_t count, uint64_t chunk_elements, bool remote = false) {
    shape.count = count;
    shape.chunk_elements = chunk_elements;
    shape.chunks =
        static_cast<uint32_t>(std::max<uint64_t>((count + chunk_elements - 1) / chunk_elements, 1));
    shape.local_size = ranks;
    shape.remote = remote;
    shape.data_stride = rank_buffer_stride(count * 4);
    words.resize(local_reduction_bytes(ranks, shape.chunks) / sizeof(Line));
    data.resize(ranks * shape.data_stride / sizeof(Line) + 1);
  }
  LocalReduction local_reduction() {
    return LocalReduction(reinterpret_cast<std::byte*>(words.data()),
                          reinterpret_cast<std::byte*>(data.data()), shape);
  }
  struct alignas(128) Line {
    std::byte bytes[128] = {};
  };
  LocalReductionShape shape;
  std::vector<Line> words;
  std::vector<Line> data;
};

float* floats(LocalReduction& local_reduction, uint32_t rank) {
  return reinterpret_cast<float*>(local_reduction.rank_buffer(rank));
}

void wait_for_round(LocalReduction& local_reduction, uint64_t round, uint8_t reducer) {
  for (;;) {
    const uint32_t ticket = local_reduction.ticket();
    local_reduction.announce();
    if (local_reduction.may_reduce(round))
      local_reduction.reduce_chunks(round, reducer, UINT32_MAX);
    const bool done = local_reduction.finished(round);
    if (!done) local_reduction.sleep(ticket, 5 * kSecond);
    local_reduction.retract();
    if (done) return;
  }
}

// Every rank adds rank + round; the sum of each element is known.
void run_rounds(uint32_t ranks, uint64_t count, uint64_t chunk, uint64_t rounds) {
  Shared shared(ranks, count, chunk);
  std::vector<std::thread> threads;
  std::atomic<uint64_t> wrong{0};
  for (uint32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      LocalReduction local_reduction = shared.local_reduction();
      for (uint64_t round = 1; round <= rounds; ++round) {
        for (uint64_t i = 0; i < count; ++i)
          floats(local_reduction, rank)[i] = static_cast<float>(rank + round + i % 7);
        local_reduction.post(rank, round);
        wait_for_round(local_reduction, round, static_cast<uint8_t>(rank));
        for (uint64_t i = 0; i < count; ++i) {
          const uint64_t expected = ranks * (ranks - 1) / 2 + ranks * (round + i % 7);
          wrong += floats(local_reduction, rank)[i] != static_cast<float>(expected);
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
}

TEST(LocalReduction, TwoRanksOneChunk) { run_rounds(2, 10, 100, 2000); }
TEST(LocalReduction, TwoRanksManyChunks) { run_rounds(2, 1000, 64, 500); }
TEST(LocalReduction, FourRanksMoreThanCores) { run_rounds(4, 777, 100, 300); }
TEST(LocalReduction, NineRanks) { run_rounds(9, 65, 64, 50); }
TEST(LocalReduction, ZeroElementsStillSynchronise) { run_rounds(3, 0, 1, 200); }
TEST(LocalReduction, OneRankAlone) { run_rounds(1, 100, 30, 100); }

TEST(LocalReduction, AverageDividesAndRankBuffersAreStaggered) {
  Shared shared(2, 3, 3);
  shared.shape.reduction.divisor = 2;
  LocalReduction local_reduction = shared.local_reduction();
  for (int i = 0; i < 3; ++i) floats(local_reduction, 0)[i] = 1, floats(local_reduction, 1)[i] = 4;
  local_reduction.post(0, 1);
  EXPECT_FALSE(local_reduction.may_reduce(1)) << "one rank is missing";
  local_reduction.post(1, 1);
  EXPECT_EQ(local_reduction.reduce_chunks(1, 0, 9), 1u);
  EXPECT_TRUE(local_reduction.finished(1));
  EXPECT_EQ(floats(local_reduction, 0)[2], 2.5f);
  EXPECT_EQ(floats(local_reduction, 1)[2], 2.5f);
  EXPECT_NE((local_reduction.rank_buffer(1) - local_reduction.rank_buffer(0)) % 4096, 0)
      << "equal indices must not share an L1 set";
}

TEST(LocalReduction, RemoteSumsIntoTheFirstRankBufferOnlyAndDoesNotFinish) {
  Shared shared(2, 10, 4, true);
  LocalReduction local_reduction = shared.local_reduction();
  for (int i = 0; i < 10; ++i) floats(local_reduction, 0)[i] = 1, floats(local_reduction, 1)[i] = 4;
  local_reduction.post(0, 1);
  local_reduction.post(1, 1);
  EXPECT_EQ(local_reduction.reduce_chunks(1, kAgentReducer, 2), 2u);
  EXPECT_TRUE(local_reduction.chunk_reduced(1, 1));
  EXPECT_FALSE(local_reduction.chunk_reduced(2, 1));
  EXPECT_FALSE(local_reduction.chunk_reduced(1, 2)) << "another round";
  EXPECT_EQ(local_reduction.reduce_chunks(1, 0, 9), 1u);
  EXPECT_EQ(local_reduction.reduce_chunks(1, 0, 9), 0u) << "nothing is left to claim";
  EXPECT_FALSE(local_reduction.finished(1));
  EXPECT_EQ(floats(local_reduction, 0)[9], 5);
  EXPECT_EQ(floats(local_reduction, 1)[9], 4);
}

TEST(LocalReduction, AFailureWakesSleepers) {
  Shared shared(2, 1, 1);
  LocalReduction local_reduction = shared.local_reduction();
  std::thread sleeper([&] {
    LocalReduction mine = shared.local_reduction();
    const uint32_t ticket = mine.ticket();
    mine.announce();
    if (mine.failure() == Code::kOk) mine.sleep(ticket, 20 * kSecond);
    mine.retract();
  });
  const Nanos started = monotonic_now();
  local_reduction.fail(Code::kPeerLost);
  sleeper.join();
  EXPECT_LT(monotonic_now() - started, 10 * kSecond);
  EXPECT_EQ(local_reduction.failure(), Code::kPeerLost);
}

// What another process writes into the words can spoil the round, but not move a read or a write.
TEST(LocalReduction, HostileWordsNeverReachOutsideTheRankBuffers) {
  for (const uint64_t cursor :
       {UINT64_MAX, uint64_t{1} << 63, (uint64_t{1} << 32) + 3, uint64_t{5}}) {
    Shared shared(2, 1000, 64);
    LocalReduction local_reduction = shared.local_reduction();
    reinterpret_cast<LocalReductionHeader*>(shared.words.data())->cursor.store(cursor);
    local_reduction.post(0, 1);
    local_reduction.post(1, 1);
    EXPECT_LE(local_reduction.reduce_chunks(1, 0, UINT32_MAX), shared.shape.chunks);
  }
}

}  // namespace
}  // namespace gradbus
