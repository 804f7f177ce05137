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

#include "common/compression_policy.h"

namespace gradbus {

// F101 (unknown key, with "did you mean"), F102 (not TOML, not readable), O910 (a rule that is
// wrong); all name file and line.
Result<CompressionPolicy> read_policy_file(const std::string& path);

// Of `gradbus run`'s options, of which one may be given: what GRADBUS_COMPRESSION is set to.
Result<std::string> compression_variable(const std::string& compression,
                                         const std::string& policy_file);

}  // namespace gradbus
