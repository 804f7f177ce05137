// How two processes of one machine find each other for a stream through shared memory
// (byte_ring.h): by a unix socket whose name follows from the TCP address that a peer was told. Any
// thread; nothing here blocks.
//
// The names are abstract, so a network namespace has its own: who finds one can reach the TCP
// address, too, and is behind the same limits of bandwidth. Another layout of the memory has
// another name, so programs that do not agree on it use TCP.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "common/fd.h"
#include "transport/net/address.h"
#include "transport/net/io_result.h"

namespace gradbus {

// A listener for those who would else connect to `address`. Invalid when the name is taken: peers
// then use TCP.
Fd listen_locally(const SocketAddress& address);
// The next waiting connection, or an invalid Fd.
Fd accept_locally(int listener);

// A connection to who listens there, or an invalid Fd, when nobody does, it has no room for now, or
// it is neither this user nor root: anyone may take an abstract name, also of an address that
// belongs to another machine. Established at once.
Fd connect_locally(const SocketAddress& address);

// "process 4711 of this machine".
std::string local_peer_of(int fd);

// Sends all of `bytes` at once, with `passed` where that is one. False: it could not.
bool send_with_fd(int socket, std::span<const std::byte> bytes, int passed);
// As read_missing() (socket.h). A descriptor that comes with the bytes is put into `passed`.
IoResult read_missing_with_fd(int socket, std::span<std::byte> target, size_t& filled, Fd& passed);

}  // namespace gradbus
