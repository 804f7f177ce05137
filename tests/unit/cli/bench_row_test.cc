// Figures of a row, by the formulas of nccl-tests' PERFORMANCE.md.
#include "cli/bench/row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gradbus {
namespace {

BenchWork work_of(const std::string& collective, int ranks) {
  BenchOptions options;
  options.collective = collective;
  return make_work(options, ranks).value();
}

TEST(BenchCollectives, BusFactors) {
  const auto factor = [](const char* name, int ranks) {
    return bus_factor(*find_collective(name).value(), ranks);
  };
  EXPECT_DOUBLE_EQ(factor("all_reduce", 4), 1.5);
  EXPECT_DOUBLE_EQ(factor("all_reduce", 2), 1.0);
  EXPECT_DOUBLE_EQ(factor("all_reduce", 1), 0.0);
  for (const char* name : {"reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"})
    EXPECT_DOUBLE_EQ(factor(name, 4), 0.75) << name;
  for (const char* name : {"broadcast", "reduce"}) EXPECT_DOUBLE_EQ(factor(name, 4), 1.0) << name;
}

TEST(BenchCollectives, SizesAreWholeBlocks) {
  const BenchCollective& gather = *find_collective("all_gather").value();
  const Extent blocks = extent_of(gather, 1000, 4, 3);  // 250 elements: 83 for each of 3 ranks
  EXPECT_EQ(blocks.count, 83u);
  EXPECT_EQ(blocks.total, 249u);
  EXPECT_EQ(blocks.bytes, 996u);
  const BenchCollective& reduce = *find_collective("all_reduce").value();
  const Extent whole = extent_of(reduce, 1002, 4, 3);
  EXPECT_EQ(whole.count, 250u);
  EXPECT_EQ(whole.bytes, 1000u);
  EXPECT_EQ(extent_of(gather, 4, 4, 2).bytes, 0u);
}

TEST(BenchTimes, BestMedianAnd99th) {
  std::vector<double> samples;
  for (int i = 100; i >= 0; --i) samples.push_back(10 + i);
  const BenchTimes times = times_of(samples);
  EXPECT_DOUBLE_EQ(times.best, 10);
  EXPECT_DOUBLE_EQ(times.p50, 60);
  EXPECT_DOUBLE_EQ(times.p99, 109);
  EXPECT_DOUBLE_EQ(times_of({3}).p99, 3);
}

// 100 MB in 10 ms are 10 GB/s; with four ranks each link carries 1.5 times that.
TEST(BenchRow, Bandwidths) {
  const BenchWork work = work_of("all_reduce", 4);
  const BenchRow row =
      make_row(work, {25'000'000, 25'000'000, 100'000'000}, {10'000, 11'000, 12'000});
  EXPECT_DOUBLE_EQ(row.algbw, 10.0);
  EXPECT_DOUBLE_EQ(row.busbw, 15.0);
  EXPECT_DOUBLE_EQ(cpu_s_per_gb(3.0, 20, 100'000'000).value(), 1.5);
  EXPECT_FALSE(cpu_s_per_gb(3.0, 20, 0).has_value());
}

TEST(BenchRow, JsonHasTheColumnsInOrder) {
  const BenchWork work = work_of("all_reduce", 2);
  BenchRow row = make_row(work, {256, 256, 1024}, {2.0, 3.0, 4.0});
  row.wrong = 5;
  row.cpu_s_per_gb = 0.25;
  row.batch = 100;
  EXPECT_EQ(
      row_json(work, row).dump(),
      R"({"size":1024,"count":256,"type":"f32","redop":"sum","time":2.0,"algbw":0.512,)"
      R"("busbw":0.512,"#wrong":5,"time_p50":3.0,"time_p99":4.0,"cpu_s_per_gb":0.25,"shards_cpu_s_per_gb":null,)"
      R"("batch":100})");
}

TEST(BenchRow, WhatWasNotCheckedIsNotCalledRight) {
  const BenchWork work = work_of("all_reduce", 2);
  const BenchRow row = make_row(work, {256, 256, 1024}, {2.0, 3.0, 4.0});
  EXPECT_TRUE(row_json(work, row)["#wrong"].is_null());
  EXPECT_THAT(row_text(work, row), ::testing::HasSubstr(" N/A "));
}

// Expect: of what was measured on GPUs, and nothing elsewhere.
TEST(BenchRow, MemoryOfGpusIsComparedWithACopy) {
  BenchWork work = work_of("all_reduce", 2);
  BenchRow row = make_row(work, {256, 256, 1024}, {2.0, 3.0, 4.0});
  EXPECT_EQ(device_text(row), "");
  EXPECT_FALSE(row_json(work, row).contains("memory"));
  work.on_device = true;
  row.copy_gbs = 2000;
  EXPECT_EQ(device_text(row), "#   a copy on one has 2000.0 GB/s");
  row.memory_gbs = 500;
  EXPECT_EQ(device_text(row),
            "#   GPUs read and write 500.0 GB/s, 0.25 of a copy: a copy on one has 2000.0 GB/s");
  EXPECT_EQ(row_json(work, row)["memory"], "cuda");
  EXPECT_EQ(row_json(work, row)["memory_gbs"], 500);
  EXPECT_EQ(row_json(work, row)["copy_gbs"], 2000);
}

TEST(BenchRow, ColumnsStandUnderTheirTitles) {
  const BenchWork work = work_of("all_gather", 4);
  const std::string row =
      row_text(work, make_row(work, {64u << 20, 256u << 20, 1u << 30}, {9999.4, 12345.6, 1234567}));
  EXPECT_EQ(row.size(), column_titles().find('\n'));
  EXPECT_EQ(row.size(), 80u);
  EXPECT_THAT(row, ::testing::HasSubstr("  f32    none  9999.4 107.38  80.54    N/A"));
  EXPECT_THAT(row, ::testing::EndsWith("    N/A   12346 1234567"));
}

TEST(BenchRow, ANumberThatIsTooLongKeepsItsBlank) {
  const BenchWork work = work_of("all_gather", 4);
  const std::string row =
      row_text(work, make_row(work, {64u << 20, 256u << 20, 1u << 30}, {99.994, 1234.56, 1e7}));
  EXPECT_THAT(row, ::testing::HasSubstr("  99.99 10738.06 8053.55    N/A"));
  EXPECT_THAT(row, ::testing::EndsWith("  1234.6 10000000"));
}

}  // namespace
}  // namespace gradbus
