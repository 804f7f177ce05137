#include "worker_agent/control/coordinator_connection.h"

#include <algorithm>

#include "common/errors.h"
#include "common/log.h"
#include "data_plane/ended_links.h"
#include "proto/return_margin.h"

namespace gradbus {
namespace {

constexpr Nanos kBackoffMin = 100 * kMillisecond;
constexpr Nanos kBackoffMax = 1 * kSecond;
constexpr Nanos kPatience = 60 * kSecond;
constexpr Nanos kLeaseMax = 60 * kSecond;
constexpr Nanos kReportMargin = kReturnMargin + kShardLossDeadline;

}  // namespace

void CoordinatorConnection::say_hello() {
  next_hello_ = 0;
  v1::AgentMessage message;
  *message.mutable_hello() = hello_;
  stream_.reconnect(message);
}

void CoordinatorConnection::welcomed(const v1::Welcome& welcome, Nanos now) {
  agent_id_ = welcome.agent_id();
  incarnation_ = welcome.incarnation();
  heartbeat_every_ = std::max<Nanos>(welcome.heartbeat_ms(), 10) * kMillisecond;
  next_heartbeat_ = 0;
  connected_ = true;
  ++welcomes_;
  not_proven_ = {};
  warned_ = false;
  backoff_ = 0;
  const Nanos lease = std::min(Nanos{welcome.lease_ms()} * kMillisecond, kLeaseMax);
  if (gone_since_ != 0) reports_by_ = now + lease + kReportMargin;
  gone_since_ = 0;
  spdlog::info("coordinator {} knows this agent as \"{}\"", address_, node());
}

void CoordinatorConnection::ended(const std::string& why, Nanos now) {
  if (connected_ || !warned_)
    spdlog::warn("no connection to the coordinator {}: {}; trying again", address_, why);
  warned_ = true;
  connected_ = false;
  not_proven_ = why.starts_with("GB-C503") ? Status(Code::kPermission, why) : Status();
  backoff_ = std::clamp(backoff_ * 2, kBackoffMin, kBackoffMax);
  next_hello_ = now + backoff_;
  if (gone_since_ == 0) gone_since_ = now;
  reports_by_ = gone_since_ + kPatience + kReportMargin;
}

Status CoordinatorConnection::gone() const {
  return error("C501", "the coordinator " + address_ + " is gone");
}

Status CoordinatorConnection::why_not_connected() const {
  if (!not_proven_.ok()) return not_proven_;
  return error("C501", "agent \"" + node() + "\" has no connection to the coordinator " + address_);
}

bool CoordinatorConnection::may_return(Nanos now) const {
  return gone_since_ == 0 || now - gone_since_ < kPatience;
}

Status CoordinatorConnection::given_up() const {
  return error("C501", "the coordinator " + address_ + " is gone for more than " +
                           std::to_string(kPatience / kSecond) + " s");
}

void CoordinatorConnection::drained(const v1::NodeDrained& drained) {
  *hello_.mutable_drained() = drained;
  spdlog::info("{}",
               drained.drained() ? "takes no new jobs: " + drained.reason() : "takes jobs again");
}

void CoordinatorConnection::send_heartbeat(const v1::AgentMessage& heartbeat, Nanos now) {
  next_heartbeat_ = now + heartbeat_every_;
  send(heartbeat);
}

}  // namespace gradbus
