#include "common/policy/codec_choice.h"

#include <algorithm>

#include "common/errors.h"
#include "common/policy/spec_options.h"

namespace gradbus {
namespace {

constexpr std::string_view kAuto = "auto";

std::string_view name_of(std::string_view codec) { return codec.substr(0, codec.find(':')); }

// Cut in front of every part that is no option of the codec before it.
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t equals = part.find('=');
    if (!parts.empty() && equals != std::string_view::npos && part.find(':') > equals) {
      parts.back().append(",").append(part);
    } else {
      parts.emplace_back(part);
    }
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// Why training cannot choose the codec, and what to do instead; "" if it can. The Python package
// has the same rule (torch/_tuning/codec_choice.py).
std::string why_not_chosen(std::string_view codec) {
  const std::string_view name = name_of(codec);
  if (name == "powersgd" || name == "rows")
    return "looks at matrices, so its time cannot be predicted: leave it out, or use it alone";
  if (name == "signsgd" || name == "signum")
    return "sends signs without a magnitude, so its steps would be far longer or shorter than "
           "dense ones: leave it out, or use efsignsgd, or use it alone with a learning rate for "
           "it";
  const std::string options =
      "," + std::string(codec.substr(std::min(codec.size(), name.size() + 1)));
  const bool sets_memory = options.find(",ef=") != std::string::npos;
  const bool adds_momentum = (options + ",").find(",ef=dgc,") != std::string::npos;
  const bool usual_memory = !sets_memory || (options + ",").find(",ef=auto,") != std::string::npos;
  if (adds_momentum || (name == "dgc" && usual_memory))
    return "adds momentum to the gradients (ef=dgc), so its steps would be longer than dense ones: "
           "leave it out, or use ef=residual, or use it alone without momentum in the optimizer";
  return "";
}

}  // namespace

bool is_codec_choice(std::string_view text) {
  const std::vector<std::string> parts = parts_of(text);
  return parts.size() > 1 || name_of(parts.front()) == kAuto;
}

Result<CodecChoice> parse_codec_choice(std::string_view text) {
  std::vector<std::string> parts = parts_of(text);
  CodecChoice choice;
  if (name_of(parts.front()) == kAuto) {
    const SpecOption cosine{
        .name = "cosine", .default_text = "0.5", .min = 0, .max = 1, .choices = {}, .sentence = {}};
    const SpecOption* const known[] = {&cosine};
    const std::string_view given = parts.front();
    const Result<ReadOptions> read =
        read_spec_options(given.substr(std::min(given.size(), kAuto.size() + 1)), known);
    if (!read.ok())
      return error("O910", "compression \"" + std::string(text.substr(0, 80)) +
                               "\": " + read.status().message());
    choice.cosine_min = read.value().options.number("cosine");
    parts.erase(parts.begin());
    if (parts.empty()) parts = parts_of(kUsualCodecs);
  }
  for (std::string& part : parts)
    if (part != "none" && std::ranges::find(choice.codecs, part) == choice.codecs.end())
      choice.codecs.push_back(std::move(part));
  if (choice.codecs.empty() || choice.codecs.size() > kCodecsMax)
    return error("O910", "compression \"" + std::string(text.substr(0, 80)) + "\" names " +
                             std::to_string(choice.codecs.size()) + " codecs; 1 to " +
                             std::to_string(kCodecsMax) + " are allowed");
  for (const std::string& codec : choice.codecs)
    if (const std::string why = why_not_chosen(codec); !why.empty())
      return error("O910",
                   "compression \"" + std::string(text.substr(0, 80)) + "\": " + codec + " " + why);
  return choice;
}

}  // namespace gradbus
