#include "common/trust/page_key.h"

namespace gradbus {
namespace {

constexpr size_t kKeyBytes = 16;  // 128 bits

}  // namespace

std::string page_key(const Secret& token) {
  constexpr char kDigits[] = "0123456789abcdef";
  const Secret proof = hmac(token, {"key of the web page"});
  std::string key;
  for (size_t i = 0; i < kKeyBytes; ++i) {
    key += kDigits[proof[i] >> 4];
    key += kDigits[proof[i] & 15];
  }
  return key;
}

}  // namespace gradbus
