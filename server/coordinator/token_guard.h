// Lets only calls through that prove the cluster token (common/trust/handshake.h). Any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/daemon/rare_lines.h"
#include "common/trust/handshake.h"
#include "gradbus/v1/coordinator.pb.h"

namespace gradbus {

class TokenGuard {
 public:
  // Without a token every call passes.
  explicit TokenGuard(const std::optional<Secret>& token);

  // From now on calls must prove this token. Open streams continue. Only with a token at the start.
  void set_token(const Secret& token);

  v1::ChallengeReply challenge(const v1::ChallengeRequest& request) const;

  // OK; or UNAUTHENTICATED with a sentence for the caller, and at most one line a second in the
  // log. `request`: serialized; "" for a stream.
  grpc::Status check(const grpc::CallbackServerContext& context, const char* method,
                     std::string_view request);

 private:
  std::shared_ptr<TokenVerifier> verifier() const;
  void log_refusal(const std::string& peer, const char* method, const std::string& why);

  mutable std::mutex mutex_;
  std::shared_ptr<TokenVerifier> verifier_;  // null: no token
  RareLines refusals_;
};

}  // namespace gradbus
