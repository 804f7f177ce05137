#include "compression/codecs/blocktopk.h"
#include "compression/codecs/powersgd.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

CodecOption rank_option() {
  return {.name = "rank",
          .default_text = "2",
          .min = 1,
          .max = 64,
          .sentence = "columns of the two matrices that are sent",
          .whole = true};
}

std::vector<CodecOption> block_options() {
  return {{.name = "ratio",
           .default_text = "0.01",
           .min = 1e-6,
           .max = 1,
           .sentence = "of the blocks are sent, at least one"},
          {.name = "block",
           .default_text = "1024",
           .min = 16,
           .max = 1048576,
           .sentence = "elements that are sent together or not",
           .whole = true},
          {.name = "values",
           .default_text = "fp32",
           .choices = {"fp32", "fp16"},
           .sentence = "how elements are sent"}};
}

std::unique_ptr<LinearCodec> make_powersgd(const CodecOptions& options, const CodecShape& shape) {
  return std::make_unique<PowerSgd>(static_cast<size_t>(options.number("rank")), shape);
}

std::unique_ptr<LinearCodec> make_blocktopk(const CodecOptions& options, const CodecShape& shape) {
  return std::make_unique<BlockTopK>(shape.count_max, static_cast<size_t>(options.number("block")),
                                     options.number("ratio"),
                                     options.text("values") == "fp16" ? DType::kF16 : DType::kF32);
}

}  // namespace

std::span<const CodecRow> sketch_codecs() {
  static const std::vector<CodecRow> rows = {
      {.id = CodecId::kBlockTopK,
       .name = "blocktopk",
       .sentence = "the blocks with the largest summed norms (Sun et al. 2019)",
       .traits = {.selects = true, .wants_feedback = true, .whole_partition = true},
       .options = block_options(),
       .make_linear = make_blocktopk},
      {.id = CodecId::kPowerSgd,
       .name = "powersgd",
       .sentence = "two thin matrices whose product is near the tensor (Vogels et al. 2019)",
       .traits = {.wants_feedback = true,
                  .whole_partition = true,
                  .needs_matrix = true,
                  .has_state = true},
       .options = {rank_option()},
       .make_linear = make_powersgd},
  };
  return rows;
}

}  // namespace gradbus
