// What carries the bytes of one connection: its socket, or, to a process of the same machine,
// shared memory (net/byte_ring.h), where the socket says hello, rings for an end that sleeps, and
// tells when the other process is gone. One thread owns it; nothing here blocks.
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
  // A TCP connection, or, `local`, a unix socket somebody connected to.
  explicit StreamChannel(Fd socket, bool local = false)
      : socket_(std::move(socket)), local_(local) {}
  // To a process of this machine that listens there; not valid() where there is none, or no memory.
  static StreamChannel to_neighbour(const SocketAddress& address);

  int fd() const { return socket_.get(); }
  bool valid() const { return socket_.valid(); }
  bool local() const { return local_; }
  void close() { socket_.reset(); }

  // The greeting goes through the socket, of a local connection's opener with the memory.
  bool send_greeting(const Greeting& greeting) const;
  // kMore: it is whole, and so is what has to come with it.
  IoResult read_greeting(GreetingReader& reader);

  // Both greetings are through: bytes go where they are to go.
  void begin();
  // What an edge of epoll says is about the socket. True: of shared memory, look at it.
  bool take_bells();
  // The other end will write nothing more.
  void hang_up() { hung_up_ = true; }

  // As readv() and sendmsg(): what was moved, or -1 and errno. EAGAIN, and less than all, say that
  // an edge follows. EBADMSG: the other end has broken the memory's rules.
  ssize_t read(std::span<const iovec> parts);
  ssize_t write(std::span<const iovec> parts);

 private:
  ssize_t after(const RingStep& step);

  Fd socket_;
  bool local_ = false;
  bool opener_ = false;
  bool begun_ = false;
  bool hung_up_ = false;
  std::optional<RingPair> rings_;
};

}  // namespace gradbus
