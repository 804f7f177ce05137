#include "common/trust/handshake.h"

#include <cstring>

namespace gradbus {
namespace {

constexpr size_t kTimeBytes = 8;
constexpr size_t kRandomBytes = 16;
constexpr size_t kStampBytes = kTimeBytes + kRandomBytes;
constexpr size_t kNonceBytes = kStampBytes + kSecretBytes;
constexpr size_t kMetadataBytes = kSecretBytes + kNonceBytes + kSecretBytes;

Secret caller_proof(const Secret& token, std::string_view method, std::string_view request,
                    std::string_view caller_nonce, std::string_view nonce) {
  return hmac(token, {"gradbus 1 caller", method, request, caller_nonce, nonce});
}

Secret coordinator_proof(const Secret& token, std::string_view caller_nonce,
                         std::string_view nonce) {
  return hmac(token, {"gradbus 1 coordinator", caller_nonce, nonce});
}

Nanos time_of(std::string_view nonce) {
  Nanos time = 0;
  static_assert(sizeof(time) == kTimeBytes);
  std::memcpy(&time, nonce.data(), sizeof(time));
  return time;
}

}  // namespace

CallProof::CallProof(const Secret& token) : token_(token), nonce_(text_of(random_secret())) {}

bool CallProof::coordinator_knows(std::string_view nonce, std::string_view proof) const {
  return equal_in_constant_time(proof, text_of(coordinator_proof(token_, nonce_, nonce)));
}

std::string CallProof::metadata(std::string_view nonce, std::string_view method,
                                std::string_view request) const {
  const Secret proof = caller_proof(token_, method, request, nonce_, nonce);
  return nonce_ + std::string(nonce) + text_of(proof);
}

TokenVerifier::TokenVerifier(const Secret& token) : token_(token), nonce_key_(random_secret()) {}

std::string TokenVerifier::make_nonce(Nanos now) const {
  std::string stamp(sizeof(now), '\0');
  std::memcpy(stamp.data(), &now, sizeof(now));
  stamp += text_of(random_secret()).substr(0, kRandomBytes);
  return stamp + text_of(hmac(nonce_key_, {"nonce", stamp}));
}

bool TokenVerifier::is_own(std::string_view nonce) const {
  const Secret code = hmac(nonce_key_, {"nonce", nonce.substr(0, kStampBytes)});
  return equal_in_constant_time(nonce.substr(kStampBytes), text_of(code));
}

TokenVerifier::Challenge TokenVerifier::challenge(std::string_view caller_nonce, Nanos now) const {
  const std::string nonce = make_nonce(now);
  return {nonce, text_of(coordinator_proof(token_, caller_nonce, nonce))};
}

std::string TokenVerifier::why_refused(std::string_view metadata, std::string_view method,
                                       std::string_view request, Nanos now) {
  if (metadata.empty()) return "it has no proof of the cluster token";
  if (metadata.size() != kMetadataBytes) return "its proof of the cluster token has another form";
  const std::string_view caller_nonce = metadata.substr(0, kSecretBytes);
  const std::string_view nonce = metadata.substr(kSecretBytes, kNonceBytes);
  const std::string_view proof = metadata.substr(kSecretBytes + kNonceBytes);
  if (!is_own(nonce)) return "its proof answers no challenge of this coordinator";
  if (now - time_of(nonce) > kNonceLife) return "its proof of the cluster token is too old";
  const Secret right = caller_proof(token_, method, request, caller_nonce, nonce);
  if (!equal_in_constant_time(proof, text_of(right)))
    return "its proof was made with another cluster token";
  return use(nonce, now) ? "" : "its proof of the cluster token was used before";
}

bool TokenVerifier::use(std::string_view nonce, Nanos now) {
  const std::lock_guard lock(mutex_);
  if (now - swept_ > kSecond || used_.size() >= kUsedNoncesMax) {
    std::erase_if(used_, [now](const auto& entry) { return entry.second < now; });
    swept_ = now;
  }
  if (used_.size() >= kUsedNoncesMax) return false;
  return used_.try_emplace(std::string(nonce), now + kNonceLife).second;
}

}  // namespace gradbus
