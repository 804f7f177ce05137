// What dynamic programming cuts between: layers with parameters, or several neighbours when there
// are too many. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "server/scheduling/workload.h"

namespace gradbus::scheduling {

class CutAtoms {
 public:
  CutAtoms(const Workload& workload, size_t atoms_max);

  size_t count() const { return layers_.size(); }
  // Of atoms [begin, end).
  double bytes(size_t begin, size_t end) const { return bytes_[end] - bytes_[begin]; }
  std::vector<uint32_t> layers(size_t begin, size_t end) const;
  // When the gradients of atoms [0, end) are ready, after the start of the backward pass.
  double ready_us(size_t end) const { return ready_us_[end]; }
  // Of the forward pass from the first layer of atoms [0, end) to its end.
  double forward_rest_us(size_t end) const { return forward_rest_us_[end]; }

 private:
  std::vector<std::vector<uint32_t>> layers_;
  std::vector<double> bytes_ = {0};
  std::vector<double> ready_us_ = {0};
  std::vector<double> forward_rest_us_ = {0};
};

}  // namespace gradbus::scheduling
