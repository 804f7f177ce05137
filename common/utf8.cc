#include "common/utf8.h"

#include <cstddef>
#include <cstdint>

namespace gradbus {
namespace {

// Bytes of the sequence that begins with `lead`; 0 when none does.
size_t sequence_bytes(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return 2;
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  return 0;
}

// The second byte's range depends on the first: no overlong form, no surrogate, nothing past
// U+10FFFF.
bool second_fits(unsigned char lead, unsigned char second) {
  switch (lead) {
    case 0xe0: return second >= 0xa0;
    case 0xed: return second <= 0x9f;
    case 0xf0: return second >= 0x90;
    case 0xf4: return second <= 0x8f;
    default: return true;
  }
}

// Bytes of the character at the front of `text`; 0: none is there.
size_t character_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const size_t bytes = sequence_bytes(lead);
  if (bytes == 0 || bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  return bytes > 1 && !second_fits(lead, static_cast<unsigned char>(text[1])) ? 0 : bytes;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string as_utf8(std::string text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = character_bytes(std::string_view(text).substr(at));
    if (bytes == 0) text[at] = '?';
    at += bytes == 0 ? 1 : bytes;
  }
  return text;
}

}  // namespace gradbus
