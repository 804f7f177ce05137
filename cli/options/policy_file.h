// Which compression a job uses, from the command line: one for all gradients that are worth it, or
// a policy file in TOML. The first rule that matches a tensor wins; none: it stays dense.
//
//   schedule = "bytescheduler"        # of the whole job, before the rules
//
//   [[rule]]
//   name = "*.bias"                   # glob: * any text, ? any character
//   compression = "none"
//
//   [[rule]]
//   min_elements = 65536              # also max_elements, min_dims, max_dims
//   min_dims = 2
//   compression = "topk:ratio=0.01"
#pragma once

#include <string>

#include "common/policy/tensor_rules.h"

namespace gradbus {

// What the file says of compressions, of modes and of the schedule; empty where it says nothing.
struct PolicyFile {
  TensorRules compressions;
  TensorRules modes;
  std::string schedule = {};
};

// F101 (unknown key, with "did you mean"), F102 (not TOML, not readable), O910 and O911 (a rule
// that is wrong); all name file and line.
Result<PolicyFile> read_policy_file(const std::string& path);

// What `gradbus run` sets GRADBUS_COMPRESSION, GRADBUS_MODE and GRADBUS_SCHEDULE to; "" leaves them
// as they are.
struct PolicyVariables {
  std::string compression;
  std::string mode;
  std::string schedule = {};
};
// Of its options --compression, --mode, --policy and --schedule. The file excludes the first two,
// and --schedule if it has one itself.
Result<PolicyVariables> policy_variables(const std::string& compression, const std::string& mode,
                                         const std::string& policy_file,
                                         const std::string& schedule = "");

}  // namespace gradbus
