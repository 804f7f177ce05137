// The registry rows of codecs that send a selection of elements.
#include <algorithm>
#include <iterator>

#include "compression/codecs/dgc.h"
#include "compression/codecs/randk.h"
#include "compression/codecs/threshold.h"
#include "compression/codecs/topk.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

CodecOption ratio(std::string_view default_text) {
  return {.name = "ratio",
          .default_text = default_text,
          .min = 1e-9,
          .max = 1,
          .sentence = "of the elements that are sent"};
}

CodecOption values() {
  return {.name = "values",
          .default_text = "f32",
          .choices = {"f32", "fp16", "bf16"},
          .sentence = "type of the values of payloads"};
}

bool always(const CodecOptions&) { return true; }

std::vector<CodecOption> with_warm_up(std::vector<CodecOption> options) {
  std::ranges::move(warm_up_options(), std::back_inserter(options));
  return options;
}

CodecRow topk_row() {
  return {.id = CodecId::kTopK,
          .name = "topk",
          .sentence = "the ratio of elements of largest magnitude, exactly",
          .traits = {.selects = true,
                     .wants_feedback = true,
                     .whole_partition = true,
                     .takes_momentum = true},
          .options = with_warm_up({ratio("0.01"), values()}),
          .contracts = always,
          .make = make_topk};
}

std::vector<CodecOption> dgc_options() {
  return {ratio("0.001"),
          {.name = "sample",
           .default_text = "0.01",
           .min = 0,
           .max = 1,
           .sentence = "of the elements, that the threshold is estimated from"},
          values()};
}

CodecRow dgc_row() {
  return {.id = CodecId::kDgc,
          .name = "dgc",
          .sentence =
              "about the ratio of elements of largest magnitude, by a sampled threshold, "
              "with momentum correction (Lin et al. 2018)",
          .traits = {.selects = true,
                     .wants_feedback = true,
                     .whole_partition = true,
                     .takes_momentum = true},
          .options = with_warm_up(dgc_options()),
          .contracts = always,
          .make = make_dgc};
}

CodecRow randk_row() {
  return {.id = CodecId::kRandK,
          .name = "randk",
          .sentence = "the ratio of elements, drawn at random (Stich et al. 2018)",
          .traits = {.unbiased = true, .selects = true},
          .options = {ratio("0.01"),
                      values(),
                      {.name = "scale",
                       .default_text = "auto",
                       .choices = {"auto", "yes", "no"},
                       .sentence = "values times 1 / ratio, so that their mean is unbiased; auto: "
                                   "unless there is error feedback"}},
          .contracts = [](const CodecOptions& options) { return options.text("scale") == "no"; },
          .make = make_randk,
          .make_linear = make_linear_randk};
}

CodecRow threshold_row() {
  return {.id = CodecId::kThreshold,
          .name = "threshold",
          .sentence = "elements of a magnitude and above",
          .traits = {.selects = true, .wants_feedback = true},
          .options = {{.name = "value",
                       .default_text = "0.001",
                       .min = 0,
                       .max = 1e30,
                       .sentence = "the smallest magnitude that is sent"},
                      values()},
          .contracts = always,
          .make = make_threshold};
}

}  // namespace

std::span<const CodecRow> sparse_codecs() {
  static const std::vector<CodecRow> rows = {topk_row(), dgc_row(), randk_row(), threshold_row()};
  return rows;
}

}  // namespace gradbus
