// Sockets with the options every link needs: non-blocking, closed on exec, no Nagle delay, and a
// kernel that gives up on a silent peer. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/fd.h"
#include "common/status.h"
#include "transport/net/address.h"
#include "transport/net/congestion.h"
#include "transport/net/io_result.h"

namespace gradbus {

// GB-D603 names the address.
Result<Fd> listen_on(const SocketAddress& address, const CongestionControl& congestion);
SocketAddress local_address_of(int fd);
SocketAddress peer_address_of(int fd);

// Starts to connect. The socket becomes writable when that has succeeded or failed. After success,
// the caller calls settle() of its congestion control. GB-D604.
Result<Fd> start_connect(const SocketAddress& address, uint32_t peer_timeout_ms,
                         const CongestionControl& congestion);
// The next waiting connection, or an invalid Fd.
Fd accept_connection(int listener, uint32_t peer_timeout_ms, const CongestionControl& congestion);

// Reads until `target` is full, and not one byte more. Its first `filled` bytes are already filled.
// kMore: it is full.
IoResult read_missing(int fd, std::span<std::byte> target, size_t& filled);

// 0, or the errno that ended this socket. Reading it clears it.
int socket_error(int fd);

// Everything sent was acknowledged, but the peer's window is closed: it is alive and does not read.
bool peer_window_is_closed(int fd);
// How long sent bytes may stay unacknowledged, or the window closed, before the kernel ends the
// connection.
void set_user_timeout(int fd, uint32_t timeout_ms);

}  // namespace gradbus
