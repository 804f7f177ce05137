// Options of horovodrun that `gradbus run` takes, so that a command changes by one word.
//
// One table. An option that means something here becomes a variable of the ranks or a word of ssh.
// One that has nothing to do here is accepted, with a sentence. One that would be a false promise
// is refused. Pure.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "cli/options/run_options.h"
#include "common/status.h"

namespace gradbus {

enum class HorovodUse {
  kFusion,   // a variable, in bytes
  kTuning,   // a variable: `text` is its name, and ranks check the number
  kSsh,      // words of the command that reaches other hosts
  kNothing,  // accepted: `text` says why nothing is to do
  kRefused,  // `text` says what to do instead
};

struct HorovodOption {
  const char* name;  // "--cycle-time-ms"
  bool has_value;
  HorovodUse use;
  const char* text;
};

std::span<const HorovodOption> horovod_options();

// What --help says of it; "" for an option that does nothing here or is refused.
std::string help_of(const HorovodOption& option);

// What was given, by name; "" for an option without a value.
using GivenHorovodOptions = std::map<std::string, std::string>;

// Applies them to `options`, and adds a sentence for each that does nothing. GB-H200 for one that
// is refused.
Status apply_horovod_options(const GivenHorovodOptions& given, RunOptions* options,
                             std::vector<std::string>* sentences);

}  // namespace gradbus
