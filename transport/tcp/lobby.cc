#include "transport/tcp/lobby.h"

#include <algorithm>

namespace gradbus {

void Lobby::admit(std::unique_ptr<Stream> stream, Nanos deadline, Streams& leaving) {
  if (guests_.size() >= kGuestsMax) {
    const auto silent = std::find_if(guests_.begin(), guests_.end(),
                                     [](const Guest& guest) { return !guest.greeting; });
    if (silent == guests_.end()) {
      leaving.push_back(std::move(stream));
      return;
    }
    dismiss(silent, leaving);
  }
  guests_.push_back({std::move(stream), deadline, std::nullopt});
}

std::optional<Lobby::Party> Lobby::hear(Stream& guest, Streams& leaving) {
  const auto place = std::find_if(guests_.begin(), guests_.end(),
                                  [&](const Guest& one) { return one.stream.get() == &guest; });
  if (place == guests_.end()) return std::nullopt;
  if (!welcome(*place)) {
    dismiss(place, leaving);
    return std::nullopt;
  }
  if (!place->greeting) return std::nullopt;
  return gather(*place->greeting);
}

// Returns false when the guest is not a Gradbus peer, or has gone.
bool Lobby::welcome(Guest& guest) {
  Stream& stream = *guest.stream;
  if (guest.greeting) return !stream.hung_up;  // its hello is complete; only a hang-up matters now
  const IoResult result = stream.channel.read_greeting(stream.greeting);
  if (result.io == Io::kBlocked) {
    stream.readable = false;
    return true;
  }
  if (result.io != Io::kMore) return false;
  Result<Greeting> greeting = unpack_greeting(stream.greeting.frame());
  if (!greeting.ok() || greeting.value().answer) return false;
  const bool taken = std::any_of(guests_.begin(), guests_.end(), [&](const Guest& other) {
    return other.greeting && other.greeting->nonce == greeting.value().nonce &&
           (other.greeting->index == greeting.value().index ||
            !same_link(*other.greeting, greeting.value()));
  });
  if (!taken) guest.greeting = greeting.take();
  return !taken;
}

void Lobby::dismiss(Place place, Streams& leaving) {
  leaving.push_back(std::move(place->stream));
  guests_.erase(place);
}

std::optional<Lobby::Party> Lobby::gather(Greeting greeting) {
  const auto belongs = [&](const Guest& guest) {
    return guest.greeting && same_link(*guest.greeting, greeting);
  };
  const auto here = std::count_if(guests_.begin(), guests_.end(), belongs);
  if (static_cast<uint32_t>(here) != greeting.count) return std::nullopt;
  Party party{greeting, Streams(greeting.count)};
  for (Guest& guest : guests_) {
    if (belongs(guest)) party.streams[guest.greeting->index] = std::move(guest.stream);
  }
  std::erase_if(guests_, [](const Guest& guest) { return guest.stream == nullptr; });
  return party;
}

void Lobby::expire(Nanos now, Streams& leaving) {
  for (Guest& guest : guests_) {
    if (guest.deadline <= now) leaving.push_back(std::move(guest.stream));
  }
  std::erase_if(guests_, [](const Guest& guest) { return guest.stream == nullptr; });
}

}  // namespace gradbus
