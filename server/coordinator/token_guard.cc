#include "server/coordinator/token_guard.h"

#include "common/errors.h"
#include "common/log.h"

namespace gradbus {
namespace {

constexpr size_t kCallerNonceBytes = kSecretBytes;

}  // namespace

TokenGuard::TokenGuard(const std::optional<Secret>& token) {
  if (token) verifier_ = std::make_shared<TokenVerifier>(*token);
}

void TokenGuard::set_token(const Secret& token) {
  auto verifier = std::make_shared<TokenVerifier>(token);
  const std::lock_guard lock(mutex_);
  verifier_.swap(verifier);
}

std::shared_ptr<TokenVerifier> TokenGuard::verifier() const {
  const std::lock_guard lock(mutex_);
  return verifier_;
}

v1::ChallengeReply TokenGuard::challenge(const v1::ChallengeRequest& request) const {
  v1::ChallengeReply reply;
  const std::shared_ptr<TokenVerifier> verifier = this->verifier();
  if (verifier == nullptr || request.nonce().size() != kCallerNonceBytes) return reply;
  TokenVerifier::Challenge made = verifier->challenge(request.nonce(), monotonic_now());
  reply.set_nonce(std::move(made.nonce));
  reply.set_proof(std::move(made.proof));
  return reply;
}

grpc::Status TokenGuard::check(const grpc::CallbackServerContext& context, const char* method,
                               std::string_view request) {
  const std::shared_ptr<TokenVerifier> verifier = this->verifier();
  if (verifier == nullptr) return grpc::Status::OK;
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kProofKey);
  const std::string_view proof = found == metadata.end()
                                     ? std::string_view()
                                     : std::string_view(found->second.data(), found->second.size());
  const std::string why = verifier->why_refused(proof, method, request, monotonic_now());
  if (why.empty()) return grpc::Status::OK;
  log_refusal(context.peer(), method, why);
  const std::string what = "the coordinator refused the call " + std::string(method) + ": " + why;
  return {grpc::StatusCode::UNAUTHENTICATED, error("C503", what).message()};
}

void TokenGuard::log_refusal(const std::string& peer, const char* method, const std::string& why) {
  std::string more;
  {
    const std::lock_guard lock(mutex_);
    if (!refusals_.may_write(monotonic_now())) return;
    more = refusals_.more();
  }
  spdlog::warn("GB-C503 refused {} from {}: {}{}", method, peer, why, more);
}

}  // namespace gradbus
