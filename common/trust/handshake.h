// How two programs prove to each other that they know the cluster token, without sending it.
//
//   caller                                    coordinator
//   Challenge(n)               ------------>
//                              <------------  m, HMAC(token, "coordinator", n, m)
//   call, with metadata        ------------>  checks that m is its own, fresh and not used before
//   n, m, HMAC(token, "caller", method, request, n, m)
//
// n is 32 random bytes of the caller, so a coordinator's proof cannot be used again. m holds the
// time, random bytes and a code that only this coordinator can make: it keeps nothing for a caller
// that has not proven the token, so a flood of challenges costs it no memory. The proof holds the
// method and the request, so it is good for one call only. Whoever can change the traffic of a
// stream can still change what follows: nothing is encrypted.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/clock.h"
#include "common/status.h"
#include "common/trust/secret.h"

namespace gradbus {

inline constexpr char kProofKey[] = "gradbus-proof-bin";  // of gRPC's metadata
inline constexpr Nanos kNonceLife = 10 * kSecond;
inline constexpr size_t kUsedNoncesMax = 1u << 16;

// The caller's side of one call.
class CallProof {
 public:
  explicit CallProof(const Secret& token);

  const std::string& nonce() const { return nonce_; }

  // False: the other side does not know the token, so it must not get the call.
  bool coordinator_knows(std::string_view nonce, std::string_view proof) const;

  // The value of kProofKey for a call of `method` with the serialized `request` ("": a stream).
  std::string metadata(std::string_view nonce, std::string_view method,
                       std::string_view request) const;

 private:
  Secret token_;
  std::string nonce_;
};

// The coordinator's side. Any thread.
class TokenVerifier {
 public:
  explicit TokenVerifier(const Secret& token);

  struct Challenge {
    std::string nonce;
    std::string proof;
  };
  Challenge challenge(std::string_view caller_nonce, Nanos now) const;

  // "" for a call whose proof is right; else what is wrong with it.
  std::string why_refused(std::string_view metadata, std::string_view method,
                          std::string_view request, Nanos now);

 private:
  std::string make_nonce(Nanos now) const;
  bool is_own(std::string_view nonce) const;
  // False: used before, or too many calls within kNonceLife.
  bool use(std::string_view nonce, Nanos now);

  const Secret token_;
  const Secret nonce_key_;  // for this process
  std::mutex mutex_;
  std::unordered_map<std::string, Nanos> used_;  // nonce -> when it expires
  Nanos swept_ = 0;
};

}  // namespace gradbus
