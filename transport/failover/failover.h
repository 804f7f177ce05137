// A transport made of other transports. A link uses one path at a time of those that both ends
// have. When that breaks, it fails over to the next. Frames that the peer has not received are sent
// again; frames that it has are not delivered twice.
//
// A path is two links of an inner transport. The data link carries the caller's frames into the
// caller's receives. The control link carries small frames in which each side reports what it has
// received (control.h). A frame is reported as sent when the peer has received it. So it can be
// sent again from its memory, without a copy. Reports are not delayed to collect more: each poll
// reports what arrived in it.
//
// The opener chooses the path and looks for the next one. The acceptor is found again by the
// session number. A peer that ends its link reports that on the control link; an end without it is
// a broken path. The opener tries its candidates in turn, beginning behind the broken one, and
// again after a pause. It stops when peer_timeout_ms have passed since the path ended, or when no
// candidate has answered in kRoundsMax rounds. The acceptor waits twice as long. A path with
// kCorruptMax corrupt frames is not used again. An opener that is not on its first path checks at
// intervals whether a better one works again, and returns to it.
//
// One role thread owns a FailoverTransport and calls every member function.
//
//   poll()      failover.cc               events, links with work, hand out events
//   frames      path_traffic.cc           windows.h, control.h
//   begin, end  connection_lifecycle.cc   paths.h; deadlines, too
//   next path   recovery.cc
//   and back    preferred.cc
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "transport/failover/link.h"
#include "transport/failover/paths.h"
#include "transport/link_events.h"
#include "transport/link_table.h"
#include "transport/net/poller.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace gradbus {

struct InnerTransport {
  std::string name;  // of its row
  std::unique_ptr<Transport> transport;
};

class FailoverTransport final : public Transport {
 public:
  // `inner` is in the order of preference. GB-F100 for an option out of range, and for none or too
  // many transports.
  static Result<std::unique_ptr<Transport>> create(std::vector<InnerTransport> inner,
                                                   const TransportOptions& options);

  Result<RegionId> register_memory(std::span<std::byte> memory) override;
  void unregister_memory(RegionId region) override;
  std::string local_address() const override { return address_; }
  Result<LinkId> connect(std::string_view address, const FrameHeader& hello) override;
  Code post_send(LinkId link, const FrameHeader& header, Slice payload, uint64_t token) override;
  Code post_receive(LinkId link, Slice into, uint64_t token) override;
  size_t poll(std::span<TransportEvent> events) override;
  void disconnect(LinkId link) override;
  int wait_fd() const override { return pollable_ ? poller_.fd() : -1; }
  std::string link_error(LinkId link) const override { return links_.error(link); }
  void expect_polls(bool expected) override;
  TransportTotals totals() const override;

 private:
  struct Inner {
    std::string name;
    std::vector<std::unique_ptr<Half>> halves;  // by index of the inner link
    std::unique_ptr<Transport> transport;       // destroyed before the memory of its halves
    std::vector<RegionId> regions;              // by index of our region
    bool told = false;                          // one of its control links has something to send
  };

  explicit FailoverTransport(const TransportOptions& options)
      : Transport(*options.clock), options_(options) {}
  Status start(std::vector<InnerTransport> inner);

  // failover.cc
  void collect();
  void serve();
  size_t hand_out(std::span<TransportEvent> events);
  void flush();
  void drain(uint32_t inner);
  void note(uint32_t inner, const TransportEvent& event);
  void queue(FailoverLink& link);
  FailoverLink* open_link(LinkId id) const;
  LinkEvents events_of(const FailoverLink& link) { return LinkEvents(events_, link.id); }
  Transport& transport_of(const Half& half) { return *inner_[half.inner].transport; }
  Slice inner_slice(const Half& half, Slice slice) const;

  // path_traffic.cc: frames on the halves of a path
  bool work(FailoverLink& link);
  bool send_frames(FailoverLink& link);
  bool lend_receives(FailoverLink& link);
  bool tell_state(FailoverLink& link);
  bool send_control(Half& half);
  void data_event(FailoverLink& link, const TransportEvent& event);
  void take_frame(FailoverLink& link, const TransportEvent& event);
  void control_sent(Half& half);
  void control_received(Half& half, const TransportEvent& event);
  void on_link_state(FailoverLink& link, const LinkState& state);
  void serve_control(Half& half);
  void lend_control(Half& half, size_t slot);

  // connection_lifecycle.cc: begin and end of a link
  FailoverLink& add_link();
  Half& add_half(uint32_t inner, LinkId id, bool control);
  void accepted(uint32_t inner, const TransportEvent& event);
  void accept_path(Half& data, Half& control);
  void accept_link(Half& data, Half& control);
  void refuse_path(Half& data, Half& control);
  FailoverLink* find_session(const Half& half);
  void release(Half*& half);
  void half_closed(Half& half, Code code);
  void say_goodbye(Half& control, Code code, const TakenFrames& taken);
  void end_link(FailoverLink& link, Code code, std::string text);
  void finish(FailoverLink& link);
  void tick();
  bool tick_link(FailoverLink& link, Nanos now);
  bool tick_halves(Inner& inner, Nanos now);

  // recovery.cc: change from one path to the next
  void try_next(FailoverLink& link);
  bool begin_attempt(FailoverLink& link);
  void attach(FailoverLink& link, Path path);
  void announce(FailoverLink& link);
  void path_answered(FailoverLink& link);
  void leave(FailoverLink& link, Code code, std::string why);
  void count_fault(FailoverLink& link, Code code);
  void path_gone(FailoverLink& link);
  void round_failed(FailoverLink& link);
  void give_up(FailoverLink& link);
  void count_on(FailoverLink& link);
  void count_off(FailoverLink& link);

  // preferred.cc: return to a better path that works again
  bool wants_better(const FailoverLink& link) const;
  bool seek_better(FailoverLink& link, Nanos now);
  void begin_probe(FailoverLink& link);
  void accept_probe(Half& half);
  void probe_answered(Half& half, const FrameHeader& frame);
  void probe_failed(FailoverLink& link);
  void end_probe(FailoverLink& link);
  void plan_return(FailoverLink& link);
  void begin_return(FailoverLink& link);
  bool note_return(FailoverLink& link);
  void note_left(FailoverLink& link, bool was_up);
  Nanos pause_of(const FailoverLink& link) const;
  Nanos peer_timeout() const { return options_.peer_timeout_ms * kMillisecond; }
  // How much longer a goodbye may take than the end of its data half. Also the pause between rounds
  // of attempts.
  Nanos grace() const { return peer_timeout() / 8; }

  TransportOptions options_;
  std::string address_;
  std::vector<Inner> inner_;
  bool pollable_ = true;
  bool polls_expected_ = false;
  Poller poller_;
  RegionTable regions_;
  LinkTable<FailoverLink> links_;
  size_t links_alive_ = 0;
  size_t events_max_ = 0;
  EventQueue events_;
  BoundedQueue<LinkId> work_;          // links that may have work, each once
  std::vector<Half*> pending_halves_;  // oldest first
  bool tick_due_ = false;
  std::array<Counter, kPathsMax> links_on_;  // by inner transport
  Counter switches_;
};

}  // namespace gradbus
