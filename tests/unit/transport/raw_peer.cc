#include "unit/transport/raw_peer.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "transport/net/socket.h"
#include "transport/tcp/tcp.h"

namespace gradbus {

std::unique_ptr<Node> tcp_node(uint32_t peer_timeout_ms, uint32_t streams, bool local_links) {
  TransportOptions options;
  options.peer_timeout_ms = peer_timeout_ms;
  options.streams = streams;
  options.local_links = local_links;
  return std::make_unique<Node>(TcpTransport::create(options).take());
}

RawPeer::RawPeer(Node& node) {
  const SocketAddress address = parse_peer_address(node.transport().local_address()).take();
  fd_.reset(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd_.get(), address.data(), address.bytes), 0) << std::strerror(errno);
  EXPECT_EQ(fcntl(fd_.get(), F_SETFL, O_NONBLOCK), 0);
}

void RawPeer::send(std::span<const std::byte> bytes) {
  (void)::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

std::vector<std::byte> RawPeer::received() {
  std::vector<std::byte> bytes(1 << 16);
  const ssize_t count = recv(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return bytes;
}

bool RawPeer::is_closed() {
  std::byte ignored{};
  const ssize_t count = recv(fd_.get(), &ignored, 1, MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN);
}

std::string RawPeer::local_address() const { return format_address(local_address_of(fd_.get())); }

void RawPeer::greet(Node& node) {
  send(pack_greeting(greeting_of(random_nonce(), 0, 1)));
  std::vector<std::byte> answer;
  ASSERT_TRUE(poll_until({&node}, [&] {
    if (answer.empty()) answer = received();
    return !answer.empty() && !node.accepted.empty();
  }));
  EXPECT_EQ(answer.size(), sizeof(FrameHeader));
}

RawListener::RawListener() {
  fd_ = listen_on(resolve_bind_address("127.0.0.1").take(), {}).take();
  address_ = format_address(local_address_of(fd_.get()));
}

RawPeer RawListener::accept(Node& node) {
  Fd connection;
  EXPECT_TRUE(poll_until({&node}, [&] {
    connection = accept_connection(fd_.get(), 1500, {});
    return connection.valid();
  }));
  return RawPeer(std::move(connection));
}

Greeting greeting_of(uint64_t nonce, uint32_t index, uint32_t count) {
  return {hello_header(1), nonce, index, count, false};
}

std::vector<std::byte> sealed_frame(uint64_t seed, size_t bytes) {
  std::vector<std::byte> frame(sizeof(FrameHeader) + bytes);
  const std::span<std::byte> payload = std::span(frame).subspan(sizeof(FrameHeader));
  for (size_t i = 0; i < bytes; ++i) payload[i] = pattern_byte(seed, i);
  FrameHeader header = data_header(seed);
  header.length = static_cast<uint32_t>(bytes);
  seal_frame(header, payload);
  std::memcpy(frame.data(), &header, sizeof(header));
  return frame;
}

}  // namespace gradbus
