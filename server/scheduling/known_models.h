// Well-known models as workloads: their layers, parameters and shares of the computing time. Pure;
// the tables are compiled in from models/*.csv, which models/write_models.py makes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/scheduling/workload.h"

namespace gradbus::scheduling {

struct KnownModel {
  std::string_view name;
  std::string_view table;
  // Of one step on one device. Round figures for a GPU of 2018 (RTX 2080 Ti, f32) at the batch
  // sizes of DeAR's benchmarks; assumed, not measured by us. A user replaces them (--compute-ms).
  double compute_ms;
  std::string_view assumption;  // what they stand for
};

std::span<const KnownModel> known_models();

// GB-F100 with the known names.
Result<Workload> known_workload(const std::string& name);

// Lines of "layer,elements,mflop" behind a first one that says so. The backward pass of a layer
// takes twice as long as its forward pass. GB-X001: the table is ours.
Result<Workload> parse_model_table(const std::string& name, std::string_view table,
                                   double compute_ms);

}  // namespace gradbus::scheduling
