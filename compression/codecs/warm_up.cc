#include "compression/codecs/warm_up.h"

#include <algorithm>
#include <cmath>

namespace gradbus {

double WarmUp::ratio_in(uint64_t round) const {
  if (round > rounds || rounds == 0) return ratio;
  const uint64_t stage = (std::max<uint64_t>(round, 1) - 1) * stages / rounds;
  const double c =
      coefficient > 0 ? coefficient : std::pow(ratio, 1 / (static_cast<double>(stages) + 1));
  double part = c;
  for (uint64_t e = 0; e < stage; ++e) part *= c;
  return std::max(part, ratio);
}

std::vector<CodecOption> warm_up_options() {
  return {{.name = "warmup",
           .default_text = "0",
           .min = 0,
           .max = 1e15,
           .sentence = "rounds in which more is sent at first, all stages together; with epoch: "
                       "epochs, a stage each",
           .whole = true},
          {.name = "epoch",
           .default_text = "0",
           .min = 0,
           .max = 1e15,
           .sentence = "rounds of an epoch, which warmup then counts",
           .whole = true},
          {.name = "stages",
           .default_text = "4",
           .min = 1,
           .max = 1000,
           .sentence = "of the warm-up: stage e, from 0, sends max(c^(e+1), ratio)",
           .whole = true},
          {.name = "c",
           .default_text = "0.25",
           .min = 0,
           .max = 1,
           .sentence = "of the warm-up; 0: ratio^(1/(stages+1))"}};
}

WarmUp warm_up(const CodecOptions& options) {
  const auto whole = [&](const char* name) { return static_cast<uint64_t>(options.number(name)); };
  WarmUp found{.ratio = options.number("ratio"),
               .coefficient = options.number("c"),
               .rounds = whole("warmup"),
               .stages = whole("stages")};
  if (const uint64_t epoch = whole("epoch"); epoch > 0 && found.rounds > 0) {
    found.stages = found.rounds;
    found.rounds *= epoch;
  }
  return found;
}

}  // namespace gradbus
