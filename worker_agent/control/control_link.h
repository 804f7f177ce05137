// The agent's stream to the coordinator. gRPC's threads run it. The conductor gets events in its
// mailbox and sends whole messages. It reopens an ended stream with back-off (reconnect()), so all
// timing is in one place.
//
// With a cluster token, each stream begins with a challenge. Coordinator and agent prove the token
// to each other (common/trust/handshake.h). Nothing is sent to a coordinator without the proof.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/trust/secret.h"
#include "data_plane/mailbox.h"
#include "gradbus/v1/coordinator.grpc.pb.h"
#include "worker_agent/control/coordinator_stream.h"

namespace gradbus {

struct ControlEvent {
  bool ended = false;  // the stream ended; `why` is gRPC's reason
  std::string why;
  v1::CoordinatorMessage message;
};

class ControlLink final : public CoordinatorStream {
 public:
  ControlLink(std::string coordinator, const std::optional<Secret>& token);
  ~ControlLink() override { close(); }
  // Says goodbye and ends the stream. Nothing can be sent afterwards.
  void close();

  Mailbox<ControlEvent>& events() { return events_; }

  // For streams that are opened from now on; the current one continues.
  void set_token(const Secret& token) { token_ = token; }
  void reconnect(const v1::AgentMessage& hello) override;
  bool send(const v1::AgentMessage& message) override;
  size_t unsent() override;

 private:
  class Stream;
  const std::string coordinator_;
  std::optional<Secret> token_;
  Mailbox<ControlEvent> events_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
  std::mutex lock_;
  std::shared_ptr<Stream> stream_;
};

}  // namespace gradbus
