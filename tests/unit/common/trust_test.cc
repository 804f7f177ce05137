// Tests of proofs of the cluster token: each is valid for one call, for a limited time, and only
// between holders of the token.
#include <gtest/gtest.h>

#include "common/trust/handshake.h"
#include "common/trust/secret.h"

namespace gradbus {
namespace {

constexpr Nanos kNow = 1000 * kSecond;

class Handshake : public testing::Test {
 protected:
  // The metadata of a call from an honest caller.
  std::string prove(const Secret& known, const std::string& method = "Attach",
                    const std::string& request = "", Nanos now = kNow) {
    const CallProof proof(known);
    const TokenVerifier::Challenge challenge = verifier.challenge(proof.nonce(), now);
    return proof.metadata(challenge.nonce, method, request);
  }

  Secret token = random_secret();
  TokenVerifier verifier{token};
};

TEST(Hmac, TellsPartsAndKeysApart) {
  EXPECT_NE(hmac({}, {"a", "bc"}), hmac({}, {"ab", "c"}));
  EXPECT_NE(hmac({}, {"a"}), hmac({}, {"a", ""}));
  EXPECT_NE(hmac({}, {"a"}), hmac(Secret{1}, {"a"}));
  EXPECT_EQ(hmac(Secret{1}, {"a", "b"}), hmac(Secret{1}, {"a", "b"}));
}

TEST(RandomSecret, IsNotTheSameTwice) { EXPECT_NE(random_secret(), random_secret()); }

TEST(ConstantTime, ComparesLengthsAndBytes) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
}

TEST_F(Handshake, ACallWithTheTokenPasses) {
  EXPECT_EQ(verifier.why_refused(prove(token), "Attach", "", kNow), "");
  EXPECT_EQ(verifier.why_refused(prove(token, "StopJob", "job"), "StopJob", "job", kNow), "");
}

TEST_F(Handshake, AProofIsGoodOnce) {
  const std::string proof = prove(token);
  EXPECT_EQ(verifier.why_refused(proof, "Attach", "", kNow), "");
  for (int again = 0; again < 3; ++again)
    EXPECT_NE(verifier.why_refused(proof, "Attach", "", kNow + again * kSecond), "");
  EXPECT_NE(verifier.why_refused(proof, "Attach", "", kNow + 3600 * kSecond), "");
}

TEST_F(Handshake, AProofIsOfOneMethodAndOneRequest) {
  EXPECT_NE(verifier.why_refused(prove(token, "Status"), "Attach", "", kNow), "");
  EXPECT_NE(verifier.why_refused(prove(token, "StopJob", "a"), "StopJob", "b", kNow), "");
}

TEST_F(Handshake, AProofGetsOld) {
  const std::string proof = prove(token);
  EXPECT_NE(verifier.why_refused(proof, "Attach", "", kNow + kNonceLife + 1), "");
  EXPECT_EQ(verifier.why_refused(proof, "Attach", "", kNow + kNonceLife), "");
}

TEST_F(Handshake, AnotherTokenOrCoordinatorIsRefused) {
  EXPECT_NE(verifier.why_refused(prove(random_secret()), "Attach", "", kNow), "");
  TokenVerifier restarted(token);  // has no nonces of the first verifier
  EXPECT_NE(restarted.why_refused(prove(token), "Attach", "", kNow), "");
}

TEST_F(Handshake, EveryBitOfTheMetadataCounts) {
  const std::string proof = prove(token);
  for (size_t byte = 0; byte < proof.size(); ++byte)
    for (const int bit : {0, 7}) {
      std::string other = proof;
      other[byte] = static_cast<char>(other[byte] ^ (1 << bit));
      EXPECT_NE(verifier.why_refused(other, "Attach", "", kNow), "") << byte;
    }
  for (const size_t bytes : {size_t{0}, size_t{1}, proof.size() - 1})
    EXPECT_NE(verifier.why_refused(proof.substr(0, bytes), "Attach", "", kNow), "");
  EXPECT_NE(verifier.why_refused(proof + "x", "Attach", "", kNow), "");
  EXPECT_EQ(verifier.why_refused(proof, "Attach", "", kNow), "") << "none of these has used it up";
}

TEST_F(Handshake, TheCallerTellsAFalseCoordinator) {
  const CallProof caller(token);
  const auto honest = verifier.challenge(caller.nonce(), kNow);
  EXPECT_TRUE(caller.coordinator_knows(honest.nonce, honest.proof));
  const auto guessed = TokenVerifier(random_secret()).challenge(caller.nonce(), kNow);
  EXPECT_FALSE(caller.coordinator_knows(guessed.nonce, guessed.proof));
  const auto replayed = verifier.challenge(CallProof(token).nonce(), kNow);
  EXPECT_FALSE(caller.coordinator_knows(replayed.nonce, replayed.proof));
  EXPECT_FALSE(caller.coordinator_knows("", ""));
}

TEST_F(Handshake, CallersWithTheTokenAreLimitedButNotForLong) {
  for (size_t call = 0; call < kUsedNoncesMax; ++call)
    ASSERT_EQ(verifier.why_refused(prove(token), "Attach", "", kNow), "") << call;
  EXPECT_NE(verifier.why_refused(prove(token), "Attach", "", kNow), "");
  const Nanos later = kNow + kNonceLife + 1;
  EXPECT_EQ(verifier.why_refused(prove(token, "Attach", "", later), "Attach", "", later), "");
}

}  // namespace
}  // namespace gradbus
