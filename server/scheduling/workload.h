// What a training step computes, and which gradients it makes: the input of every schedule.
//
// Pure values; any thread. A layer is a module that owns parameters, or a parameter when a profile
// says so: its gradient becomes ready at once, when its backward time ends. Times are microseconds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace gradbus::scheduling {

// Beyond these a profile is a mistake, and planning would take minutes.
inline constexpr size_t kLayersMax = 5000;
inline constexpr uint64_t kLayerBytesMax = uint64_t{1} << 42;
inline constexpr double kLayerTimeUsMax = 1e10;  // 2.8 hours

struct Layer {
  std::string name;
  uint64_t elements = 0;  // of its parameters; 0 is allowed
  uint32_t element_bytes = 4;
  double forward_us = 0;
  double backward_us = 0;

  uint64_t bytes() const { return elements * element_bytes; }
};

struct Workload {
  std::string name;
  std::vector<Layer> layers;             // in the order of the forward pass
  std::vector<uint32_t> backward_order;  // layers as their gradients become ready: a permutation

  uint64_t bytes() const;
  double forward_us() const;
  double backward_us() const;
  double compute_us() const { return forward_us() + backward_us(); }
};

// The backward order of a model that is a plain chain: the last layer first.
std::vector<uint32_t> reverse_order(size_t layers);

// For each layer, when its gradient is ready: microseconds after the backward pass has begun.
std::vector<double> ready_us(const Workload& workload);

// Multiplies all times so that a step computes for `compute_us`. The workload computes something.
void scale_compute(Workload& workload, double compute_us);

// Reads one JSON object; `where` names it in errors (GB-F102).
//
//   {"name": "mine",
//    "layers": [{"name": "conv1", "elements": 9408, "dtype": "f32",
//                "forward_us": 120.5, "backward_us": 260.0}, ...],
//    "backward_order": [52, 51, ...]}
//
// "dtype" is f32 when it is missing; "backward_order" is the reverse of the layers.
Result<Workload> parse_workload(std::string_view json, const std::string& where);

}  // namespace gradbus::scheduling
