// Measures the cost of a path between two agents over their transport. One engine sends frames
// (PathProbe) on a separate link, whose job id is kProbeJob. The other engine (ProbeEcho) answers
// each frame with an empty one.
//
// First it sends messages without payload, one at a time. alpha is half of the quickest round trip,
// because noise only adds time. Then it sends a burst of frames. Their number in flight is limited
// by a window that grows with each answer, so a slow wire never gets more than it can carry soon.
// beta is the time of the fastest stretch of answers. A stretch has three windows. A late look at
// the clock makes some answers seem to arrive at once; they are at most a third of the stretch.
// Both figures contain the costs of a job's frames too: checksums, system calls, wake-ups.
//
// It is limited in bytes, in time and by a deadline. On 100 Mbit/s it takes about 0.1 s, on 10
// Gbit/s 5 ms. Engine thread only; steps do not block. An object may be destroyed once it is
// closed().
#pragma once

#include <string>
#include <vector>

#include "common/clock.h"
#include "transport/transport.h"

namespace gradbus {

inline constexpr uint64_t kProbeJob = 0;  // job ids are never 0

inline constexpr uint32_t kProbePings = 16;
inline constexpr uint32_t kProbeFrameBytes = 64 << 10;
inline constexpr uint32_t kProbeFramesMin = 8;   // minimum of the burst, on any path
inline constexpr uint32_t kProbeFramesMax = 64;  // 4 MiB
inline constexpr uint32_t kProbeWindowMax = 8;   // 512 KiB: 10 Gbit/s at round trips of 0.4 ms
// Answers per stretch; nearly all of a short burst.
inline constexpr uint32_t kProbeStretch = 3 * kProbeWindowMax;
// After it no frame is sent, except up to the minimum.
inline constexpr Nanos kProbeBurst = 50 * kMillisecond;
inline constexpr Nanos kProbeLimit = 4 * kSecond;  // after it the link is closed

// Memory that the transport may use while a probe lasts. If none can be registered, no frame can be
// posted, and the deadline ends the probe.
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
  // Sends allowed frames and checks the clock. Returns how much it did.
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
  Nanos sent_at_ = 0;           // of the last one
  Nanos burst_at_ = 0;          // of its first frame
  Nanos quickest_ = 0;          // shortest round trip
  std::vector<Nanos> answers_;  // arrival times, first those of pings
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
