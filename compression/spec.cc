#include "compression/spec.h"

#include "common/errors.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

Status bad(std::string_view text, const std::string& what) {
  return error("O910", "compression \"" + std::string(text) + "\": " + what);
}

std::vector<const CodecOption*> known_options_of(const CodecRow& row) {
  std::vector<const CodecOption*> options;
  for (const CodecOption& option : row.options) options.push_back(&option);
  for (const CodecOption& option : common_codec_options()) options.push_back(&option);
  return options;
}

std::vector<std::string> codec_names() {
  std::vector<std::string> names;
  for (const CodecRow* row : codec_rows()) names.emplace_back(row->name);
  return names;
}

}  // namespace

bool CompressionSpec::none() const { return codec == nullptr || codec->id == CodecId::kDense; }

namespace {

constexpr std::string_view kCommunicators[] = {"auto", "allreduce", "allgather", "ps"};

}  // namespace

std::string_view communicator_name(Communicator communicator) {
  return kCommunicators[static_cast<size_t>(communicator)];
}

Communicator find_communicator(std::string_view name) {
  for (size_t i = 0; i < std::size(kCommunicators); ++i)
    if (kCommunicators[i] == name) return static_cast<Communicator>(i);
  return Communicator::kAuto;
}

Communicator CompressionSpec::communicator() const {
  return find_communicator(options.text("communicator"));
}

std::span<const CodecOption> common_codec_options() {
  static const std::vector<CodecOption> options = {
      {.name = "ef",
       .default_text = "auto",
       .choices = {"auto", "none", "residual", "dgc"},
       .sentence = "memory: what was not sent is kept (residual), with momentum (dgc); auto: "
                   "residual for biased codecs, dgc for dgc"},
      {.name = "decay",
       .default_text = "1",
       .min = 0,
       .max = 1,
       .sentence = "of the residual per round; below 1 gradient is lost"},
      {.name = "momentum",
       .default_text = "0.9",
       .min = 0,
       .max = 1,
       .sentence = "ef=dgc: momentum correction; turn the optimizer's momentum off"},
      {.name = "nesterov",
       .default_text = "no",
       .choices = {"no", "yes"},
       .sentence = "ef=dgc: Nesterov's form of the momentum"},
      {.name = "masking",
       .default_text = "yes",
       .choices = {"no", "yes"},
       .sentence = "ef=dgc: momentum factor masking, no momentum where an element was sent"},
      {.name = "clip",
       .default_text = "0",
       .min = 0,
       .max = 1e30,
       .sentence =
           "ef=dgc: the sum of a node's gradients is clipped to this L2 norm / sqrt(agents), "
           "partition by partition; 0: not"},
      {.name = "communicator",
       .default_text = "auto",
       .choices = {"auto", "allreduce", "allgather", "ps"},
       .sentence = "how payloads travel between agents; auto: the cheapest that fits"},
      {.name = "entropy",
       .default_text = "none",
       .choices = {"none", "zstd"},
       .sentence = "payloads are coded once more where that makes them smaller; they cannot be "
                   "summed on their way then"},
      {.name = "nan",
       .default_text = "pass",
       .choices = {"pass", "stop"},
       .sentence = "a NaN or Inf reaches the result (pass), or ends the job naming rank, tensor "
                   "and element (stop)"},
      {.name = "fidelity",
       .default_text = "0",
       .min = 0,
       .max = 1e9,
       .sentence = "every so many rounds a part is exchanged dense too and compared: gradbus "
                   "status --json; 0: never",
       .whole = true},
  };
  return options;
}

std::string canonical_compression(std::string_view text) {
  const Result<CompressionSpec> parsed = parse_compression(text);
  if (!parsed.ok()) return std::string(text);
  return parsed.value().none() ? "" : parsed.value().canonical;
}

Result<CompressionSpec> parse_compression(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const CodecRow* row = find_codec(name);
  if (row == nullptr)
    return bad(text, "no codec \"" + std::string(name) + "\"" + did_you_mean(name, codec_names()));
  const std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  Result<ReadOptions> read = read_spec_options(rest, known_options_of(*row));
  if (!read.ok()) return bad(text, read.status().message());
  CompressionSpec spec;
  spec.codec = row;
  spec.options = read.value().options;
  spec.canonical = name;
  if (!read.value().canonical.empty()) spec.canonical += ":" + read.value().canonical;
  return spec;
}

}  // namespace gradbus
