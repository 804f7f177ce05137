// How two processes of one machine find each other for a stream through shared memory
// (byte_ring.h): by a unix socket whose name is derived from the peer's TCP address. Any thread;
// nothing here blocks.
//
// The names are abstract, so each network namespace has its own names. A process that finds one can
// also reach the TCP address, under the same bandwidth limits. Another layout of the memory has
// another name, so programs with different layouts use TCP.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "common/fd.h"
#include "transport/net/address.h"
#include "transport/net/io_result.h"

namespace gradbus {

// A listener for local peers that would otherwise connect to `address`. Invalid when the name is
// taken: peers then use TCP.
Fd listen_locally(const SocketAddress& address);
// The next waiting connection, or an invalid Fd. Any user may connect: see is_own().
Fd accept_locally(int listener);

// Connects to the local listener of `address`, at once. Returns an invalid Fd when there is none,
// when it has no room, or when another user has taken the name. Any user may take an abstract name,
// also for an address of another machine.
Fd connect_locally(const SocketAddress& address);

// The peer of this socket is a process of this user. Others are not heard, because they could
// send descriptors whose close() waits. Daemons of different users use TCP.
bool is_own(int socket);

// "process 4711 of this machine".
std::string local_peer_of(int fd);

// Sends all of `bytes` at once, with the descriptor `passed` if it is valid. Returns false on
// failure.
bool send_with_fd(int socket, std::span<const std::byte> bytes, int passed);
// Like read_missing() (socket.h). Stores a descriptor that comes with the bytes in `passed`.
IoResult read_missing_with_fd(int socket, std::span<std::byte> target, size_t& filled, Fd& passed);

}  // namespace gradbus
