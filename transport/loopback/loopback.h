// Frames copied inside one process, between instances that find each other by address. For tests
// and simulations; it keeps the same promises as any other backend.
//
// Each instance belongs to one thread, and different instances may belong to different threads: one
// lock, process-wide, is held for each call, copies included. A frame moves when both its send and
// a receive are posted, in whichever call comes second, so nothing is ever in between.
#pragma once

#include <memory>
#include <string>

#include "common/fd.h"
#include "transport/bounded_queue.h"
#include "transport/link_events.h"
#include "transport/link_table.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace gradbus {

class LoopbackTransport final : public Transport {
 public:
  // bind_address "loopback:NAME" takes that address (GB-D603 when it is taken); anything else gets
  // a free one. `streams` and `peer_timeout_ms` mean nothing here.
  static Result<std::unique_ptr<Transport>> create(const TransportOptions& options);
  ~LoopbackTransport() override;

  Result<RegionId> register_memory(std::span<std::byte> memory) override;
  void unregister_memory(RegionId region) override;
  std::string local_address() const override { return address_; }
  Result<LinkId> connect(std::string_view address, const FrameHeader& hello) override;
  Code post_send(LinkId link, const FrameHeader& header, Slice payload, uint64_t token) override;
  Code post_receive(LinkId link, Slice into, uint64_t token) override;
  size_t poll(std::span<TransportEvent> events) override;
  void disconnect(LinkId link) override;
  int wait_fd() const override { return wake_.get(); }
  std::string link_error(LinkId link) const override;

 private:
  struct Outgoing {
    FrameHeader header;
    std::span<const std::byte> payload;
    uint64_t token = 0;
  };
  struct Incoming {
    std::span<std::byte> slot;
    uint64_t token = 0;
  };
  // One side of a link. `other` is nullptr once it has ended.
  struct Link {
    LinkId id;
    LoopbackTransport* owner = nullptr;
    Link* other = nullptr;
    BoundedQueue<Outgoing> sends;
    BoundedQueue<Incoming> receives;
    uint32_t sends_outstanding = 0;
    uint32_t receives_outstanding = 0;
  };

  explicit LoopbackTransport(const TransportOptions& options)
      : Transport(*options.clock), options_(options) {}
  Status start();

  // The hub's lock is held by the caller of all of these.
  Link& add_link();
  Link* open_link(LinkId id) const;
  LinkEvents events_of(const Link& link) { return LinkEvents(events_, link.id); }
  void wake();
  static void match(Link& sender);
  static bool deliver(Link& sender);
  static void end(Link& link, Code code, std::string text);
  static void end_both(Link& link, Code code, Code code_of_other, const std::string& text);
  void hand_out(const TransportEvent& event);

  TransportOptions options_;
  std::string address_;
  Fd wake_;
  RegionTable regions_;
  LinkTable<Link> links_;
  size_t events_max_ = 0;
  EventQueue events_;
};

}  // namespace gradbus
