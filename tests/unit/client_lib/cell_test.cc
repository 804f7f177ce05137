// The cell: ranks as threads post, help and sleep; sums are right, rounds never mix, nobody hangs.
#include "client_lib/shm/cell.h"

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
    shape.data_stride = rank_area_stride(count * 4);
    words.resize(cell_bytes(ranks, shape.chunks) / sizeof(Line));
    data.resize(ranks * shape.data_stride / sizeof(Line) + 1);
  }
  Cell cell() {
    return Cell(reinterpret_cast<std::byte*>(words.data()),
                reinterpret_cast<std::byte*>(data.data()), shape);
  }
  struct alignas(128) Line {
    std::byte bytes[128] = {};
  };
  CellShape shape;
  std::vector<Line> words;
  std::vector<Line> data;
};

float* floats(Cell& cell, uint32_t rank) { return reinterpret_cast<float*>(cell.area(rank)); }

void wait_for_round(Cell& cell, uint64_t round, uint8_t worker) {
  for (;;) {
    const uint32_t ticket = cell.ticket();
    cell.announce();
    if (cell.may_help(round)) cell.help(round, worker, UINT32_MAX);
    const bool done = cell.finished(round);
    if (!done) cell.sleep(ticket, 5 * kSecond);
    cell.retract();
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
      Cell cell = shared.cell();
      for (uint64_t round = 1; round <= rounds; ++round) {
        for (uint64_t i = 0; i < count; ++i)
          floats(cell, rank)[i] = static_cast<float>(rank + round + i % 7);
        cell.post(rank, round);
        wait_for_round(cell, round, static_cast<uint8_t>(rank));
        for (uint64_t i = 0; i < count; ++i) {
          const uint64_t expected = ranks * (ranks - 1) / 2 + ranks * (round + i % 7);
          wrong += floats(cell, rank)[i] != static_cast<float>(expected);
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
}

TEST(Cell, TwoRanksOneChunk) { run_rounds(2, 10, 100, 2000); }
TEST(Cell, TwoRanksManyChunks) { run_rounds(2, 1000, 64, 500); }
TEST(Cell, FourRanksMoreThanCores) { run_rounds(4, 777, 100, 300); }
TEST(Cell, NineRanks) { run_rounds(9, 65, 64, 50); }
TEST(Cell, ZeroElementsStillSynchronise) { run_rounds(3, 0, 1, 200); }
TEST(Cell, OneRankAlone) { run_rounds(1, 100, 30, 100); }

TEST(Cell, AverageDividesAndAreasAreStaggered) {
  Shared shared(2, 3, 3);
  shared.shape.reduction.divisor = 2;
  Cell cell = shared.cell();
  for (int i = 0; i < 3; ++i) floats(cell, 0)[i] = 1, floats(cell, 1)[i] = 4;
  cell.post(0, 1);
  EXPECT_FALSE(cell.may_help(1)) << "one rank is missing";
  cell.post(1, 1);
  EXPECT_EQ(cell.help(1, 0, 9), 1u);
  EXPECT_TRUE(cell.finished(1));
  EXPECT_EQ(floats(cell, 0)[2], 2.5f);
  EXPECT_EQ(floats(cell, 1)[2], 2.5f);
  EXPECT_NE((cell.area(1) - cell.area(0)) % 4096, 0) << "equal indices must not share an L1 set";
}

TEST(Cell, RemoteSumsIntoTheFirstAreaOnlyAndDoesNotFinish) {
  Shared shared(2, 10, 4, true);
  Cell cell = shared.cell();
  for (int i = 0; i < 10; ++i) floats(cell, 0)[i] = 1, floats(cell, 1)[i] = 4;
  cell.post(0, 1);
  cell.post(1, 1);
  EXPECT_EQ(cell.help(1, kAgentWorker, 2), 2u);
  EXPECT_TRUE(cell.chunk_reduced(1, 1));
  EXPECT_FALSE(cell.chunk_reduced(2, 1));
  EXPECT_FALSE(cell.chunk_reduced(1, 2)) << "another round";
  EXPECT_EQ(cell.help(1, 0, 9), 1u);
  EXPECT_EQ(cell.help(1, 0, 9), 0u) << "nothing is left to claim";
  EXPECT_FALSE(cell.finished(1));
  EXPECT_EQ(floats(cell, 0)[9], 5);
  EXPECT_EQ(floats(cell, 1)[9], 4);
}

TEST(Cell, AFailureWakesSleepers) {
  Shared shared(2, 1, 1);
  Cell cell = shared.cell();
  std::thread sleeper([&] {
    Cell mine = shared.cell();
    const uint32_t ticket = mine.ticket();
    mine.announce();
    if (mine.failure() == Code::kOk) mine.sleep(ticket, 20 * kSecond);
    mine.retract();
  });
  const Nanos started = monotonic_now();
  cell.fail(Code::kPeerLost);
  sleeper.join();
  EXPECT_LT(monotonic_now() - started, 10 * kSecond);
  EXPECT_EQ(cell.failure(), Code::kPeerLost);
}

// What another process writes into the words can spoil the round, but not move a read or a write.
TEST(Cell, HostileWordsNeverReachOutsideTheAreas) {
  for (const uint64_t cursor :
       {UINT64_MAX, uint64_t{1} << 63, (uint64_t{1} << 32) + 3, uint64_t{5}}) {
    Shared shared(2, 1000, 64);
    Cell cell = shared.cell();
    reinterpret_cast<CellHeader*>(shared.words.data())->cursor.store(cursor);
    cell.post(0, 1);
    cell.post(1, 1);
    EXPECT_LE(cell.help(1, 0, UINT32_MAX), shared.shape.chunks);
  }
}

}  // namespace
}  // namespace gradbus
