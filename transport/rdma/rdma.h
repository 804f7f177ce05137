// The RDMA backend: reliable connections (RC queue pairs), one or more per link, over InfiniBand or
// RoCE.
//
// A frame is one SEND. Its request gathers the header from a small registered ring and the payload
// from the caller's memory. The device writes both into the receive slot that the caller posted. So
// no processor copies a payload byte on either side, except frames of up to 128 bytes, which travel
// in the request. Both sides read the payload once more for the checksum that transport.h requires.
//
// Why SEND and not RDMA WRITE with immediate: the receiver posts its buffers one by one, in the
// order in which they become free. That is what a receive queue is. A WRITE would need the address
// and key of each slot at the sender, a message for every free slot, and memory that a peer may
// write. With SEND no key leaves the node and no memory is open to remote access. The worst that a
// peer can do is to fill a slot that was posted for it. A frame without a posted slot waits at its
// sender, whose device retries every 0.32 ms while the peer is alive.
//
// A link has one queue pair unless `queue_pairs` is larger. One queue pair fills the port of most
// cards, and two agents have two links per job, one in each direction. With n queue pairs, send i
// and receive i of a link use queue pair i modulo n. So a frame always finds the receive that was
// posted for it, and the work of each queue ends in order even when it is flushed. A shared receive
// queue (SRQ) would give each slot to whichever queue pair needs one. But a failed queue pair does
// not return slots of an SRQ, so the end of a link would be uncertain. Some devices have no SRQ.
//
// hello.h describes how a link begins. A link ends in one of three ways: by a farewell on its
// bootstrap connection, by the end of that connection (the peer's process or machine is gone), or
// by an error of the queue pair, such as a network that is down for peer_timeout_ms. Then the queue
// pair is set to fail, so the device returns all posts. Frames received before are delivered;
// everything else ends with the reason. A farewell does not cover frames that were not reported as
// sent. Frames that were reported as sent are already in the peer's slots.
//
// One role thread owns an RdmaTransport and calls every member function.
//
//   poll()      rdma.cc                   events, completions, hand out events
//   one link    link_work.cc              queue_pair.h, regions.h
//   begin, end  connection_lifecycle.cc   hello.h; deadlines, too
//   start       device.h, ports.h, verbs_library.h
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/fd.h"
#include "transport/link_events.h"
#include "transport/link_table.h"
#include "transport/net/address.h"
#include "transport/net/poller.h"
#include "transport/rdma/device.h"
#include "transport/rdma/link.h"
#include "transport/rdma/regions.h"
#include "transport/transport.h"

namespace gradbus {

class RdmaTransport final : public Transport {
 public:
  // Opens the device and listens at once. Returns GB-F100 for an option out of range, GB-D603 when
  // the address is not available, GB-D607 when no device can be used. `verbs` outlives the
  // transport.
  static Result<std::unique_ptr<Transport>> create(const VerbsLibrary& verbs,
                                                   const TransportOptions& options);

  Result<RegionId> register_memory(std::span<std::byte> memory) override;
  void unregister_memory(RegionId region) override;
  std::string local_address() const override { return address_; }
  Result<LinkId> connect(std::string_view address, const FrameHeader& hello) override;
  Code post_send(LinkId link, const FrameHeader& header, Slice payload, uint64_t token) override;
  Code post_receive(LinkId link, Slice into, uint64_t token) override;
  size_t poll(std::span<TransportEvent> events) override;
  void disconnect(LinkId link) override;
  int wait_fd() const override { return poller_.fd(); }
  std::string link_error(LinkId link) const override { return links_.error(link); }
  void expect_polls(bool expected) override { polls_expected_ = expected; }
  TransportTotals totals() const override;

 private:
  explicit RdmaTransport(const TransportOptions& options)
      : Transport(*options.clock), options_(options) {}
  Status start(const VerbsLibrary& verbs);

  // rdma.cc
  void collect();
  bool serve();
  bool rest();
  size_t hand_out(std::span<TransportEvent> events);
  RdmaLink* open_link(LinkId id) const;
  LinkEvents events_of(const RdmaLink& link) { return LinkEvents(events_, link.id); }
  Nanos peer_timeout() const { return options_.peer_timeout_ms * kMillisecond; }

  // link_work.cc: sends and receives on a link that is up or ending
  void post_waiting(RdmaLink& link);
  void post_sends(RdmaLink& link, RdmaLane& lane);
  void post_broke(RdmaLink& link, int failure);
  bool reap(RdmaLink& link);
  bool reap_lane(RdmaLink& link, RdmaLane& lane);
  void send_ended(RdmaLink& link, RdmaLane& lane, const ibv_wc& work);
  void receive_ended(RdmaLink& link, RdmaLane& lane, const ibv_wc& work);
  void work_failed(RdmaLink& link, const ibv_wc& work);
  Status check_frame(const RdmaPost& receive, uint32_t bytes) const;
  void end_post(RdmaLink& link, BoundedQueue<RdmaPost>& posts, bool send, Code code,
                uint64_t bytes = 0);

  // connection_lifecycle.cc: begin and end of a link
  RdmaLink& add_link(std::string peer);
  Result<std::vector<RdmaLane>> make_lanes(size_t count);
  Status connect_lanes(std::vector<RdmaLane>& lanes, const RdmaHello& peer) const;
  void on_socket_event(Bootstrap& bootstrap);
  bool advance(Bootstrap& bootstrap);
  bool say_hello(Bootstrap& bootstrap);
  bool take_hello(Bootstrap& bootstrap);
  bool take_answer(Bootstrap& bootstrap);
  bool take_ready(Bootstrap& bootstrap);
  bool take_farewell(Bootstrap& bootstrap);
  void accept_connections();
  void refuse_connect(RdmaLink& link, std::string_view why, std::string_view next = {});
  void lose_link(RdmaLink& link, const std::string& why);
  void end_link(RdmaLink& link, Code code, std::string text);
  void close_link(RdmaLink& link);
  void retire(std::unique_ptr<Bootstrap> bootstrap);
  void dismiss(Bootstrap& pending);
  void tick();

  TransportOptions options_;
  std::unique_ptr<RdmaDevice> device_;
  std::unique_ptr<RdmaRegions> regions_;
  Fd listener_;
  bool listening_ = false;  // false for one tick when descriptors ran out
  std::string address_;
  Poller poller_;
  LinkTable<RdmaLink> links_;
  std::vector<RdmaLink*> live_;  // links in kUp or kEnding; their queues are polled
  size_t events_max_ = 0;
  EventQueue events_;
  bool tick_due_ = false;
  bool polls_expected_ = false;
  Counter sent_bytes_;
  Counter received_bytes_;
  Counter send_copied_bytes_;
  // Accepted connections without a link yet; oldest first.
  std::vector<std::unique_ptr<Bootstrap>> pending_connections_;
  // An event of the running poll may still point to them.
  std::vector<std::unique_ptr<Bootstrap>> retired_;
};

}  // namespace gradbus
