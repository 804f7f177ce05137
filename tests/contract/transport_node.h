// One end of a transport under test: its memory, its receive slots, and an account of every post.
// The account fails the test when a post ends twice, ends without having been made, or ends after
// the link's kClosed. One thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "common/clock.h"
#include "transport/transport.h"

namespace gradbus {

// Byte `i` of the payload called `seed`: neighbours, blocks and seeds all differ.
constexpr std::byte pattern_byte(uint64_t seed, size_t i) {
  return static_cast<std::byte>((seed * 131 + i * 7 + (i >> 8) * 13) & 0xff);
}

// For what must happen: long enough for a machine that has other things to do.
constexpr Nanos kEventually = 30 * kSecond;

// A data frame of `bytes` whose `step` is its seed.
FrameHeader data_header(uint64_t seed);
FrameHeader hello_header(uint64_t key);

class Node {
 public:
  struct Arrived {
    LinkId link;
    FrameHeader header;
    bool whole = false;  // every payload byte is the pattern's
  };

  explicit Node(std::unique_ptr<Transport> transport, size_t slots = 64);

  Transport& transport() { return *transport_; }
  void destroy() { transport_.reset(); }

  // Posts; a kBusy is followed by a poll and another try, until a deadline.
  LinkId connect_to(Node& other, uint64_t key = 7);
  void send(LinkId link, uint64_t seed, size_t bytes);
  void receive(LinkId link, size_t count = 1);
  // Posts once.
  Code try_send(LinkId link, uint64_t seed, size_t bytes);
  Code try_receive(LinkId link, size_t slot_bytes = kReceiveSlotBytes);

  // One poll; accounts for what it gives. How many events.
  size_t poll(size_t events_max = 32);
  // Each frame that comes is answered with a new receive on its link.
  void keep_receiving() { keep_receiving_ = true; }

  std::vector<TransportEvent> accepted;
  std::vector<TransportEvent> connected;
  std::vector<Arrived> arrived;
  std::map<uint32_t, Code> closed;        // by link index
  std::map<Code, size_t> ended_receives;  // not kOk
  std::map<Code, size_t> ended_sends;     // kOk too

  size_t outstanding() const { return sends_.size() + receives_.size(); }
  std::set<uint64_t> arrived_seeds() const;
  bool all_whole() const;

 private:
  struct Post {
    LinkId link;
    size_t slot = 0;
  };

  void insist(const std::function<Code()>& post);
  void take_in(const TransportEvent& event);
  void end_receive(const TransportEvent& event);
  std::byte* slot_data(size_t slot) { return memory_.get() + slot * kReceiveSlotBytes; }

  std::unique_ptr<Transport> transport_;
  std::unique_ptr<std::byte[]> memory_;  // receive slots; not zeroed, for most are never touched
  RegionId region_;
  std::vector<size_t> free_slots_;
  std::map<uint64_t, std::vector<std::byte>> payloads_;  // by token, until sent
  std::map<uint64_t, RegionId> payload_regions_;
  std::map<uint64_t, Post> sends_;
  std::map<uint64_t, Post> receives_;
  uint64_t last_token_ = 0;
  bool keep_receiving_ = false;
  std::vector<LinkId> owed_;  // receives to post
};

// Polls the nodes in turn until `done`; false when that takes longer than `limit`.
bool poll_until(const std::vector<Node*>& nodes, const std::function<bool()>& done,
                Nanos limit = kEventually);
// As many rounds of polls as it takes for nothing to happen any more.
void poll_until_quiet(const std::vector<Node*>& nodes);

// Connects `opener` to `acceptor`; the acceptor's end of the new link.
struct Ends {
  LinkId opener;
  LinkId acceptor;
};
Ends join(Node& opener, Node& acceptor, uint64_t key = 7);

}  // namespace gradbus
