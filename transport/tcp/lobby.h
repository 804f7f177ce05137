// Connections that were accepted and have not become a link yet. The transport's thread owns it.
//
// A stranger can cost us little: at most kGuestsMax wait, each for one deadline; when all places
// are taken the one that has been silent longest goes; what a guest sends beyond its hello stays
// unread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "transport/tcp/link.h"

namespace gradbus {

inline constexpr size_t kGuestsMax = 64;

class Lobby {
 public:
  using Streams = std::vector<std::unique_ptr<Stream>>;

  // All connections of one link, in the order of their indexes.
  struct Party {
    Greeting greeting;
    Streams streams;
  };

  // Takes a newcomer in; whoever has to go for it, maybe the newcomer itself, joins `leaving`.
  void admit(std::unique_ptr<Stream> stream, Nanos deadline, Streams& leaving);

  // Reads what `guest` has sent. A party when it was the last one missing; a guest that is not one
  // of ours joins `leaving`.
  std::optional<Party> hear(Stream& guest, Streams& leaving);

  void expire(Nanos now, Streams& leaving);

  bool empty() const { return guests_.empty(); }

 private:
  struct Guest {
    std::unique_ptr<Stream> stream;
    Nanos deadline = 0;
    std::optional<Greeting> greeting;
  };
  using Place = std::vector<Guest>::iterator;

  bool welcome(Guest& guest);
  void dismiss(Place place, Streams& leaving);
  std::optional<Party> gather(Greeting greeting);

  std::vector<Guest> guests_;  // oldest first
};

}  // namespace gradbus
