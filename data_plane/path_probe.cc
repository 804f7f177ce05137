#include "data_plane/path_probe.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace gradbus {
namespace {

constexpr uint64_t kAnswerSlotBytes = 128;
static_assert(kAnswerSlotBytes >= sizeof(FrameHeader));
constexpr uint64_t kEchoSlotBytes = sizeof(FrameHeader) + kProbeFrameBytes;
constexpr uint32_t kFramesMax = kProbePings + kProbeFramesMax;
static_assert(kProbeFramesMin >= 4 && kProbeFramesMin <= kProbeFramesMax);

FrameHeader frame_header(FrameKind kind, uint64_t number) {
  FrameHeader header;
  header.kind = static_cast<uint8_t>(kind);
  header.job = kProbeJob;
  header.step = number;
  return header;
}

// The shortest time in which `stretch` more answers arrived.
Nanos fastest(std::span<const Nanos> answers, size_t stretch) {
  Nanos least = answers[stretch] - answers[0];
  for (size_t i = 1; i + stretch < answers.size(); ++i)
    least = std::min(least, answers[i + stretch] - answers[i]);
  return std::max<Nanos>(least, 1);
}

bool is_probe(const FrameHeader& header) {
  return header.kind == static_cast<uint8_t>(FrameKind::kProbe);
}

}  // namespace

// ---- memory

// Writes the memory once. Untouched pages would all map the same zeros, which stay in the cache.
ProbeMemory::ProbeMemory(Transport& transport, size_t bytes)
    : transport_(transport), bytes_(bytes, std::byte{1}) {
  const Result<RegionId> region = transport_.register_memory(bytes_);
  if (region.ok()) region_ = region.value();
}

ProbeMemory::~ProbeMemory() {
  if (region_.index != kNoRegion) transport_.unregister_memory(region_);
}

FrameHeader ProbeMemory::header(uint64_t offset) const {
  FrameHeader header;
  std::memcpy(&header, bytes_.data() + offset, sizeof(header));
  return header;
}

// ---- the requesting side

PathProbe::PathProbe(Transport& transport, const std::string& address, Nanos now)
    : transport_(transport),
      memory_(transport, kProbeFrameBytes + kProbeWindowMax * kAnswerSlotBytes),
      deadline_(now + kProbeLimit) {
  answers_.reserve(kFramesMax);
  const Result<LinkId> link = transport_.connect(address, frame_header(FrameKind::kHello, 0));
  if (!link.ok()) {
    state_ = State::kFailed;
    return;
  }
  link_ = link.value();
  open_ = true;
  for (uint64_t slot = 0; slot < kProbeWindowMax; ++slot) {
    const uint64_t offset = kProbeFrameBytes + slot * kAnswerSlotBytes;
    transport_.post_receive(link_, memory_.slice(offset, kAnswerSlotBytes), offset);
  }
}

void PathProbe::on_event(const TransportEvent& event, Nanos now) {
  using Kind = TransportEvent::Kind;
  switch (event.kind) {
    case Kind::kConnected:
      if (state_ == State::kConnecting) state_ = State::kRunning;
      return;
    case Kind::kReceived:
      if (state_ == State::kRunning && !take_answer(event, now)) end(State::kFailed);
      return;
    case Kind::kClosed:
      open_ = false;
      if (state_ != State::kDone) state_ = State::kFailed;
      return;
    default: return;
  }
}

// Returns false when the other side breaks the rules, or the link ends.
bool PathProbe::take_answer(const TransportEvent& event, Nanos now) {
  if (event.code != Code::kOk || !is_probe(memory_.header(event.token))) return false;
  if (event.bytes != sizeof(FrameHeader) || answers_.size() == sent_) return false;
  answers_.push_back(now);
  if (answers_.size() <= kProbePings) {
    const Nanos took = std::max<Nanos>(now - sent_at_, 1);
    quickest_ = quickest_ == 0 ? took : std::min(quickest_, took);
  }
  transport_.post_receive(link_, memory_.slice(event.token, kAnswerSlotBytes), event.token);
  return true;
}

// The number of frames that may have been sent by now.
uint32_t PathProbe::allowed(Nanos now) const {
  const auto answered = static_cast<uint32_t>(answers_.size());
  if (answered < kProbePings) return answered + 1;
  const bool late = burst_at_ != 0 && now - burst_at_ > kProbeBurst;
  const uint32_t frames = late ? kProbeFramesMin : kProbeFramesMax;
  const uint32_t window = std::min(2 + answered - kProbePings, kProbeWindowMax);
  return std::min(answered + window, kProbePings + frames);
}

size_t PathProbe::send(Nanos now) {
  const uint32_t before = sent_;
  for (const uint32_t until = allowed(now); sent_ < until; ++sent_) {
    const uint64_t payload = sent_ < kProbePings ? 0 : kProbeFrameBytes;
    const FrameHeader header = frame_header(FrameKind::kProbe, sent_);
    if (transport_.post_send(link_, header, memory_.slice(0, payload), sent_) != Code::kOk) break;
    sent_at_ = now;
    if (sent_ == kProbePings) burst_at_ = now;
  }
  return sent_ - before;
}

size_t PathProbe::do_work(Nanos now) {
  if (now >= deadline_ && (state_ == State::kConnecting || state_ == State::kRunning))
    end(State::kFailed);
  if (state_ != State::kRunning) return 0;
  const size_t sent = send(now);
  if (answers_.size() == sent_ && sent_ >= kProbePings + kProbeFramesMin) finish();
  return sent;
}

void PathProbe::finish() {
  const std::span<const Nanos> burst = std::span(answers_).subspan(kProbePings);
  // A link has several streams, so frames may arrive in pairs: one more or less per stretch.
  const size_t stretch = std::min<size_t>(kProbeStretch, burst.size() - 2);
  alpha_us_ = static_cast<double>(quickest_) / 2 / 1000;
  beta_ns_ = static_cast<double>(fastest(burst, stretch)) /
             (static_cast<double>(stretch) * kProbeFrameBytes);
  end(State::kDone);
}

void PathProbe::end(State state) {
  state_ = state;
  if (open_) transport_.disconnect(link_);
}

// ---- the answering side

ProbeEcho::ProbeEcho(Transport& transport, LinkId link, Nanos now)
    : transport_(transport),
      memory_(transport, kProbeWindowMax * kEchoSlotBytes),
      link_(link),
      deadline_(now + kProbeLimit) {
  for (uint64_t slot = 0; slot < kProbeWindowMax; ++slot) {
    const uint64_t offset = slot * kEchoSlotBytes;
    transport_.post_receive(link_, memory_.slice(offset, kEchoSlotBytes), offset);
  }
}

void ProbeEcho::on_event(const TransportEvent& event) {
  if (event.kind == TransportEvent::Kind::kClosed) open_ = false;
  if (event.kind != TransportEvent::Kind::kReceived || event.code != Code::kOk) return;
  if (!is_probe(memory_.header(event.token)) || ++received_ > kFramesMax)
    return transport_.disconnect(link_);
  transport_.post_receive(link_, memory_.slice(event.token, kEchoSlotBytes), event.token);
}

size_t ProbeEcho::do_work(Nanos now) {
  if (open_ && now >= deadline_) transport_.disconnect(link_);
  size_t sent = 0;
  for (; answered_ < received_; ++answered_, ++sent)
    if (transport_.post_send(link_, frame_header(FrameKind::kProbe, answered_), {}, answered_) !=
        Code::kOk)
      break;
  return sent;
}

}  // namespace gradbus
