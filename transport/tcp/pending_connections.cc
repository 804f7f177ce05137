#include "transport/tcp/pending_connections.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace gradbus {

void PendingConnections::admit(std::unique_ptr<Stream> stream, std::string host, Nanos deadline,
                               Streams& leaving) {
  if (pending_.size() >= kPendingConnectionsMax) dismiss(least_wanted(), leaving);
  pending_.push_back({std::move(stream), std::move(host), deadline, std::nullopt});
}

// One that has sent nothing goes before one that has.
PendingConnections::Place PendingConnections::least_wanted() {
  std::map<std::string_view, size_t> of_host;
  for (const PendingConnection& pending : pending_) ++of_host[pending.host];
  const auto most =
      std::ranges::max_element(of_host, {}, [](const auto& entry) { return entry.second; });
  const auto is_theirs = [&](const PendingConnection& pending) {
    return pending.host == most->first;
  };
  const auto is_silent = [&](const PendingConnection& pending) {
    return is_theirs(pending) && !pending.greeting;
  };
  const Place silent = std::ranges::find_if(pending_, is_silent);
  return silent != pending_.end() ? silent : std::ranges::find_if(pending_, is_theirs);
}

std::optional<PendingConnections::PendingLink> PendingConnections::read_handshake(
    Stream& pending, Streams& leaving) {
  const auto place =
      std::find_if(pending_.begin(), pending_.end(),
                   [&](const PendingConnection& one) { return one.stream.get() == &pending; });
  if (place == pending_.end()) return std::nullopt;
  if (!welcome(*place)) {
    dismiss(place, leaving);
    return std::nullopt;
  }
  if (!place->greeting) return std::nullopt;
  return gather(*place->greeting);
}

// Returns false when the pending connection is not a Gradbus peer, or has gone.
bool PendingConnections::welcome(PendingConnection& pending) {
  Stream& stream = *pending.stream;
  if (pending.greeting)
    return !stream.hung_up;  // its hello is complete; only a hang-up matters now
  const IoResult result = stream.channel.read_greeting(stream.greeting);
  if (result.io == Io::kBlocked) {
    stream.readable = false;
    return true;
  }
  if (result.io != Io::kMore) return false;
  Result<Greeting> greeting = unpack_greeting(stream.greeting.frame());
  if (!greeting.ok() || greeting.value().answer) return false;
  const bool taken =
      std::any_of(pending_.begin(), pending_.end(), [&](const PendingConnection& other) {
        return other.greeting && other.greeting->nonce == greeting.value().nonce &&
               (other.greeting->index == greeting.value().index ||
                !same_link(*other.greeting, greeting.value()));
      });
  if (!taken) pending.greeting = greeting.take();
  return !taken;
}

void PendingConnections::dismiss(Place place, Streams& leaving) {
  leaving.push_back(std::move(place->stream));
  pending_.erase(place);
}

std::optional<PendingConnections::PendingLink> PendingConnections::gather(Greeting greeting) {
  const auto belongs = [&](const PendingConnection& pending) {
    return pending.greeting && same_link(*pending.greeting, greeting);
  };
  const auto here = std::count_if(pending_.begin(), pending_.end(), belongs);
  if (static_cast<uint32_t>(here) != greeting.count) return std::nullopt;
  PendingLink complete{greeting, Streams(greeting.count)};
  for (PendingConnection& pending : pending_) {
    if (belongs(pending)) complete.streams[pending.greeting->index] = std::move(pending.stream);
  }
  std::erase_if(pending_,
                [](const PendingConnection& pending) { return pending.stream == nullptr; });
  return complete;
}

void PendingConnections::expire(Nanos now, Streams& leaving) {
  for (PendingConnection& pending : pending_) {
    if (pending.deadline <= now) leaving.push_back(std::move(pending.stream));
  }
  std::erase_if(pending_,
                [](const PendingConnection& pending) { return pending.stream == nullptr; });
}

}  // namespace gradbus
