// A job's links to the other agents, with a queue of frames per peer: a peer that stalls delays
// only its own frames. There is an OUTGOING link to a peer (data out, credits back), opened when a
// tensor first needs it. There is an INCOMING link from a peer (data in, credits out).
//
// All memory for a round is reserved when a tensor is added: sending allocates nothing.
//
// Engine thread only. Each job has separate links, so a job that stalls delays no other job.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/metrics/histogram.h"
#include "data_plane/collective_operation.h"
#include "data_plane/send_queue.h"
#include "transport/bounded_queue.h"
#include "transport/transport.h"

namespace gradbus {

struct LinkIdentity {
  uint64_t job = 0;
  uint32_t epoch = 0;
  uint64_t link_key = 0;
  uint32_t agent_index = 0;
};

// A data frame in flight, with the action to report when it is sent.
struct SendRecord {
  OperationId operation;
  Action action;
};

class JobLinks {
 public:
  // `addresses` by agent index; the own address is not used. `queued` counts, for each data frame,
  // the frames that waited when it came.
  JobLinks(Transport& transport, const LinkIdentity& identity, std::vector<std::string> addresses,
           DepthHistogram& queued);
  ~JobLinks();
  JobLinks(const JobLinks&) = delete;
  JobLinks& operator=(const JobLinks&) = delete;

  // ---- when a tensor is added: reserves room for its waiting and in-flight frames
  //
  // Opens the link to `peer` if it is the first. D604 when the address is invalid.
  Status expect_sends(uint32_t peer, uint32_t frames);
  void expect_credits(uint32_t peer, uint32_t frames);
  // A tensor is removed: its room is free for new ones. Its frames have been sent.
  void forget_sends(uint32_t peer, uint32_t frames) { peers_.at(peer).out.spare += frames; }
  // ... and its credits that wait for the peer's link are not sent: their rounds will not take
  // place.
  void forget_credits(uint32_t peer, uint32_t tensor, uint32_t frames);
  // Those of `tensors` of which a data frame waits or is in flight.
  std::set<uint32_t> sending_among(std::span<const uint32_t> tensors) const;

  // Adds peers after the known ones.
  void add_peers(const std::vector<std::string>& addresses);
  uint32_t peers() const { return static_cast<uint32_t>(peers_.size()); }

  // ---- links
  //
  // An agent has opened its link to us. Returns D602 unless it belongs to this job and is that
  // agent's first.
  Status accept(LinkId link, const FrameHeader& hello);
  bool owns(LinkId link) const { return role_of(link) != nullptr; }  // until its kClosed
  uint32_t peer_of(LinkId link) const { return role_of(link)->peer; }
  bool outgoing(LinkId link) const { return role_of(link)->outgoing; }
  void connected(LinkId link);
  // Ends all links. This object must live until closed(), because the transport uses the slots
  // until then.
  void close();
  void on_closed(LinkId link);
  bool closed() const { return open_links_ == 0; }
  // The peer is lost for good: ends its links, and opens and accepts none any more. Its waiting
  // frames are not posted; take_unsent() returns them.
  void drop(uint32_t peer);
  bool dropped(uint32_t peer) const { return peers_[peer].dropped; }
  bool receives_from(uint32_t peer) const { return peers_[peer].in.open; }
  bool take_unsent(uint32_t peer, SendRecord& record);

  // ---- frames out
  //
  // Frames of smaller `priority` are sent first (send_queue.h).
  void send_data(uint32_t peer, const FrameHeader& header, Slice payload, const SendRecord& record,
                 uint32_t priority = 0);
  void send_credit(uint32_t peer, const FrameHeader& header);
  // Posts waiting frames that fit; returns their number.
  size_t flush();
  uint64_t waiting_frames() const { return waiting_frames_; }
  // Returns the record of a data frame that ended. Credits have none.
  SendRecord take_sent(LinkId link, uint64_t token);
  bool is_credit_token(uint64_t token) const { return token == kCreditToken; }

  // ---- frames in: the bytes of a receive, and its buffer. Buffers are numbered over all links.
  std::span<const std::byte> frame(LinkId link, uint64_t token, uint64_t bytes) const;
  uint32_t buffer_of(LinkId link, uint64_t token) const;
  std::span<const std::byte> payload(uint32_t buffer) const;
  Slice payload_slice(uint32_t buffer) const;  // to send it on without a copy
  uint32_t buffers_max() const;
  // The engine does not need a data buffer or credit any more: it can receive the next frame.
  void release(uint32_t buffer);
  void release_credit(LinkId link, uint64_t token);

 private:
  static constexpr uint64_t kCreditToken = UINT64_MAX;
  struct Role {
    uint32_t peer = 0;
    bool outgoing = false;
    bool known = false;
  };
  struct Slots {  // receive memory of one link
    std::span<std::byte> memory;
    RegionId region;
    uint64_t slot_bytes = 0;
    BoundedQueue<uint64_t> unposted;  // tokens for which the transport had no room
  };
  struct Waiting {
    FrameHeader header;
    Slice payload;
    SendRecord record;
  };
  struct Outgoing {
    LinkId link;
    bool open = false;            // from connect() until its kClosed
    bool up = false;              // frames may be posted
    Slots slots;                  // for credits
    std::vector<Waiting> frames;  // by token: waiting or in flight
    std::vector<uint32_t> unused;
    uint32_t spare = 0;         // frames that no tensor needs any more
    SendQueue waiting;          // tokens
    uint64_t posted_bytes = 0;  // that the transport has not sent
  };
  struct Incoming {
    LinkId link;
    bool open = false;
    Slots slots;  // for data
    uint32_t credits_max = 0;
    BoundedQueue<FrameHeader> credits;
  };
  struct Peer {
    bool listed = false;  // in active_
    bool dropped = false;
    Outgoing out;
    Incoming in;
  };

  Status connect(uint32_t peer);
  FrameHeader hello() const;
  const Role* role_of(LinkId link) const;
  void add_link(LinkId link, uint32_t peer, bool outgoing);
  Status lend_slots(LinkId link, Slots& slots, uint64_t count, uint64_t slot_bytes);
  void post_slot(LinkId link, Slots& slots, uint64_t token);
  void post_again(LinkId link, Slots& slots);
  void take_back(Slots& slots);
  size_t flush_data(Outgoing& out);
  size_t flush_credits(Incoming& in);
  void list(uint32_t peer);

  Transport& transport_;
  const LinkIdentity identity_;
  std::vector<std::string> addresses_;
  std::vector<Peer> peers_;       // by agent index
  std::vector<uint32_t> active_;  // peers that may have frames to send
  std::vector<Role> roles_;       // by link index
  uint64_t waiting_frames_ = 0;   // of data, over all peers
  DepthHistogram& queued_;
  uint32_t open_links_ = 0;
};

}  // namespace gradbus
