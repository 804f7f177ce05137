// Detects whether the coordinator reads its messages: it calls itself over its own port.
//
// Under a flood of calls, gRPC's threads are busy and heartbeats wait unread, although the
// coordinator's loop turns in time. A call to itself waits as long as they do. While such a call
// waits, the coordinator counts no agent as silent (loop_clock.h). A failed call counts as
// answered.
//
// One call at a time. Only the tick thread calls begin() and waits_since(). gRPC owns a call and
// its memory until the call has ended. The channel outlives the last call.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "common/clock.h"
#include "gradbus/v1/coordinator.grpc.pb.h"

namespace gradbus {

class SelfCall {
 public:
  static constexpr std::chrono::seconds kDeadline{10};

  explicit SelfCall(const std::string& address);
  ~SelfCall();

  // A new call, unless the last one is still under way.
  void begin(Nanos now);
  // 0: none is under way.
  Nanos waits_since() const { return call_.expired() ? 0 : since_; }

 private:
  struct Call {
    grpc::ClientContext context;
    v1::ChallengeRequest request;
    v1::ChallengeReply reply;
  };
  std::unique_ptr<v1::Coordinator::Stub> stub_;
  std::weak_ptr<Call> call_;
  Nanos since_ = 0;
};

}  // namespace gradbus
