#include "server/scheduling/codec_cost.h"

#include <array>
#include <iterator>
#include <vector>

#include "common/errors.h"
#include "common/policy/spec_options.h"

namespace gradbus::scheduling {
namespace {

// One row of the table. Times are nanoseconds per gradient byte on one core.
struct Row {
  std::string_view name;
  double ratio;
  double encode_ns;
  double decode_ns;
  Carrier carrier;
};

// Kernel times per f32 element, a quarter of them per byte, out of cache on one core of 2.5 GHz:
// fp16 0.52 ns, int8 (as QSGD) 0.56, signs with error feedback 0.83, top-k with a reused threshold
// 0.71, DGC 1.6. Decoding writes 4 bytes per element at the same rate. A selected value takes 8
// bytes: an f32 and a 32-bit index. Scattering it takes 7.3 ns.
constexpr Row kRows[] = {
    {"none", 1, 0, 0, Carrier::kAllReduce},
    {"fp16", 0.5, 0.13, 0.13, Carrier::kAllReduce},
    {"int8", 0.2505, 0.14, 0.14, Carrier::kOwners},
    {"qsgd", 0.2505, 0.14, 0.14, Carrier::kOwners},
    {"terngrad", 0.0630, 0.12, 0.12, Carrier::kOwners},
    {"efsignsgd", 0.0317, 0.21, 0.14, Carrier::kOwners},
    {"onebit", 0.0317, 0.21, 0.14, Carrier::kOwners},
    {"topk", 0.02, 0.18, 0.02, Carrier::kAllGather},
    {"dgc", 0.002, 0.40, 0.002, Carrier::kAllGather},
};

// A call wakes the agent's engine and walks its tables: 5 us.
constexpr double kCallUs = 5;
constexpr double kUsMax = 1e7;
constexpr double kNsMax = 1e4;

constexpr std::array<std::string_view, 3> kCarriers = {"all_reduce", "all_gather", "owners"};

std::vector<std::string> names() {
  std::vector<std::string> known;
  for (const Row& row : kRows) known.emplace_back(row.name);
  return known;
}

const Row* find_row(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return &row;
  return nullptr;
}

// The texts of the defaults must live while the options are read.
struct Defaults {
  explicit Defaults(const Row& row)
      : ratio(std::to_string(row.ratio)),
        encode_ns(std::to_string(row.encode_ns)),
        decode_ns(std::to_string(row.decode_ns)),
        call_us(row.ratio == 1 ? "0" : std::to_string(kCallUs)),
        carrier(kCarriers[static_cast<size_t>(row.carrier)]) {}
  std::string ratio;
  std::string encode_ns;
  std::string decode_ns;
  std::string call_us;
  std::string carrier;
};

SpecOption number(std::string_view name, std::string_view otherwise, double min, double max,
                  std::string_view sentence) {
  return {.name = name, .default_text = otherwise, .min = min, .max = max, .sentence = sentence};
}

SpecOption choice(std::string_view name, std::string_view otherwise,
                  std::vector<std::string_view> choices, std::string_view sentence) {
  return {
      .name = name, .default_text = otherwise, .choices = std::move(choices), .sentence = sentence};
}

std::vector<SpecOption> options_of(const Defaults& row) {
  return {
      number("ratio", row.ratio, 1e-6, 2, "payload bytes to gradient bytes"),
      number("encode_us", row.call_us, 0, kUsMax, "an encoding of no bytes"),
      number("encode_ns", row.encode_ns, 0, kNsMax, "a gradient byte encoded"),
      number("decode_us", row.call_us, 0, kUsMax, "a decoding of no bytes"),
      number("decode_ns", row.decode_ns, 0, kNsMax, "a gradient byte decoded"),
      choice("carrier", row.carrier, {kCarriers.begin(), kCarriers.end()}, "how payloads travel"),
      choice("runs_on", "agent", {"agent", "compute"}, "which stream codes")};
}

Carrier carrier_of(std::string_view name) {
  for (size_t i = 0; i < kCarriers.size(); ++i)
    if (kCarriers[i] == name) return static_cast<Carrier>(i);
  return Carrier::kAllReduce;
}

CodecCost cost_of(std::string_view name, const SpecOptions& options) {
  return {.name = std::string(name),
          .ratio = options.number("ratio"),
          .encode = {options.number("encode_us"), options.number("encode_ns")},
          .decode = {options.number("decode_us"), options.number("decode_ns")},
          .carrier = carrier_of(options.text("carrier")),
          .on_compute = options.text("runs_on") == "compute"};
}

Status unknown_codec(std::string_view name) {
  std::string list;
  for (const std::string& known : names()) list += (list.empty() ? "" : ", ") + known;
  return error("O910",
               "gradbus plan has no figures for the codec \"" + std::string(name.substr(0, 40)) +
                   "\"" + did_you_mean(name, names()),
               "take one of: " + list);
}

}  // namespace

double encode_us(const CodecCost& codec, double bytes, uint32_t nodes) {
  const double again = codec.carrier == Carrier::kOwners ? bytes / nodes : 0;
  return codec.encode.us(bytes + again);
}

double decode_us(const CodecCost& codec, double bytes, uint32_t nodes) {
  const double times = codec.carrier == Carrier::kAllReduce ? 1
                       : codec.carrier == Carrier::kOwners  ? 2
                                                            : nodes;
  return codec.decode.us(bytes * times);
}

double exchange_us(CollectiveKind kind, const CodecCost& codec, double bytes,
                   const Network& network) {
  const double payload = bytes * codec.ratio;
  if (codec.carrier == Carrier::kAllGather)
    return collective_us(CollectiveKind::kAllGather, payload * network.nodes, network);
  if (codec.carrier == Carrier::kAllReduce) return collective_us(kind, payload, network);
  Network sums = network;
  sums.gamma_ns = 0;  // that is decoding
  return collective_us(CollectiveKind::kReduceScatter, payload, sums) +
         collective_us(CollectiveKind::kAllGather, payload, sums);
}

Result<CodecCost> parse_codec_cost(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(':'));
  const Row* row = find_row(name);
  if (row == nullptr) return unknown_codec(name);
  const Defaults defaults(*row);
  const std::vector<SpecOption> options = options_of(defaults);
  std::vector<const SpecOption*> known;
  for (const SpecOption& option : options) known.push_back(&option);
  const std::string_view rest = name.size() < text.size() ? text.substr(name.size() + 1) : "";
  if (row->ratio == 1 && !rest.empty())
    return error("O910", "the codec none has no options, but it got \"" + std::string(rest) + "\"",
                 "name a codec that compresses");
  const Result<ReadOptions> read = read_spec_options(rest, known);
  if (!read.ok())
    return error("O910",
                 "codec \"" + std::string(text.substr(0, 80)) + "\": " + read.status().message());
  return cost_of(name, read.value().options);
}

}  // namespace gradbus::scheduling
