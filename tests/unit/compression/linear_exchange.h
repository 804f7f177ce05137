// The agents of a linear codec in one process: what each would do, and the sums in between.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "common/kernels/reduce.h"
#include "compression/registry.h"

namespace gradbus {

class LinearExchange {
 public:
  using Floats = std::vector<float>;

  LinearExchange(std::string_view text, size_t agents, const CodecShape& shape)
      : residuals_(agents, Floats(shape.count_max)) {
    const Result<CompressionSpec> spec = parse_compression(text);
    EXPECT_TRUE(spec.ok()) << spec.status().message();
    const CodecRow& row = *spec.value().codec;
    for (size_t i = 0; i < agents; ++i)
      codecs_.push_back(row.make_linear(spec.value().options, shape));
  }

  // Of each agent's gradient; what each gets, which must be the same. Results come where the
  // gradients were, as in an agent.
  Floats run(std::vector<Floats> gradients, float scale = 1) {
    std::vector<std::byte> before;
    for (uint32_t round = 0; round < codecs_[0]->rounds(); ++round) {
      std::vector<std::vector<std::byte>> vectors;
      for (size_t i = 0; i < codecs_.size(); ++i)
        vectors.push_back(project(i, round, gradients[i], before));
      before = sum(round, vectors);
    }
    Floats first;
    for (size_t i = 0; i < codecs_.size(); ++i) {
      Floats& values = gradients[i];
      codecs_[i]->finish(input(i, gradients[i]), seed_, static_cast<uint32_t>(codecs_.size()),
                         before, scale, values);
      if (i == 0) first = values;
      if (first.empty()) continue;  // memcmp takes no null
      EXPECT_EQ(std::memcmp(values.data(), first.data(), first.size() * sizeof(float)), 0);
    }
    ++seed_;
    return first;
  }

  Floats& residual(size_t agent) { return residuals_[agent]; }
  LinearCodec& codec(size_t agent) { return *codecs_[agent]; }

 private:
  EncodeInput input(size_t agent, const Floats& gradient) {
    return {.gradient = gradient, .residual = residuals_[agent]};
  }

  std::vector<std::byte> project(size_t agent, uint32_t round, const Floats& gradient,
                                 const std::vector<std::byte>& before) {
    LinearCodec& codec = *codecs_[agent];
    std::vector<std::byte> vector(codec.vector_elements(round) * dtype_bytes(codec.dtype(round)));
    codec.project(round, input(agent, gradient), seed_, before, vector);
    return vector;
  }

  // As a dense all-reduce along a chain of agents.
  std::vector<std::byte> sum(uint32_t round, const std::vector<std::vector<std::byte>>& vectors) {
    const DType dtype = codecs_[0]->dtype(round);
    std::vector<std::byte> total = vectors[0];
    for (size_t v = 1; v < vectors.size(); ++v) {
      const std::byte* const sources[] = {total.data(), vectors[v].data()};
      std::byte* const targets[] = {total.data()};
      reduce_scalar(dtype, Reduction{}, sources, targets, total.size() / dtype_bytes(dtype));
    }
    return total;
  }

  std::vector<std::unique_ptr<LinearCodec>> codecs_;
  std::vector<Floats> residuals_;
  uint64_t seed_ = 1;
};

}  // namespace gradbus
