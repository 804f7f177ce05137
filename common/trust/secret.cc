#include "common/trust/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "common/check.h"

namespace gradbus {

Secret random_secret() {
  Secret secret;
  GRADBUS_CHECK(RAND_bytes(secret.data(), static_cast<int>(secret.size())) == 1);
  return secret;
}

Secret hmac(const Secret& key, std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) {
    const uint64_t bytes = part.size();
    for (int shift = 0; shift < 64; shift += 8) text += static_cast<char>(bytes >> shift & 0xff);
    text += part;
  }
  Secret proof;
  unsigned int written = 0;
  const void* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                          reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                          proof.data(), &written);
  GRADBUS_CHECK(made != nullptr && written == proof.size());
  return proof;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string text_of(const Secret& secret) {
  return {reinterpret_cast<const char*>(secret.data()), secret.size()};
}

}  // namespace gradbus
