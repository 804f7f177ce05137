#include "transport/faulty/faulty.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <utility>

#include "common/check.h"
#include "common/errors.h"
#include "common/fd.h"

namespace gradbus {
namespace {

using Kind = TransportEvent::Kind;

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, const FaultPlan& plan);

  Result<RegionId> register_memory(std::span<std::byte> memory) override;
  void unregister_memory(RegionId region) override;
  std::string local_address() const override { return inner_->local_address(); }
  Result<LinkId> connect(std::string_view address, const FrameHeader& hello) override;
  Code post_send(LinkId link, const FrameHeader& header, Slice payload, uint64_t token) override;
  Code post_receive(LinkId link, Slice into, uint64_t token) override;
  size_t poll(std::span<TransportEvent> events) override;
  void disconnect(LinkId link) override;
  int wait_fd() const override { return epoll_.get(); }
  void expect_polls(bool expected) override { inner_->expect_polls(expected); }
  TransportTotals totals() const override { return inner_->totals(); }
  std::string link_error(LinkId link) const override;

 private:
  struct Delayed {
    TransportEvent event;
    uint64_t due = 0;  // the poll that may hand it out
  };
  // An outstanding receive: where its frame will lie. Our token goes inside; the caller's comes
  // back.
  struct Receive {
    std::span<std::byte> slot;
    uint64_t token = 0;
  };
  struct Fault {
    Code code = Code::kOk;
    std::string text;
  };

  bool happens(double chance) { return chance > 0 && uniform_(random_) < chance; }
  uint64_t below(uint64_t end) { return random_() % end; }

  void take_in(TransportEvent event);
  void take_frame(TransportEvent& event, std::span<std::byte> slot);
  void flip_bit(LinkId link, std::span<std::byte> frame);
  void break_link(LinkId link, const Status& why);
  bool may_leave(size_t index) const;
  void set_wake();

  std::unique_ptr<Transport> inner_;
  FaultPlan plan_;
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> uniform_{0, 1};
  std::map<uint32_t, std::span<std::byte>> regions_;
  std::map<uint64_t, Receive> receives_;
  uint64_t last_receive_ = 0;
  std::map<uint32_t, Fault> faults_;  // by link: why we broke it
  std::deque<Delayed> delayed_;
  uint64_t polls_ = 0;
  Fd epoll_;
  Fd wake_;
  bool awake_ = false;
};

FaultyTransport::FaultyTransport(std::unique_ptr<Transport> inner, const FaultPlan& plan)
    : Transport(inner->clock()), inner_(std::move(inner)), plan_(plan), random_(plan.seed) {
  if (inner_->wait_fd() < 0) return;
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  epoll_event readable{};
  readable.events = EPOLLIN;
  GRADBUS_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, inner_->wait_fd(), &readable) == 0);
  GRADBUS_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &readable) == 0);
}

Result<RegionId> FaultyTransport::register_memory(std::span<std::byte> memory) {
  Result<RegionId> region = inner_->register_memory(memory);
  if (region.ok()) regions_[region.value().index] = memory;
  return region;
}

void FaultyTransport::unregister_memory(RegionId region) {
  inner_->unregister_memory(region);
  regions_.erase(region.index);
}

Result<LinkId> FaultyTransport::connect(std::string_view address, const FrameHeader& hello) {
  Result<LinkId> link = inner_->connect(address, hello);
  if (link.ok()) faults_.erase(link.value().index);
  return link;
}

Code FaultyTransport::post_send(LinkId link, const FrameHeader& header, Slice payload,
                                uint64_t token) {
  if (happens(plan_.busy)) return Code::kBusy;
  return inner_->post_send(link, header, payload, token);
}

Code FaultyTransport::post_receive(LinkId link, Slice into, uint64_t token) {
  if (happens(plan_.busy)) return Code::kBusy;
  const Code code = inner_->post_receive(link, into, last_receive_ + 1);
  if (code != Code::kOk) return code;
  const std::span<std::byte> slot = regions_.at(into.region.index).subspan(into.offset, into.bytes);
  receives_[++last_receive_] = {slot, token};
  return code;
}

