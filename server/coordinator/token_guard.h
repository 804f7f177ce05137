// Lets only calls through that prove the cluster token (common/trust/handshake.h). Any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/trust/handshake.h"
#include "gradbus/v1/coordinator.pb.h"

namespace gradbus {

class TokenGuard {
 public:
  // Without a token every call passes.
  explicit TokenGuard(const std::optional<Secret>& token);

  v1::ChallengeReply challenge(const v1::ChallengeRequest& request) const;

  // OK; or UNAUTHENTICATED with a sentence for the caller, and at most one line a second in the
  // log. `request`: serialized; "" for a stream.
  grpc::Status check(const grpc::CallbackServerContext& context, const char* method,
                     std::string_view request);

 private:
  void log_refusal(const std::string& peer, const char* method, const std::string& why);

  std::optional<TokenVerifier> verifier_;
  std::mutex mutex_;
  Nanos logged_ = 0;
  uint64_t unlogged_ = 0;
};

}  // namespace gradbus
