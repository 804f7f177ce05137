// The TCP backend: several connections per link, all non-blocking, in one epoll set. Connections to
// a process of the same machine use shared memory where possible (stream_channel.h).
//
// One role thread owns a TcpTransport and calls every member function. hello.h describes how a link
// begins. The side that ends a link sends nothing more, but frames reported as sent still arrive.
// Its connections are half-closed and drained, not reset, until the peer has read everything or a
// deadline passes. The other side delivers the received frames, then closes. A link ends as
// kPeerLost when the peer breaks off or is silent for peer_timeout_ms, and as kCorrupt after a
// wrong checksum.
//
//   poll()      tcp.cc                    events (poller.h), links with work, hand out events
//   one stream  stream_work.cc            frame_reader.h, frame_writer.h
//   begin, end  connection_lifecycle.cc   pending_connections.h, hello.h
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/fd.h"
#include "transport/link_events.h"
#include "transport/link_table.h"
#include "transport/net/address.h"
#include "transport/net/congestion.h"
#include "transport/net/poller.h"
#include "transport/region_table.h"
#include "transport/tcp/link.h"
#include "transport/tcp/pending_connections.h"
#include "transport/transport.h"

namespace gradbus {

class TcpTransport final : public Transport {
 public:
  // Listens at once. Returns GB-F100 for an option out of range, GB-D603 when the address is not
  // available.
  static Result<std::unique_ptr<Transport>> create(const TransportOptions& options);

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
  TransportTotals totals() const override;

 private:
  struct Listener {
    Fd fd;
    bool local = false;    // for processes of this machine
    bool watched = false;  // false for one tick when descriptors ran out
  };
  struct Draining {
    std::unique_ptr<Stream> stream;
    Nanos deadline = 0;
  };

  explicit TcpTransport(const TransportOptions& options)
      : Transport(*options.clock), options_(options) {}
  Status start();

  // tcp.cc
  void collect();
  void note(Stream& stream, uint32_t edges);
  void queue(Stream& stream);
  void serve(size_t events_wanted);
  void serve_one(Stream& stream);
  size_t hand_out(std::span<TransportEvent> events);
  TcpLink* open_link(LinkId id) const;
  LinkEvents events_of(const TcpLink& link) { return LinkEvents(events_, link.id); }

  // stream_work.cc: reads and writes a stream of a link that is up
  void read_frames(Stream& stream);
  bool after_read(Stream& stream, const IoResult& result);
  void write_frames(Stream& stream);
  void stream_over(Stream& stream, Status broken);
  void note_end(Stream& stream, uint32_t edges);
  void begin_ending(TcpLink& link, Nanos grace);
  Nanos orderly_grace() const { return peer_timeout() / 2; }
  Nanos broken_grace() const { return peer_timeout() / 8; }

  // connection_lifecycle.cc: begin and end of a link
  TcpLink& add_link(std::unique_ptr<TcpLink> link);
  Status add_stream(TcpLink& link, const SocketAddress& address);
  Result<StreamChannel> open_channel(const SocketAddress& address);
  void accept_connections();
  void admit_from(Listener& listener, PendingConnections::Streams& leaving);
  void read_pending(Stream& pending);
  void accept_complete(PendingConnections::PendingLink complete);
  void greet(Stream& stream);
  void finish_greeting(Stream& stream);
  void refuse_connect(TcpLink& link, std::string_view why, std::string_view next = {});
  void lose_link(TcpLink& link);
  void end_link(TcpLink& link, Code code, std::string text);
  void part(std::unique_ptr<Stream> stream, bool drain);
  void drain(Stream& stream);
  void retire(std::unique_ptr<Stream> stream);
  void retire_all(PendingConnections::Streams& streams);

  // ticks.cc: everything with a deadline
  void tick();
  bool tick_link(TcpLink& link, Nanos now);
  Nanos peer_timeout() const { return options_.peer_timeout_ms * kMillisecond; }

  TransportOptions options_;
  CongestionControl congestion_;
  std::vector<Listener> listeners_;
  std::string address_;
  Poller poller_;
  RegionTable regions_;
  LinkTable<TcpLink> links_;
  size_t events_max_ = 0;
  EventQueue events_;
  size_t streams_alive_ = 0;
  bool tick_due_ = false;
  BoundedQueue<Stream*> work_;  // streams that may have work, each once
  PendingConnections pending_connections_;
  std::vector<Draining> draining_;
  PendingConnections::Streams retired_;  // an event of the running poll may still point to them
  Counter sent_bytes_;
  Counter shared_bytes_;
  Counter received_bytes_;
  Counter copied_twice_bytes_;
};

}  // namespace gradbus
