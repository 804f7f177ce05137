#include "server/coordinator/planning/compression_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compression/payload.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

using testing::HasSubstr;

v1::TensorSpec gradient(uint64_t count, const std::string& compression) {
  v1::TensorSpec spec;
  spec.set_name("w");
  spec.set_count(count);
  spec.set_dtype(static_cast<uint32_t>(DType::kF32));
  spec.set_op(static_cast<uint32_t>(ReduceOp::kAverage));
  spec.set_collective(static_cast<uint32_t>(CollectiveKind::kAllReduce));
  spec.set_compression(compression);
  return spec;
}

TensorPlan plan(const v1::TensorSpec& spec, uint32_t agents, const PlanOptions& options = {}) {
  return plan_compressed(spec, parse_compression(spec.compression()).take(), {agents, agents},
                         options);
}

TEST(CompressionPlan, RefusesWhatCannotBeCompressed) {
  const auto message = [](v1::TensorSpec spec) { return check_compression(spec).message(); };
  EXPECT_EQ(message(gradient(100, "topk")), "");
  EXPECT_EQ(message(gradient(100, "")), "");
  EXPECT_EQ(message(gradient(100, "none")), "");
  EXPECT_THAT(message(gradient(100, "topq")), HasSubstr("did you mean \"topk\"?"));
  v1::TensorSpec spec = gradient(100, "topk");
  spec.set_dtype(static_cast<uint32_t>(DType::kF64));
  EXPECT_THAT(message(spec), HasSubstr("only an all-reduce of f32 by sum or average"));
  spec = gradient(100, "topk");
  spec.set_op(static_cast<uint32_t>(ReduceOp::kMax));
  EXPECT_THAT(message(spec), HasSubstr("only an all-reduce of f32 by sum or average"));
  spec = gradient(100, "powersgd");
  spec.set_columns(7);
  EXPECT_THAT(message(spec), HasSubstr("100 elements are no matrix of 7 columns"));
  EXPECT_THAT(message(gradient(100, "int8:communicator=allreduce")),
              HasSubstr("cannot be summed on their way: use allgather or ps"));
  EXPECT_THAT(message(gradient(100, "topk:communicator=allreduce,entropy=zstd")),
              HasSubstr("cannot be summed on their way: use allgather or ps"));
  EXPECT_THAT(message(gradient(100, "powersgd:entropy=zstd")),
              HasSubstr("needs payloads that are not summed on their way"));
  EXPECT_THAT(message(gradient(100, "rows")),
              HasSubstr("how many elements has a row? Say rows:dim"));
  EXPECT_EQ(message(gradient(100, "rows:dim=10")), "");
  spec = gradient(100, "rows");
  spec.set_columns(10);
  EXPECT_EQ(message(spec), "");
  EXPECT_THAT(message(gradient(100, "rows:dim=10,communicator=allreduce")),
              HasSubstr("cannot be summed on their way: use allgather or ps"));
  EXPECT_THAT(message(gradient(100, "powersgd:communicator=ps")),
              HasSubstr("are summed on their way: use allreduce"));
}

TEST(CompressionPlan, WhatCanBeSummedIs) {
  EXPECT_EQ(plan(gradient(1 << 20, "fp16"), 4).communicator, Communicator::kAllReduce);
  EXPECT_EQ(plan(gradient(1 << 20, "randk"), 4).communicator, Communicator::kAllReduce);
  EXPECT_EQ(plan(gradient(1 << 20, "powersgd"), 4).communicator, Communicator::kAllReduce);
}

// Selections merge on their way, and payloads that are coded once more do not add up.
TEST(CompressionPlan, ASelectionIsMergedWhereThatIsForced) {
  const auto forced = [](const std::string& spec) { return gradient(1 << 20, spec); };
  EXPECT_EQ(check_compression(forced("topk:communicator=allreduce")).message(), "");
  EXPECT_EQ(plan(forced("topk:communicator=allreduce"), 4).communicator, Communicator::kAllReduce);
  EXPECT_NE(plan(forced("fp16:entropy=zstd"), 4).communicator, Communicator::kAllReduce);
}

TEST(CompressionPlan, SelectionsAreGathered) {
  EXPECT_EQ(plan(gradient(1 << 24, "topk"), 2).communicator, Communicator::kAllGather);
  EXPECT_EQ(plan(gradient(1 << 24, "topk"), 64).communicator, Communicator::kAllGather);
}

