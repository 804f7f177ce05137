// The state of a cluster as JSON, for `gradbus status --json` and the web page. Pure.
//
// docs/reference/json.md lists the keys. A key is never changed, only added.
#pragma once

#include <string>

#include "gradbus/v1/coordinator.pb.h"

namespace gradbus {

// One object, keys as in coordinator.proto, plus "healthy" and "coordinator". One line.
std::string status_json(const v1::StatusReply& reply, const std::string& address);

// An array with an object for each event.
std::string events_json(const v1::EventsReply& reply);
// One object, one line.
std::string event_json(const v1::Event& event);

}  // namespace gradbus
