// Kernels of powersgd and blocktopk, run on the processor, against the codecs.
#include "compression/cuda/kernels/works.h"
#include "tests/unit/compression/cuda/cuda_linear_cases.h"
#include "tests/unit/compression/host_grid.h"

namespace gradbus {
namespace {

TEST(CudaLowRank, IsTheCodecs) {
  for (const GridOrder order : {GridOrder::kForwards, GridOrder::kBackwards})
    cuda_linear::on_each_low_rank([order](const CudaLowRank& input) {
      start_low_rank(input, [order](const auto& work) { run_on_host(work, order); });
    });
}

TEST(CudaBlocks, AreTheCodecs) {
  cuda_linear::on_each_blocks([](const CudaBlocks& input) {
    start_blocks(input, [](const auto& work) { run_on_host(work, GridOrder::kBackwards); });
  });
}

TEST(CudaLinear, ImpossibleOnesAreRefused) {
  std::vector<float> partition(12, 1), vectors(12, 1);
  CudaLowRank matrix{.partition = {partition.data(), nullptr, nullptr, 1, 12}};
  matrix.rows = 3;
  matrix.columns = 4;
  matrix.rank = 2;
  matrix.q = vectors.data();
  matrix.out = vectors.data();
  EXPECT_TRUE(is_possible(matrix));
  for (const auto spoil : {+[](CudaLowRank& m) { m.rank = 4; }, +[](CudaLowRank& m) { m.rows = 2; },
                           +[](CudaLowRank& m) { m.q = nullptr; },
                           +[](CudaLowRank& m) { m.partition.gradient = nullptr; },
                           +[](CudaLowRank& m) { m.part = CudaRankPart::kFinish; }}) {  // without p
    CudaLowRank spoiled = matrix;
    spoil(spoiled);
    EXPECT_FALSE(is_possible(spoiled));
  }
  CudaBlocks blocks{.partition = {partition.data(), nullptr, nullptr, 1, 12}};
  blocks.block = 5;
  blocks.dtype = 1;
  blocks.out = vectors.data();
  EXPECT_TRUE(is_possible(blocks));
  for (const auto spoil :
       {+[](CudaBlocks& b) { b.block = 0; }, +[](CudaBlocks& b) { b.block = 13; },
        +[](CudaBlocks& b) { b.chosen = 4; }, +[](CudaBlocks& b) { b.dtype = 2; },
        +[](CudaBlocks& b) { b.part = CudaBlocksPart::kGather; },
        +[](CudaBlocks& b) { b.part = CudaBlocksPart::kFinish; }}) {
    CudaBlocks spoiled = blocks;
    spoil(spoiled);
    EXPECT_FALSE(is_possible(spoiled));
  }
}

}  // namespace
}  // namespace gradbus
