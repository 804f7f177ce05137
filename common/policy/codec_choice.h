// A compression that is chosen by measurement: "auto", or a list of codecs. Training decides for
// each bucket whether one of them, or dense exchange, makes its steps shorter.
//
//   auto                                  kUsualCodecs
//   auto:cosine=0.9,fp16,topk:ratio=0.1   these two, if they keep a cosine of 0.9
//   fp16,int8                             a list without `auto` is the same
//
// A part with '=' and without ':' in front of it is an option of the codec before it, so a single
// codec is no list. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace gradbus {

inline constexpr size_t kCodecsMax = 8;
// They are cheap to code, and with error feedback a training ends where dense does.
inline constexpr std::string_view kUsualCodecs = "fp16,int8,onebit";
// Of the angle between a compressed and a dense sum: signs have 0.8, 1 % by top-k has 0.3.
inline constexpr double kCosineMin = 0.5;

struct CodecChoice {
  std::vector<std::string> codecs;  // as they were given; "none" is always meant, and not in it
  double cosine_min = kCosineMin;
};

// Whether `text` leaves the choice to the training.
bool is_codec_choice(std::string_view text);

// GB-O910 for a wrong option of `auto`, too many codecs or none, and a codec whose steps have
// another scale than dense ones, or whose time cannot be predicted. Whether codecs are known is not
// checked.
Result<CodecChoice> parse_codec_choice(std::string_view text);

}  // namespace gradbus
