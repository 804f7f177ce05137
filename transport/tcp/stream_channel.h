// The byte channel of one connection. It is a socket, or shared memory to a process of the same
// machine (net/byte_ring.h). With shared memory the socket carries the hello, wakes the other end
// when it sleeps, and reports that the other process is gone. One thread owns it; nothing here
// blocks.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <optional>
#include <span>

#include "common/fd.h"
#include "transport/net/address.h"
#include "transport/net/byte_ring.h"
#include "transport/tcp/hello.h"

namespace gradbus {

class StreamChannel {
 public:
  StreamChannel() = default;
  // A TCP connection or, with `local`, an accepted unix socket.
  explicit StreamChannel(Fd socket, bool local = false)
      : socket_(std::move(socket)), local_(local) {}
  // Connects to a process of this machine that listens there. Not valid() when there is none, or
  // when memory is not available.
  static StreamChannel to_neighbour(const SocketAddress& address);

  int fd() const { return socket_.get(); }
  bool valid() const { return socket_.valid(); }
  bool local() const { return local_; }
  void close() { socket_.reset(); }

  // The greeting is sent on the socket. The opener of a local connection sends the memory with it.
  bool send_greeting(const Greeting& greeting) const;
  // Returns kMore when the greeting and all that belongs to it are complete.
  IoResult read_greeting(GreetingReader& reader);

  // Both greetings were exchanged: bytes now take their final way.
  void begin();
  // An edge of epoll concerns the socket. Returns true when the channel is shared memory, which the
  // caller must check itself.
  bool take_bells();
  // The peer will write nothing more.
  void hang_up() { hung_up_ = true; }

  // Like readv() and sendmsg(): the bytes moved, or -1 and errno. EAGAIN, or fewer bytes than
  // asked, means that an edge follows. EBADMSG: the peer broke the rules of the shared memory, or
  // rings without end.
  ssize_t read(std::span<const iovec> parts);
  ssize_t write(std::span<const iovec> parts);

 private:
  ssize_t after(const RingStep& step);

  Fd socket_;
  bool local_ = false;
  bool opener_ = false;
  bool begun_ = false;
  bool hung_up_ = false;
  bool flooded_ = false;  // by bells
  std::optional<RingPair> rings_;
};

}  // namespace gradbus
