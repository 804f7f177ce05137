#include "worker_agent/control/pending_joins.h"

#include <algorithm>

#include "common/errors.h"
#include "common/user_name.h"
#include "common/utf8.h"
#include "data_plane/coordinator_plans.h"
#include "proto/control.h"

namespace gradbus {
namespace {

std::string user_text(uid_t uid) {
  const std::string name = local_user_name(uid);
  const std::string number = "uid " + std::to_string(uid);
  return name.empty() ? number : name + " (" + number + ")";
}

// How long a rank waits for the coordinator's answer. The coordinator answers at the start timeout,
// unless it stands still. The client itself waits for one second more.
Nanos patience_of(const JoinPacket& packet) {
  return static_cast<Nanos>(start_timeout_ms(packet.start_timeout_ms)) * kMillisecond + 2 * kSecond;
}

bool printable(const std::string& text) {
  for (const unsigned char c : text)
    if (c < 0x20 || c == 0x7f) return false;
  return !text.empty() && is_utf8(text);
}

bool is_joining(const AttachedClient& client) {
  return client.state == AttachedClient::State::kJoining;
}

// It may have come after one that died and had the same job and rank. So the number decides.
bool has_asked(const AttachedClient& client, const std::string& job, uint32_t rank, uint64_t join) {
  return is_joining(client) && client.job == job && client.rank == rank &&
         (join == 0 || client.number() == join);
}

}  // namespace

Status PendingJoins::check(const AttachedClient& client, const JoinPacket& packet) const {
  const std::string name = get_text(packet.job);
  if (!printable(name) || name.size() > kJobNameBytesMax)
    return error(
        "J401",
        "the job's name must have 1.." + std::to_string(kJobNameBytesMax) + " printable bytes",
        "set GRADBUS_JOB");
  if (packet.world_size < 1 || packet.world_size > kRanksMax)
    return error("J401", "job \"" + name + "\": world size " + std::to_string(packet.world_size) +
                             " is not in 1.." + std::to_string(kRanksMax));
  if (packet.rank < 0 || packet.rank >= packet.world_size)
    return error("J401", "job \"" + name + "\": rank " + std::to_string(packet.rank) +
                             " is not in 0.." + std::to_string(packet.world_size - 1));
  GRADBUS_RETURN_IF_ERROR(check_others(client, name, packet.rank));
  return coordinator_.connected() ? Status() : coordinator_.why_not_connected();
}

Status PendingJoins::check_others(const AttachedClient& client, const std::string& job,
                                  int64_t rank) const {
  for (const AttachedClient& other : clients_.all())
    if (&other != &client && other.job == job && other.rank == rank && is_joining(other))
      return error("J402", "job \"" + job + "\" already has rank " + std::to_string(rank) + ": " +
                               other.who() + " on node \"" + coordinator_.node() + "\"");
  for (const AttachedClient& other : clients_.all())
    if (&other != &client && other.job == job && other.uid() != client.uid() &&
        other.state != AttachedClient::State::kLeft)
      return error("J408", "job \"" + job + "\" belongs to " + user_text(other.uid()) +
                               "; refused " + user_text(client.uid()) +
                               ", who wants to join as rank " + std::to_string(rank) +
                               " on node \"" + coordinator_.node() + "\"");
  return {};
}

Status PendingJoins::ask(AttachedClient& client, const JoinPacket& packet, Nanos now) {
  GRADBUS_RETURN_IF_ERROR(check(client, packet));
  client.state = AttachedClient::State::kJoining;
  client.job = get_text(packet.job);
  client.rank = static_cast<uint32_t>(packet.rank);
  client.world_size = static_cast<uint32_t>(packet.world_size);
  client.deadline = now + patience_of(packet);
  v1::AgentMessage message;
  v1::JoinJob& join = *message.mutable_join_job();
  join.set_job(client.job);
  join.set_rank(client.rank);
  join.set_world_size(client.world_size);
  join.set_pid(static_cast<uint64_t>(packet.pid));
  join.set_start_timeout_ms(packet.start_timeout_ms);
  join.set_join(client.number());
  join.set_uid(client.uid());
  join.set_user(local_user_name(client.uid()));
  coordinator_.send(message);
  return {};
}

std::vector<AttachedClient*> PendingJoins::take(const v1::JobStarted& started,
                                                uint32_t agent_index) {
  std::vector<AttachedClient*> members;
  ptrdiff_t expected = 0;
  for (const v1::JobMember& member : started.members()) {
    if (member.agent_index() != agent_index) continue;
    ++expected;
    for (AttachedClient& client : clients_.all()) {
      if (!has_asked(client, started.job(), member.rank(), member.join())) continue;
      client.job_id = started.job_id();
      client.local_rank = member.local_rank();
      client.deadline = 0;
      members.push_back(&client);
    }
  }
  if (expected != std::ssize(members)) return {};
  std::ranges::sort(members, {}, &AttachedClient::local_rank);
  return members;
}

void PendingJoins::refuse(const v1::JoinRefused& refused) {
  for (AttachedClient& client : clients_.all())
    if (has_asked(client, refused.job(), refused.rank(), refused.join()))
      return client.refuse_join(status_from(refused.error()));
}

void PendingJoins::refuse_job(uint64_t job, const Status& why) {
  for (AttachedClient& client : clients_.all())
    if (is_joining(client) && client.job_id == job) client.refuse_join(why);
}

void PendingJoins::expire(AttachedClient& client) {
  client.refuse_join(error(
      "J404",
      "the coordinator at " + coordinator_.address() + " has neither started job \"" + client.job +
          "\" nor refused rank " + std::to_string(client.rank) + " within its start timeout",
      "gradbus status; if the coordinator does not answer, look at its machine"));
}

void PendingJoins::refuse_all(const Status& why) {
  for (AttachedClient& client : clients_.all())
    if (is_joining(client)) client.refuse_join(why);
}

}  // namespace gradbus
