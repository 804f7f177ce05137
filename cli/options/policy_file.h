// Which compression a job uses, from the command line: one for all gradients that are worth it, or
// a policy file in TOML. The first rule that matches a tensor wins; none: it stays dense.
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

// What the file says of compressions and of modes; empty where no rule speaks of one.
struct PolicyFile {
  TensorRules compressions;
  TensorRules modes;
};

// F101 (unknown key, with "did you mean"), F102 (not TOML, not readable), O910 and O911 (a rule
// that is wrong); all name file and line.
Result<PolicyFile> read_policy_file(const std::string& path);

// What `gradbus run` sets GRADBUS_COMPRESSION and GRADBUS_MODE to; "" leaves them as they are.
struct PolicyVariables {
  std::string compression;
  std::string mode;
};
// Of its options --compression, --mode and --policy; the file goes with neither of the others.
Result<PolicyVariables> policy_variables(const std::string& compression, const std::string& mode,
                                         const std::string& policy_file);

}  // namespace gradbus
