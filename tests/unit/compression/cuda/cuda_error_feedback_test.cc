// Compares the kernels of DGC's error feedback and of reductions, run on the processor, with
// ErrorFeedback and reduce_scalar().
#include "tests/unit/compression/cuda/cuda_error_feedback_cases.h"

#include "compression/cuda/kernels/works.h"
#include "tests/unit/compression/host_grid.h"

namespace gradbus {
namespace {

std::vector<std::byte> round_on_host(CudaMomentum step, CudaEncode input, bool masks,
                                     CudaMemoryPartition& partition, GridOrder order) {
  const auto start = [&](const auto& work) { run_on_host(work, order); };
  uint32_t taken = 77;
  step.gradient = partition.one.gradient.data();
  step.residual = partition.one.residual.data();
  step.momentum = partition.momentum.data();
  step.taken = &taken;
  start_remember(step, start);
  const size_t bytes = cuda_payload_bytes(input.codec, input.count, input.choice.entries);
  std::vector<uint64_t> payload(bytes / 8 + 2);
  std::vector<uint64_t> workspace(cuda_workspace_bytes(input) / 8 + 2);
  input.gradient = step.gradient;
  input.residual = step.residual;
  input.taken = &taken;
  input.payload = reinterpret_cast<uint8_t*>(payload.data());
  input.workspace = workspace.data();
  start_encode(input, start);
  const bool lists = masks && input.codec.family == CudaFamily::kSelections;
  start_forget({lists ? input.payload : nullptr, step.momentum, step.residual, &taken, input.count,
                input.choice.entries},
               start);
  const auto* first = reinterpret_cast<const std::byte*>(payload.data());
  return {first, first + bytes};
}

TEST(CudaMemory, IsTheMemorysMomentumCorrection) {
  for (const GridOrder order : {GridOrder::kForwards, GridOrder::kBackwards})
    on_each_cuda_memory_case([order](const CudaMomentum& step, const CudaEncode& input, bool masks,
                                     CudaMemoryPartition& partition) {
      return round_on_host(step, input, masks, partition, order);
    });
}

TEST(CudaMemory, ListsReachNoFurtherThanThePartition) {
  std::vector<uint32_t> list = {3, UINT32_MAX, 0, 0, 0, 0, 0, 2, 10, 4000000000};
  std::vector<float> momentum(10, 1.0F), residual(10, 1.0F);
  const uint32_t taken = kCudaTaken;
  start_forget({reinterpret_cast<const uint8_t*>(list.data()), momentum.data(), residual.data(),
                &taken, 10, 3},
               [](const auto& work) { run_on_host(work, GridOrder::kForwards); });
  EXPECT_EQ(std::count(momentum.begin(), momentum.end(), 1.0F), 9);
  EXPECT_EQ(momentum[2], 0);
  EXPECT_EQ(std::count(residual.begin(), residual.end(), 1.0F), 10);
}

TEST(CudaMemory, OtherMemoriesHaveNone) {
  for (const std::string_view text : {"topk", "none", "dgc:clip=1"})
    EXPECT_FALSE(
        cuda_momentum(error_feedback_options(parse_compression(text).value(), 2)).has_value())
        << text;
}

TEST(CudaReductions, AreTheProcessors) {
  on_each_cuda_reduction([](CudaReduce input, std::vector<std::vector<std::byte>>& rank_buffers) {
    for (uint32_t s = 0; s < input.source_count; ++s) input.sources[s] = rank_buffers[s].data();
    for (uint32_t t = 0; t < input.target_count; ++t) input.targets[t] = rank_buffers[t].data();
    ASSERT_TRUE(is_possible(input));
    start_reduce(input, [](const auto& work) { run_on_host(work, GridOrder::kBackwards); });
  });
}

TEST(CudaReductions, ImpossibleOnesAreRefused) {
  alignas(8) char rank_buffer[16] = {};
  const auto good = [&] {
    CudaReduce input{.source_count = 1, .target_count = 1, .count = 2, .dtype = 2, .op = 1};
    input.sources[0] = input.targets[0] = rank_buffer;
    return input;
  };
  EXPECT_TRUE(is_possible(good()));
  for (const auto spoil :
       {+[](CudaReduce& input) { input.dtype = 255; }, +[](CudaReduce& input) { input.op = 0; },
        +[](CudaReduce& input) { input.op = 6; },  // of floats
        +[](CudaReduce& input) { input.op = 8; }, +[](CudaReduce& input) { input.divisor = 0; },
        +[](CudaReduce& input) { input.source_count = 0; },
        +[](CudaReduce& input) { input.source_count = 2; },
        +[](CudaReduce& input) { input.target_count = 17; }}) {
    CudaReduce input = good();
    spoil(input);
    EXPECT_FALSE(is_possible(input));
  }
  CudaReduce askew = good();
  askew.sources[0] = rank_buffer + 4;
  EXPECT_FALSE(is_possible(askew));
}

}  // namespace
}  // namespace gradbus
