// Accepted connections that do not belong to a link yet. The transport's thread owns it.
//
// Unauthenticated connections are limited to kPendingConnectionsMax, each with one deadline. When
// all places are taken, a newcomer takes the place of the oldest one from the address that has most
// of them. So a flood ends its own connections. Bytes after a hello stay unread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "transport/tcp/link.h"

namespace gradbus {

inline constexpr size_t kPendingConnectionsMax = 256;

class PendingConnections {
 public:
  using Streams = std::vector<std::unique_ptr<Stream>>;

  // All connections of one link, in the order of their indexes.
  struct PendingLink {
    Greeting greeting;
    Streams streams;
  };

  // Adds a connection from a host. A connection that must be closed for it joins `leaving`.
  void admit(std::unique_ptr<Stream> stream, std::string host, Nanos deadline, Streams& leaving);

  // Reads the bytes of `pending`. Returns a complete link when it was the last missing connection.
  // A pending connection that is not a Gradbus peer joins `leaving`.
  std::optional<PendingLink> read_handshake(Stream& pending, Streams& leaving);

  void expire(Nanos now, Streams& leaving);

  bool empty() const { return pending_.empty(); }

 private:
  struct PendingConnection {
    std::unique_ptr<Stream> stream;
    std::string host;
    Nanos deadline = 0;
    std::optional<Greeting> greeting;
  };
  using Place = std::vector<PendingConnection>::iterator;

  Place least_wanted();
  bool welcome(PendingConnection& pending);
  void dismiss(Place place, Streams& leaving);
  std::optional<PendingLink> gather(Greeting greeting);

  std::vector<PendingConnection> pending_;  // oldest first
};

}  // namespace gradbus
