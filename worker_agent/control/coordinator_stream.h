// The conductor's interface to its coordinator stream. ControlLink implements it; tests record the
// messages. Conductor thread only.
#pragma once

#include <cstddef>

#include "gradbus/v1/coordinator.pb.h"

namespace gradbus {

class CoordinatorStream {
 public:
  virtual ~CoordinatorStream() = default;
  // Opens a stream whose first message is `hello`. If that fails, an event reports the end.
  virtual void reconnect(const v1::AgentMessage& hello) = 0;
  // Returns false when there is no stream.
  virtual bool send(const v1::AgentMessage& message) = 0;
  // Messages that wait to be sent.
  virtual size_t unsent() = 0;
};

}  // namespace gradbus
