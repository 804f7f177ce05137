// The records of a link with several paths. The transport's thread owns them. Their behaviour is in
// failover.cc and the files next to it.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "transport/failover/control.h"
#include "transport/failover/windows.h"
#include "transport/transport.h"

namespace gradbus {

struct FailoverLink;

// One link of an inner transport: the data or the control half of a path. It lives from connect()
// or kAccepted until the inner kClosed. Without `link` it waits for its other half (a pending
// half), or only for its end.
struct Half {
  static constexpr size_t kReceives = 4;
  static constexpr size_t kReceiveBytes = 128;

  uint32_t inner = 0;  // index of the transport
  LinkId id;
  bool control = false;
  bool up = false;
  FailoverLink* link = nullptr;
  FailoverLink* asks_for = nullptr;  // a probe of that link (preferred.cc)
  bool pending = false;
  FrameHeader hello;   // of a pending half
  PathHello greeting;  // of a pending half
  Nanos deadline = 0;  // of one without a link

  // Used by control halves.
  std::array<std::byte, kReceives * kReceiveBytes> memory;
  RegionId region;
  bool serves = false;
  bool sending = false;  // a state is being sent
  TakenFrames said;      // content of the next state
  Notice due = Notice::kState;
  Notice told = Notice::kState;  // of the last one sent
  uint32_t unlent = 0;           // receives for which its transport had no room, one bit each
  Code farewell = Code::kOk;
};

struct Path {
  Half* data = nullptr;
  Half* control = nullptr;

  bool gone() const { return data == nullptr && control == nullptr; }
};

// A path that an opener may use.
struct Candidate {
  uint32_t inner = 0;
  std::string address;
  std::string name;      // "tcp 10.0.0.1:4000"
  std::string why;       // why it failed or ended
  uint32_t corrupt = 0;  // corrupt frames
};

inline constexpr uint32_t kCorruptMax = 3;
inline bool is_usable(const Candidate& candidate) { return candidate.corrupt < kCorruptMax; }

// The pause between checks for a better path. `pause` is doubled for each check without an answer,
// or for each return that did not last; the larger result is used.
Nanos return_pause(Nanos pause, uint32_t failures, uint32_t relapses);

struct FailoverLink {
  // State of an opener that returns to candidates[probed].
  enum class Return : uint8_t {
    kNone,
    kLeaving,  // leaving the current path
    kTrying,
    kBack,  // using the better path
  };
  enum class State : uint8_t {
    kTrying,   // opener: `path` is being opened, or has not answered yet
    kUp,       // `path` carries frames, or will after the peer has reported its state
    kLeaving,  // the halves of `path` are being closed; another path follows
    kWaiting,  // no path; an opener tries again at `retry_at`, an acceptor waits for its opener
    kEnding,   // the link is over; `path.data` is being closed
    kClosed,
  };

  explicit FailoverLink(uint32_t posts_max) : sends(posts_max), receives(posts_max) {}

  LinkId id;
  State state = State::kWaiting;
  bool opener = false;
  bool announced = false;   // kAccepted or kConnected was delivered
  bool peer_ready = false;  // the peer has reported its state on this path
  std::string peer;
  FrameHeader hello;
  PathHello greeting;                 // of the latest attempt
  std::vector<Candidate> candidates;  // an acceptor's: one for each inner transport
  size_t candidate = 0;               // of `path`
  size_t tried = 0;                   // candidates tried in this round
  uint32_t rounds = 0;                // rounds without an answer
  bool cut_short = false;             // an attempt of this round was shortened
  Path path;
  Path next;            // acceptor: the opener's newer path, while the older one is closed
  bool better = false;  // acceptor: `path` is preferred to the one before it
  std::string why;      // why the path ended
  Code why_code = Code::kOk;
  Nanos up_since = 0;
  bool progress = false;   // a frame was received on this path, on either side
  uint32_t fruitless = 0;  // short-lived paths without progress in a row
  uint32_t switches = 0;
  bool counted = false;  // counted for the path of `candidate`
  // Of an opener on a path that is not its first: the way back.
  Half* probe = nullptr;  // under way
  size_t probed = 0;      // candidate of this probe, or of the next
  uint32_t answers = 0;   // answers of that candidate in a row
  Nanos probe_at = 0;
  uint32_t probe_failures = 0;  // of all preferred candidates in a row
  uint32_t relapses = 0;        // returns in a row that did not last
  Return returning = Return::kNone;
  Nanos deadline = 0;       // of the recovery; 0: not recovering
  Nanos path_deadline = 0;  // of kTrying and kLeaving
  Nanos retry_at = 0;
  Code end_code = Code::kOk;

  SendWindow sends;
  ReceivePosts receives;
  ReceiveWindow taken;
  uint32_t sends_outstanding = 0;  // posts whose final event was not yet delivered
  uint32_t receives_outstanding = 0;
  bool queued = false;     // in the transport's work queue
  bool state_due = false;  // a report to the peer is due
};

}  // namespace gradbus
