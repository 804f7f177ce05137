// Whether the coordinator hears those who speak to it: it calls itself, over its own port.
//
// Under a flood of calls, gRPC's threads are busy with them, and heartbeats wait unread though the
// coordinator's loop turns in time. A call of its own waits as long as they do. While one waits,
// the coordinator counts nobody's silence (loop_clock.h). A call that fails has been answered, too.
//
// One call at a time. begin() and waits_since() are for the ticking thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
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
  Nanos waits_since() const { return state_->since.load(); }

 private:
  struct State {  // lives until gRPC has answered
    std::atomic<Nanos> since{0};
    grpc::ClientContext context;
    v1::ChallengeRequest request;
    v1::ChallengeReply reply;
  };
  std::unique_ptr<v1::Coordinator::Stub> stub_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace gradbus
