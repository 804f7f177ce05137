// A job's two links in the ring of agents: to the successor (data out, credits in) and from the
// predecessor (data in, credits out), with the queue of frames that wait for room.
//
// Engine thread only. Each job has links of its own: one that stalls stalls no other job.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/transport.h"
#include "worker_agent/collectives/collective.h"

namespace gradbus {

struct LinkIdentity {
  uint64_t job = 0;
  uint32_t epoch = 0;
  uint64_t link_key = 0;
  uint32_t agent_index = 0;
  uint32_t agents = 1;
};

// A data frame on its way out: what to tell the collective when it is sent.
struct SendRecord {
  uint32_t tensor = 0;
  Action action;
};

class JobLinks {
 public:
  JobLinks(Transport& transport, const LinkIdentity& identity);
  ~JobLinks();

  // Opens the link to the successor. D604 when the address is impossible.
  Status open(const std::string& successor_address);
  // The predecessor has opened its link to us.
  Status accept(LinkId link, const FrameHeader& hello);
  // Until their kClosed has come.
  bool is_predecessor(LinkId link) const { return predecessor_open_ && link == predecessor_; }
  bool is_successor(LinkId link) const { return successor_open_ && link == successor_; }
  void connected() { successor_up_ = true; }
  // Ends both links. This object must live until closed(): the transport owns the slots till then.
  void close();
  void on_closed(LinkId link);
  bool closed() const { return !successor_open_ && !predecessor_open_; }

  void send_data(const FrameHeader& header, Slice payload, const SendRecord& record);
  void send_credit(const FrameHeader& header);
  // Posts what waits and fits; returns how many frames went.
  size_t flush();

  // A data frame ended: its record.
  SendRecord take_sent(uint64_t token);
  bool is_credit_token(uint64_t token) const { return token == kCreditToken; }

  // ---- received frames, by token
  std::span<const std::byte> frame(uint64_t token, uint64_t bytes) const;
  uint32_t buffer_of(uint64_t token) const { return static_cast<uint32_t>(token); }
  std::span<const std::byte> payload(uint32_t buffer) const;
  // The engine is done with a buffer: it takes the next frame.
  void release(uint64_t token);

 private:
  static constexpr uint64_t kCreditToken = UINT64_MAX;
  struct Waiting {
    FrameHeader header;
    Slice payload;
    SendRecord record;
  };
  Code post_one(const Waiting& waiting);
  FrameHeader hello() const;
  void post_receives(LinkId link, uint64_t first_token, uint64_t count);
  LinkId link_of(uint64_t token) const;
  Slice slot(uint64_t token) const;

  Transport& transport_;
  const LinkIdentity identity_;
  LinkId successor_;
  LinkId predecessor_;
  bool successor_open_ = false;  // until its kClosed
  bool predecessor_open_ = false;
  bool successor_up_ = false;  // frames may be posted
  bool predecessor_up_ = false;
  std::span<std::byte> memory_;  // data slots, then credit slots
  RegionId region_;
  std::deque<Waiting> data_;
  std::deque<FrameHeader> credits_;
  std::vector<SendRecord> in_flight_;
  std::vector<uint32_t> free_records_;
};

}  // namespace gradbus
