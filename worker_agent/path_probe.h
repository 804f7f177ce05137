// What a path between two agents costs, measured over their transport. One engine asks (PathProbe)
// on a link of its own, which names kProbeJob instead of a job, and the other answers (ProbeEcho)
// each frame with one that has no payload.
//
// First messages without payload, one at a time: alpha is half of the quickest round trip, because
// noise only adds. Then a burst of frames, no more under way than a window that grows with each
// answer, so a slow wire is never owed more than it can carry soon: beta is the time of the fastest
// stretch of answers. A stretch has three windows: answers that a late look at the clock makes seem
// to come at once are a third of it at most. Both figures contain what a job's frames cost too:
// checksums, system calls, wake-ups.
//
// Bounded by bytes, by time and by a deadline; on 100 Mbit/s it takes about 0.1 s, on 10 Gbit/s
// 5 ms. Engine thread only; steps do not block. An object may be destroyed once it is closed().
#pragma once

#include <string>
#include <vector>

#include "common/clock.h"
#include "transport/transport.h"

namespace gradbus {

inline constexpr uint64_t kProbeJob = 0;  // ids of jobs are never 0

inline constexpr uint32_t kProbePings = 16;
inline constexpr uint32_t kProbeFrameBytes = 64 << 10;
inline constexpr uint32_t kProbeFramesMin = 8;   // of the burst, however slow
inline constexpr uint32_t kProbeFramesMax = 64;  // 4 MiB
inline constexpr uint32_t kProbeWindowMax = 8;   // 512 KiB: 10 Gbit/s at round trips of 0.4 ms
inline constexpr uint32_t kProbeStretch =
    3 * kProbeWindowMax;                                 // of answers; of a short burst nearly all
inline constexpr Nanos kProbeBurst = 50 * kMillisecond;  // after it no frame is sent, but the least
inline constexpr Nanos kProbeLimit = 4 * kSecond;        // after it the link is closed

// Memory that the transport may use while a probe lasts. Where none can be registered, no frame can
// be posted and the deadline ends the probe.
class ProbeMemory {
 public:
  ProbeMemory(Transport& transport, size_t bytes);
  ~ProbeMemory();
  ProbeMemory(const ProbeMemory&) = delete;
  ProbeMemory& operator=(const ProbeMemory&) = delete;

  Slice slice(uint64_t offset, uint64_t bytes) const { return {region_, offset, bytes}; }
  FrameHeader header(uint64_t offset) const;  // of the frame received there

 private:
  static constexpr uint32_t kNoRegion = UINT32_MAX;

  Transport& transport_;
  std::vector<std::byte> bytes_;
  RegionId region_{kNoRegion};
};

class PathProbe {
 public:
  enum class State : uint8_t { kConnecting, kRunning, kDone, kFailed };

  PathProbe(Transport& transport, const std::string& address, Nanos now);

  bool owns(LinkId link) const { return open_ && link == link_; }
  void on_event(const TransportEvent& event, Nanos now);
  // Sends what may be sent, looks at the clock; how much it did.
  size_t do_work(Nanos now);

  State state() const { return state_; }
  bool closed() const { return !open_; }
  // 0 unless done.
  double alpha_us() const { return alpha_us_; }
  double beta_ns() const { return beta_ns_; }

 private:
  uint32_t allowed(Nanos now) const;
  size_t send(Nanos now);
  bool take_answer(const TransportEvent& event, Nanos now);
  void finish();
  void end(State state);

  Transport& transport_;
  ProbeMemory memory_;  // the payload of all frames, then slots for answers
  const Nanos deadline_;
  State state_ = State::kConnecting;
  LinkId link_;
  bool open_ = false;
  uint32_t sent_ = 0;
  Nanos sent_at_ = 0;           // the last one
  Nanos burst_at_ = 0;          // its first frame
  Nanos quickest_ = 0;          // round trip
  std::vector<Nanos> answers_;  // when they came, pings' first
  double alpha_us_ = 0;
  double beta_ns_ = 0;
};

class ProbeEcho {
 public:
  ProbeEcho(Transport& transport, LinkId link, Nanos now);

  bool owns(LinkId link) const { return open_ && link == link_; }
  void on_event(const TransportEvent& event);
  size_t do_work(Nanos now);
  bool closed() const { return !open_; }

 private:
  Transport& transport_;
  ProbeMemory memory_;
  const LinkId link_;
  const Nanos deadline_;
  bool open_ = true;
  uint32_t received_ = 0;
  uint32_t answered_ = 0;
};

}  // namespace gradbus