void FaultyTransport::disconnect(LinkId link) { inner_->disconnect(link); }

std::string FaultyTransport::link_error(LinkId link) const {
  const auto fault = faults_.find(link.index);
  return fault == faults_.end() ? inner_->link_error(link) : fault->second.text;
}

size_t FaultyTransport::poll(std::span<TransportEvent> events) {
  ++polls_;
  std::array<TransportEvent, 64> fresh;
  const size_t came = inner_->poll(fresh);
  for (size_t i = 0; i < came; ++i) take_in(fresh[i]);
  size_t count = 0;
  for (size_t i = 0; i < delayed_.size() && count < events.size();) {
    if (!may_leave(i)) {
      ++i;
      continue;
    }
    events[count++] = delayed_[i].event;
    delayed_.erase(delayed_.begin() + static_cast<ptrdiff_t>(i));
  }
  set_wake();
  return count;
}

// Decides what becomes of an event of the inner transport.
void FaultyTransport::take_in(TransportEvent event) {
  if (event.kind == Kind::kAccepted) faults_.erase(event.link.index);
  const auto fault = faults_.find(event.link.index);
  if (fault != faults_.end() && event.code != Code::kOk) event.code = fault->second.code;
  if (event.kind == Kind::kReceived) {
    const auto receive = receives_.extract(event.token);
    event.token = receive.mapped().token;
    if (event.code == Code::kOk) take_frame(event, receive.mapped().slot);
  }
  const bool late = happens(plan_.delay);
  delayed_.push_back({event, polls_ + (late ? 1 + below(plan_.delay_polls_max) : 0)});
}

void FaultyTransport::take_frame(TransportEvent& event, std::span<std::byte> slot) {
  const auto broken = faults_.find(event.link.index);
  if (broken == faults_.end() && happens(plan_.drop_link)) {
    break_link(event.link, error("P102", "link dropped by the fault plan"));
  } else if (broken == faults_.end() && happens(plan_.corrupt)) {
    flip_bit(event.link, slot.first(event.bytes));
  }
  const auto fault = faults_.find(event.link.index);
  if (fault == faults_.end()) return;
  event.code = fault->second.code;
  event.bytes = 0;
}

// What a receiver does with a frame that changed on its way, on the bytes themselves.
void FaultyTransport::flip_bit(LinkId link, std::span<std::byte> frame) {
  const uint64_t bit = below(frame.size() * 8);
  frame[bit / 8] ^= std::byte{1} << (bit % 8);
  FrameHeader header;
  std::memcpy(&header, frame.data(), sizeof(header));
  Status found = check_frame_header(header);
  if (found.ok()) found = check_frame_payload(header, frame.subspan(sizeof(header)));
  GRADBUS_CHECK(!found.ok());  // CRC32C finds every single flipped bit
  break_link(link, found);
}

void FaultyTransport::break_link(LinkId link, const Status& why) {
  faults_[link.index] = {why.code(), why.message()};
  inner_->disconnect(link);
}

// Due, not before anything of its link that it must follow, and in order unless the plan reorders:
// a link's first event is first and its kClosed last in any case.
bool FaultyTransport::may_leave(size_t index) const {
  const TransportEvent& event = delayed_[index].event;
  if (delayed_[index].due > polls_) return false;
  for (size_t i = 0; i < index; ++i) {
    const TransportEvent& earlier = delayed_[i].event;
    if (!plan_.reorder) return false;
    const bool first = earlier.kind == Kind::kAccepted || earlier.kind == Kind::kConnected;
    if (earlier.link == event.link && (first || event.kind == Kind::kClosed)) return false;
  }
  return true;
}

void FaultyTransport::set_wake() {
  if (!wake_.valid() || awake_ == !delayed_.empty()) return;
  awake_ = !delayed_.empty();
  eventfd_t ignored = 0;
  (void)(awake_ ? eventfd_write(wake_.get(), 1) : eventfd_read(wake_.get(), &ignored));
}

}  // namespace

std::unique_ptr<Transport> make_faulty(std::unique_ptr<Transport> inner, const FaultPlan& plan) {
  return std::make_unique<FaultyTransport>(std::move(inner), plan);
}

}  // namespace gradbus
