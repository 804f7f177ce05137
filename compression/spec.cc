#include "compression/spec.h"

#include <array>
#include <charconv>
#include <cmath>

#include "common/check.h"
#include "common/edit_distance.h"
#include "common/errors.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

// Whole numbers as such, others in the shortest form that reads back the same.
std::string number_text(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

std::string range_text(const CodecOption& option) {
  return "a " + std::string(option.whole ? "whole number" : "number") + " from " +
         number_text(option.min) + " to " + number_text(option.max);
}

std::string choices_text(const CodecOption& option) {
  std::string text;
  for (const std::string_view choice : option.choices)
    text += (text.empty() ? "" : ", ") + std::string(choice);
  return text;
}

std::string meant(std::string_view name, const std::vector<std::string>& known) {
  const std::string close = closest_name(name, known);
  return close.empty() ? "" : "; did you mean \"" + close + "\"?";
}

Status bad(std::string_view text, const std::string& what) {
  return error("O910", "compression \"" + std::string(text) + "\": " + what);
}

// The canonical text of a value of `option`, or what is wrong with it.
Result<std::string> check_value(const CodecOption& option, std::string_view value) {
  const auto wrong = [&](const std::string& wanted) {
    return Status(Code::kInvalid, "option " + std::string(option.name) + " is \"" +
                                      std::string(value) + "\", expected " + wanted);
  };
  if (!option.choices.empty()) {
    for (const std::string_view choice : option.choices)
      if (choice == value) return std::string(value);
    return wrong("one of " + choices_text(option));
  }
  double number = 0;
  const auto end = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole_text = end.ec == std::errc() && end.ptr == value.data() + value.size();
  const bool allowed = whole_text && number >= option.min && number <= option.max;
  if (!allowed || (option.whole && number != std::floor(number))) return wrong(range_text(option));
  return number_text(number);
}

std::vector<const CodecOption*> options_of(const CodecRow& row) {
  std::vector<const CodecOption*> options;
  for (const CodecOption& option : row.options) options.push_back(&option);
  for (const CodecOption& option : common_codec_options()) options.push_back(&option);
  return options;
}

std::vector<std::string> names_of(const std::vector<const CodecOption*>& options) {
  std::vector<std::string> names;
  for (const CodecOption* option : options) names.emplace_back(option->name);
  return names;
}

std::vector<std::string> codec_names() {
  std::vector<std::string> names;
  for (const CodecRow* row : codec_rows()) names.emplace_back(row->name);
  return names;
}

using Values = std::map<std::string, std::string, std::less<>>;

Status take_option(const std::vector<const CodecOption*>& options, std::string_view pair,
                   Values& values) {
  const size_t equals = pair.find('=');
  const std::string_view name = pair.substr(0, equals);
  for (const CodecOption* option : options) {
    if (option->name != name) continue;
    if (equals == std::string_view::npos)
      return {Code::kInvalid, "option " + std::string(name) + " has no value"};
    Result<std::string> value = check_value(*option, pair.substr(equals + 1));
    if (!value.ok()) return value.status();
    if (!values.emplace(name, value.take()).second)
      return {Code::kInvalid, "option " + std::string(name) + " is given twice"};
    return {};
  }
  return {Code::kInvalid,
          "no option \"" + std::string(name) + "\"" + meant(name, names_of(options))};
}

Status take_options(const CodecRow& row, std::string_view rest, Values& values) {
  const std::vector<const CodecOption*> options = options_of(row);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    GRADBUS_RETURN_IF_ERROR(take_option(options, rest.substr(0, comma), values));
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  return {};
}

// Only what differs from the defaults, by name.
std::string canonical_text(const CodecRow& row, const Values& values) {
  std::string text;
  for (const CodecOption* option : options_of(row)) {
    const auto given = values.find(option->name);
    if (given == values.end() || given->second == option->default_text) continue;
    text += (text.empty() ? ":" : ",") + given->first + "=" + given->second;
  }
  return std::string(row.name) + text;
}

}  // namespace

const std::string& CodecOptions::text(std::string_view name) const {
  const auto found = values_.find(name);
  GRADBUS_CHECK(found != values_.end());
  return found->second;
}

double CodecOptions::number(std::string_view name) const {
  const std::string& value = text(name);
  double number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number);
  return number;
}

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
       .sentence = "ef=dgc: local gradients are clipped to this L2 norm / sqrt(agents); 0: not"},
      {.name = "communicator",
       .default_text = "auto",
       .choices = {"auto", "allreduce", "allgather", "ps"},
       .sentence = "how payloads travel between agents; auto: the cheapest that fits"},
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
    return bad(text, "no codec \"" + std::string(name) + "\"" + meant(name, codec_names()));
  Values values;
  if (colon != std::string_view::npos)
    if (const Status status = take_options(*row, text.substr(colon + 1), values); !status.ok())
      return bad(text, status.message());
  CompressionSpec spec;
  spec.codec = row;
  spec.canonical = canonical_text(*row, values);
  for (const CodecOption* option : options_of(*row))
    values.emplace(option->name, option->default_text);
  spec.options = CodecOptions(std::move(values));
  return spec;
}

}  // namespace gradbus
