// The gradients of well-known models: the shapes that a step exchanges. Pure; the tables are
// compiled in from models/*.csv, which models/write_tables.py makes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace gradbus {

struct ModelTensor {
  std::string name;
  uint64_t count = 0;  // elements
};

struct Model {
  std::string name;
  std::vector<ModelTensor> tensors;  // as the model's forward pass uses them

  uint64_t elements() const;
};

std::vector<std::string> model_names();
// F100 with the known names.
Result<Model> load_model(const std::string& name);

// Lines of "name,count" behind a first one that says so. GB-X001: the table is ours.
Result<Model> parse_model(const std::string& name, std::string_view table);

// Elements of what is exchanged, in the order in which a backward pass has it ready: the last
// tensor first. Neighbours are joined while together they have at most `fuse_elements`; 0: none.
std::vector<uint64_t> backward_order(const Model& model, uint64_t fuse_elements);

}  // namespace gradbus
