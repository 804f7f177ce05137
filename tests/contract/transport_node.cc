#include "contract/transport_node.h"

#include <cstring>
#include <numeric>

namespace gradbus {

FrameHeader data_header(uint64_t seed) {
  FrameHeader header;
  header.kind = static_cast<uint8_t>(FrameKind::kReduce);
  header.dtype = static_cast<uint8_t>(DType::kU8);
  header.op = static_cast<uint8_t>(ReduceOp::kSum);
  header.collective = static_cast<uint8_t>(CollectiveKind::kAllReduce);
  header.job = 5;
  header.step = seed;
  return header;
}

FrameHeader hello_header(uint64_t key) {
  FrameHeader header;
  header.kind = static_cast<uint8_t>(FrameKind::kHello);
  header.source = 3;
  header.job = 0x1122334455667788;
  header.epoch = 9;
  header.total = key;
  return header;
}

Node::Node(std::unique_ptr<Transport> transport, size_t slots)
    : transport_(std::move(transport)),
      memory_(new std::byte[slots * kReceiveSlotBytes]),
      free_slots_(slots) {
  std::iota(free_slots_.rbegin(), free_slots_.rend(), size_t{0});
  const std::span<std::byte> memory(memory_.get(), slots * kReceiveSlotBytes);
  region_ = transport_->register_memory(memory).take();
}

void Node::insist(const std::function<Code()>& post) {
  const Nanos deadline = monotonic_now() + kEventually;
  Code code = post();
  while (code == Code::kBusy && monotonic_now() < deadline) {
    poll();
    code = post();
  }
  ASSERT_EQ(code, Code::kOk) << code_name(code);
}

LinkId Node::connect_to(Node& other, uint64_t key) {
  Result<LinkId> link = transport_->connect(other.transport().local_address(), hello_header(key));
  EXPECT_TRUE(link.ok()) << link.status().message();
  return link.value();
}

void Node::send(LinkId link, uint64_t seed, size_t bytes) {
  insist([&] { return try_send(link, seed, bytes); });
}

void Node::receive(LinkId link, size_t count) {
  for (size_t i = 0; i < count; ++i) insist([&] { return try_receive(link); });
}

Code Node::try_send(LinkId link, uint64_t seed, size_t bytes) {
  const uint64_t token = last_token_ + 1;
  std::vector<std::byte> payload(bytes);
  for (size_t i = 0; i < bytes; ++i) payload[i] = pattern_byte(seed, i);
  const RegionId region = transport_->register_memory(payload).take();
  const Code code = transport_->post_send(link, data_header(seed), {region, 0, bytes}, token);
  if (code != Code::kOk) {
    transport_->unregister_memory(region);
    return code;
  }
  payloads_[token] = std::move(payload);
  payload_regions_[token] = region;
  sends_[++last_token_] = {link, 0};
  return code;
}

Code Node::try_receive(LinkId link, size_t slot_bytes) {
  if (free_slots_.empty()) return Code::kBusy;
  const size_t slot = free_slots_.back();
  const Slice into{region_, slot * kReceiveSlotBytes, slot_bytes};
  const Code code = transport_->post_receive(link, into, last_token_ + 1);
  if (code != Code::kOk) return code;
  free_slots_.pop_back();
  receives_[++last_token_] = {link, slot};
  return code;
}

size_t Node::poll(size_t events_max) {
  if (!transport_) return 0;
  std::vector<TransportEvent> events(events_max);
  const size_t count = transport_->poll(events);
  for (size_t i = 0; i < count; ++i) take_in(events[i]);
  std::erase_if(owed_, [&](LinkId link) { return try_receive(link) != Code::kBusy; });
  return count;
}

void Node::take_in(const TransportEvent& event) {
  EXPECT_FALSE(closed.contains(event.link.index) && event.kind != TransportEvent::Kind::kAccepted)
      << "an event of a link after its kClosed";
  switch (event.kind) {
    case TransportEvent::Kind::kAccepted: accepted.push_back(event); break;
    case TransportEvent::Kind::kConnected: connected.push_back(event); break;
    case TransportEvent::Kind::kReceived: end_receive(event); break;
    case TransportEvent::Kind::kClosed:
      closed[event.link.index] = event.code;
      for (const auto& [token, post] : sends_) EXPECT_NE(post.link, event.link) << token;
      for (const auto& [token, post] : receives_) EXPECT_NE(post.link, event.link) << token;
      break;
    case TransportEvent::Kind::kSent:
      ASSERT_EQ(sends_.count(event.token), 1u) << "token " << event.token;
      EXPECT_EQ(sends_.at(event.token).link, event.link);
      ++ended_sends[event.code];
      sends_.erase(event.token);
      transport_->unregister_memory(payload_regions_.at(event.token));
      payloads_.erase(event.token);  // a transport that still reads it is found by the sanitizer
      break;
  }
}

void Node::end_receive(const TransportEvent& event) {
  ASSERT_EQ(receives_.count(event.token), 1u) << "token " << event.token;
  const Post post = receives_.at(event.token);
  receives_.erase(event.token);
  free_slots_.push_back(post.slot);
  EXPECT_EQ(post.link, event.link);
  if (event.code != Code::kOk) {
    ++ended_receives[event.code];
    EXPECT_EQ(event.bytes, 0u);
    return;
  }
  Arrived frame{event.link, {}, true};
  const std::byte* data = slot_data(post.slot);
  std::memcpy(&frame.header, data, sizeof(frame.header));
  EXPECT_EQ(event.bytes, sizeof(FrameHeader) + frame.header.length);
  for (size_t i = 0; i < frame.header.length; ++i) {
    frame.whole &= data[sizeof(FrameHeader) + i] == pattern_byte(frame.header.step, i);
  }
  arrived.push_back(frame);
  if (keep_receiving_) owed_.push_back(event.link);
}

std::set<uint64_t> Node::arrived_seeds() const {
  std::set<uint64_t> seeds;
  for (const Arrived& frame : arrived) seeds.insert(frame.header.step);
  return seeds;
}

bool Node::all_whole() const {
  for (const Arrived& frame : arrived) {
    if (!frame.whole) return false;
  }
  return true;
}

bool poll_until(const std::vector<Node*>& nodes, const std::function<bool()>& done, Nanos limit) {
  const Nanos deadline = monotonic_now() + limit;
  while (!done()) {
    if (monotonic_now() > deadline) return false;
    for (Node* node : nodes) node->poll();
  }
  return true;
}

void poll_until_quiet(const std::vector<Node*>& nodes) {
  for (int quiet = 0; quiet < 200; ++quiet) {
    for (Node* node : nodes) {
      if (node->poll() > 0) quiet = 0;
    }
  }
}

Ends join(Node& opener, Node& acceptor, uint64_t key) {
  const size_t connected = opener.connected.size();
  const size_t accepted = acceptor.accepted.size();
  Ends ends;
  ends.opener = opener.connect_to(acceptor, key);
  EXPECT_TRUE(poll_until({&opener, &acceptor}, [&] {
    return opener.connected.size() > connected && acceptor.accepted.size() > accepted;
  })) << opener.transport().link_error(ends.opener);
  if (acceptor.accepted.size() > accepted) ends.acceptor = acceptor.accepted.back().link;
  return ends;
}

}  // namespace gradbus
