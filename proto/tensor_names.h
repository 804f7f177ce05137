// The tensors of a named operation whose blocks have any length: "loss#len" for the lengths, and
// "loss#blocks4096" for blocks of up to 4096 elements. Messages show the operation's name.
#pragma once

#include <string>
#include <string_view>

namespace gradbus {

inline constexpr std::string_view kLengthsSuffix = "#len";
inline constexpr std::string_view kBlocksSuffix = "#blocks";

// "loss" of "loss", "loss#len" and "loss#blocks4096".
constexpr std::string_view shown_name(std::string_view tensor) {
  if (tensor.ends_with(kLengthsSuffix))
    return tensor.substr(0, tensor.size() - kLengthsSuffix.size());
  const size_t blocks = tensor.rfind(kBlocksSuffix);
  if (blocks == std::string_view::npos) return tensor;
  const std::string_view number = tensor.substr(blocks + kBlocksSuffix.size());
  const bool is_number = !number.empty() && number.find_first_not_of("0123456789") == number.npos;
  return is_number ? tensor.substr(0, blocks) : tensor;
}

}  // namespace gradbus
