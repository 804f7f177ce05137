// A peer made of one plain socket, so that a test decides every byte that a TcpTransport sees.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/fd.h"
#include "contract/transport_node.h"
#include "transport/tcp/hello.h"

namespace gradbus {

// A TcpTransport of its own port, one stream per link unless told otherwise. Its default timeout is
// so long that a test in which something ends at once cannot take a timeout for it.
std::unique_ptr<Node> tcp_node(uint32_t peer_timeout_ms = 30'000, uint32_t streams = 1,
                               bool local_links = true);

class RawPeer {
 public:
  // Connects to `node`.
  explicit RawPeer(Node& node);
  // Takes over a connection.
  explicit RawPeer(Fd fd) : fd_(std::move(fd)) {}

  void send(std::span<const std::byte> bytes);
  void send(const FrameHeader& frame) { send(std::as_bytes(std::span(&frame, 1))); }
  // Whatever has come so far.
  std::vector<std::byte> received();
  // The other side has closed or reset the connection.
  bool is_closed();
  std::string local_address() const;
  int fd() const { return fd_.get(); }

  // Sends a good hello and waits for the answer.
  void greet(Node& node);

 private:
  Fd fd_;
};

// A plain listening socket.
class RawListener {
 public:
  RawListener();
  const std::string& address() const { return address_; }
  // Waits for the next connection while `node` is polled.
  RawPeer accept(Node& node);

 private:
  Fd fd_;
  std::string address_;
};

// One hello frame of `greeting`'s link.
Greeting greeting_of(uint64_t nonce, uint32_t index, uint32_t count);
// A whole sealed frame.
std::vector<std::byte> sealed_frame(uint64_t seed, size_t bytes);

}  // namespace gradbus
