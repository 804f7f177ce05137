#include "compression/codecs/sign_codec.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

CodecOption step_option() {
  return {
      .name = "step",
      .default_text = "1",
      .min = 1e-30,
      .max = 1e30,
      .sentence =
          "what a vote counts, plus or minus. An average is at most this, and a majority that an "
          "owner or shard has counted (communicator=ps) exactly this"};
}

CodecOption beta_option() {
  return {.name = "beta",
          .default_text = "0.9",
          .min = 0,
          .max = 0.9999,
          .sentence = "of the momentum; turn the optimizer's momentum off"};
}

CodecOption block_option() {
  return {.name = "block",
          .default_text = "1024",
          .min = 0,
          .max = 2147483648,
          .sentence =
              "elements that share a mean, rounded up to a multiple of 64; 0: all of the "
              "partition, which takes two passes over memory",
          .whole = true};
}

float number(const CodecOptions& options, std::string_view name) {
  return static_cast<float>(options.number(name));
}

std::unique_ptr<Codec> make_signsgd(const CodecOptions& options, const CodecShape&) {
  return std::make_unique<SignCodec>(CodecId::kSignSgd, SignCodec::Level::kStep, kVoteBlockElements,
                                     number(options, "step"));
}

template <CodecId kId, SignCodec::Level kLevel>
std::unique_ptr<Codec> make_means(const CodecOptions& options, const CodecShape&) {
  return std::make_unique<SignCodec>(kId, kLevel, static_cast<size_t>(options.number("block")), 0);
}

std::unique_ptr<Codec> make_signum(const CodecOptions& options, const CodecShape& shape) {
  return std::make_unique<Signum>(number(options, "beta"), number(options, "step"),
                                  shape.count_max);
}

}  // namespace

std::span<const CodecRow> sign_codecs() {
  static const std::vector<CodecRow> rows = {
      {.id = CodecId::kSignSgd,
       .name = "signsgd",
       .sentence = "the sign of each element, a vote (Bernstein et al. 2018)",
       .traits = {.votes = true},
       .options = {step_option()},
       .make = make_signsgd},
      {.id = CodecId::kEfSignSgd,
       .name = "efsignsgd",
       .sentence = "signs and the mean magnitude of each block (Karimireddy et al. 2019)",
       .traits = {.wants_feedback = true},
       .options = {block_option()},
       .contracts = always_contracts,
       .make = make_means<CodecId::kEfSignSgd, SignCodec::Level::kMean>},
      {.id = CodecId::kOneBit,
       .name = "onebit",
       .sentence = "signs, the mean of each block's negative elements and that of the others "
                   "(Seide et al. 2014)",
       .traits = {.wants_feedback = true},
       .options = {block_option()},
       .contracts = always_contracts,
       .make = make_means<CodecId::kOneBit, SignCodec::Level::kTwoMeans>},
      {.id = CodecId::kSignum,
       .name = "signum",
       .sentence = "the sign of each element's momentum, a vote (Bernstein et al. 2018)",
       .traits = {.votes = true, .has_state = true},
       .options = {beta_option(), step_option()},
       .owner = "signsgd",  // senders keep the momentum; the owner counts votes
       .make = make_signum},
  };
  return rows;
}

}  // namespace gradbus