TEST(CompressionPlan, RowsAreGatheredAndNeverCut) {
  for (const uint64_t columns : {64, 300, 301, 1023}) {
    for (const char* codec : {"rows", "rows:communicator=ps"}) {
      v1::TensorSpec spec = gradient(30'000 * columns, codec);
      spec.set_columns(columns);
      const TensorPlan one = plan(spec, 3);
      EXPECT_EQ(one.communicator,
                codec == std::string("rows") ? Communicator::kAllGather : Communicator::kPs);
      EXPECT_EQ(one.chunk_elements % columns, 0u) << columns;
      EXPECT_EQ(one.chunk_elements % 64, 0u) << columns;
      EXPECT_EQ(one.partition_elements % one.chunk_elements, 0u) << columns;
      const TensorPlan pushed =
          plan_ps_sync(spec, parse_compression(spec.compression()).take(), {2, 2}, {});
      if (columns < 1000) {  // chunks of shards are balanced, down to half the length
        EXPECT_EQ(pushed.partition_elements % columns, 0u) << columns;
      }
      EXPECT_EQ(pushed.partition_elements % pushed.chunk_elements, 0u) << columns;
    }
  }
  // One that no chunk can hold is cut.
  v1::TensorSpec spec = gradient(1'000'000 * 10, "rows:dim=1000000");
  EXPECT_EQ(plan(spec, 3).chunk_elements, 65'536u);
}

// Gathered: (A - 1) payloads a link; owned: 2 (A - 1) / A and another message. They meet at A = 2,
// where a message decides.
TEST(CompressionPlan, OwnersSumWhatManyAgentsSend) {
  EXPECT_EQ(plan(gradient(1 << 24, "onebit"), 2).communicator, Communicator::kAllGather);
  EXPECT_EQ(plan(gradient(1 << 24, "onebit"), 4).communicator, Communicator::kPs);
  EXPECT_EQ(plan(gradient(1 << 24, "onebit:communicator=allgather"), 4).communicator,
            Communicator::kAllGather);
  PlanOptions far;
  far.told.alpha_us = 1e6;  // a second each way
  EXPECT_EQ(plan(gradient(1 << 24, "onebit"), 4, far).communicator, Communicator::kAllGather);
}

TEST(CompressionPlan, PartitionsAreWholeChunks) {
  for (const CodecRow* row : codec_rows()) {
    if (row->id == CodecId::kDense) continue;
    for (const uint64_t count : {1ull, 1000ull, 1ull << 20, (1ull << 24) + 17, 1ull << 36}) {
      const v1::TensorSpec spec = gradient(count, std::string(row->name));
      const TensorPlan one = plan(spec, 3);
      EXPECT_GT(one.chunk_elements, 0u);
      EXPECT_EQ(one.partition_elements % one.chunk_elements, 0u) << row->name << " " << count;
      EXPECT_LT(count / one.partition_elements, 1u << 14) << row->name << " " << count;
      EXPECT_LE(one.partition_elements, kPartitionElementsMax) << row->name << " " << count;
    }
  }
}

// Neither what was measured nor the size of chunks may change where partitions end or who sums.
TEST(CompressionPlan, DeterministicModeIgnoresMeasurementsAndChunks) {
  PlanOptions options;
  options.deterministic = true;
  const TensorPlan first = plan(gradient(3'000'001, "onebit"), 4, options);
  options.measured.alpha_us = 1e6;
  options.chunk_bytes = 100 << 10;
  const TensorPlan second = plan(gradient(3'000'001, "onebit"), 4, options);
  EXPECT_EQ(first.communicator, second.communicator);
  EXPECT_EQ(first.partition_elements, second.partition_elements);
  options.deterministic = false;
  const TensorPlan free = plan(gradient(3'000'001, "onebit"), 4, options);
  EXPECT_NE(free.communicator, first.communicator);
  EXPECT_NE(free.partition_elements, first.partition_elements);
}

// Shards hold about as much each, in units of whole chunks that are no longer than others'.
TEST(CompressionPlan, ShardsHoldPartitionsOfAboutTheSameLength) {
  for (const char* codec : {"onebit", "topk", "fp16"}) {
    for (const uint32_t shards : {1, 2, 3, 8}) {
      for (const uint64_t count : {1ull, 1000ull, 100'000ull, 3ull << 20, (1ull << 24) + 17}) {
        const v1::TensorSpec spec = gradient(count, codec);
        const TensorPlan one =
            plan_ps_sync(spec, parse_compression(codec).take(), {shards, shards}, {});
        EXPECT_EQ(one.algorithm, Algorithm::kShards);
        EXPECT_EQ(one.communicator, Communicator::kPs);
        EXPECT_EQ(one.partition_elements % one.chunk_elements, 0u) << codec << " " << count;
        std::vector<uint64_t> held(shards);
        for (uint64_t partition = 0; partition * one.partition_elements < count; ++partition)
          held[partition % shards] +=
              std::min(one.partition_elements, count - partition * one.partition_elements);
        const uint64_t most = *std::max_element(held.begin(), held.end());
        if (count >= 100'000) {
          EXPECT_LE(most, count / shards + count / shards / 4 + 4096) << codec << " " << count;
        }
        if (codec != std::string("topk")) {
          EXPECT_LE(one.partition_elements, (1u << 20) + (1u << 16));
        }
      }
    }
  }
}

// What was measured changes nothing: shards sum in the order of agents, so bits stay the same.
TEST(CompressionPlan, PartitionsOnShardsDependOnNothingMeasured) {
  const v1::TensorSpec spec = gradient(3'000'001, "onebit");
  PlanOptions options;
  const TensorPlan first = plan_ps_sync(spec, parse_compression("onebit").take(), {2, 2}, options);
  options.measured = {.alpha_us = 1e6, .beta_ns = 100};
  const TensorPlan second = plan_ps_sync(spec, parse_compression("onebit").take(), {2, 2}, options);
  EXPECT_EQ(first.partition_elements, second.partition_elements);
  EXPECT_EQ(first.chunk_elements, second.chunk_elements);
}

TEST(CompressionPlan, EveryAgentOwnsASlice) {
  const TensorPlan one = plan(gradient(1 << 20, "onebit:communicator=ps"), 8);
  EXPECT_LE(one.partition_elements, (1u << 20) / 8);
}

}  // namespace
}  // namespace gradbus
