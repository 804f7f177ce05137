// What `gradbus status` shows, made from the coordinator's reply. Pure.
#pragma once

#include <string>

#include "gradbus/v1/coordinator.pb.h"

namespace gradbus {

// An agent that has been silent this long is not well (the coordinator's lease is of this order).
inline constexpr uint64_t kSilentMsMax = 3'000;

// Tables of at most 80 columns; `address` is the coordinator's.
std::string status_text(const v1::StatusReply& reply, const std::string& address);

// The same as one JSON object, keys as in coordinator.proto, plus "healthy" and "coordinator".
std::string status_json(const v1::StatusReply& reply, const std::string& address);

// False when an agent is silent, a job has failed, a rank is lost or somebody stalls.
bool is_healthy(const v1::StatusReply& reply);

}  // namespace gradbus
