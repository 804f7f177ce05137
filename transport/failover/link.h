// The records of a link of several paths. The transport's thread owns them; what they do is in
// failover.cc and the files beside it.
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
// or kAccepted until the inner kClosed. Without `link` it waits for its other half (a guest) or
// only to be closed.
struct Half {
  static constexpr size_t kReceives = 4;
  static constexpr size_t kReceiveBytes = 128;

  uint32_t inner = 0;  // index of the transport
  LinkId id;
  bool control = false;
  bool up = false;
  FailoverLink* link = nullptr;
  FailoverLink* asks_for = nullptr;  // a probe of that link (preferred.cc)
  bool guest = false;
  FrameHeader hello;   // of a guest
  PathHello greeting;  // likewise
  Nanos deadline = 0;  // of one without a link

  // A control half that serves.
  std::array<std::byte, kReceives * kReceiveBytes> memory;
  RegionId region;
  bool serves = false;
  bool sending = false;  // a state is on its way
  TakenFrames said;      // what the next one says
  Notice due = Notice::kState;
  Notice told = Notice::kState;  // by the last that was sent
  uint32_t unlent = 0;           // receives that its transport had no room for, a bit each
  Code farewell = Code::kOk;
};

struct Path {
  Half* data = nullptr;
  Half* control = nullptr;

  bool gone() const { return data == nullptr && control == nullptr; }
};

// A path that an opener may take.
struct Candidate {
  uint32_t inner = 0;
  std::string address;
  std::string name;      // "tcp 10.0.0.1:4000"
  std::string why;       // it was not to be had, or ended
  uint32_t corrupt = 0;  // frames
};

inline constexpr uint32_t kCorruptMax = 3;
inline bool is_usable(const Candidate& candidate) { return candidate.corrupt < kCorruptMax; }

// From one look for a better path to the next: `pause`, doubled for each time that nobody answered
// and for each return that did not last, the longer of the two.
Nanos return_pause(Nanos pause, uint32_t failures, uint32_t relapses);

struct FailoverLink {
  // An opener that goes back to candidates[probed].
  enum class Return : uint8_t {
    kNone,
    kLeaving,  // the path that it has
    kTrying,
    kBack,  // is on it
  };
  enum class State : uint8_t {
    kTrying,   // opener: `path` is being opened, or not answered yet
    kUp,       // `path` carries frames, or will when the peer has said what it has
    kLeaving,  // the halves of `path` are being closed; another path follows
    kWaiting,  // no path; an opener tries again at `retry_at`, an acceptor waits for its opener
    kEnding,   // the link is over, `path.data` is being closed
    kClosed,
  };

  explicit FailoverLink(uint32_t posts_max) : sends(posts_max), receives(posts_max) {}

  LinkId id;
  State state = State::kWaiting;
  bool opener = false;
  bool announced = false;   // kAccepted or kConnected was given
  bool peer_ready = false;  // the peer has said on this path what it has
  std::string peer;
  FrameHeader hello;
  PathHello greeting;                 // of the last attempt
  std::vector<Candidate> candidates;  // an acceptor's: one for each inner transport
  size_t candidate = 0;               // of `path`
  size_t tried = 0;                   // candidates of this round
  uint32_t rounds = 0;                // in which nobody answered
  bool cut_short = false;             // an attempt of this round was
  Path path;
  Path next;            // acceptor: the opener's newer path, while the older one is being left
  bool better = false;  // acceptor: `path` comes before the one that it follows
  std::string why;      // the path ended
  Code why_code = Code::kOk;
  Nanos up_since = 0;
  bool progress = false;   // a frame was taken on this path, here or there
  uint32_t fruitless = 0;  // short-lived paths without progress in a row
  uint32_t switches = 0;
  bool counted = false;  // on `candidate`, among those that are on its path
  // Of an opener on a path that is not its first: the way back.
  Half* probe = nullptr;  // under way
  size_t probed = 0;      // candidate of this probe, or of the next
  uint32_t answers = 0;   // of that candidate in a row
  Nanos probe_at = 0;
  uint32_t probe_failures = 0;  // of all preferred candidates in a row
  uint32_t relapses = 0;        // returns in a row that did not last
  Return returning = Return::kNone;
  Nanos deadline = 0;       // of the recovery; 0: none
  Nanos path_deadline = 0;  // of kTrying and kLeaving
  Nanos retry_at = 0;
  Code end_code = Code::kOk;

  SendWindow sends;
  ReceivePosts receives;
  ReceiveWindow taken;
  uint32_t sends_outstanding = 0;  // until the event that ends the post is handed out
  uint32_t receives_outstanding = 0;
  bool queued = false;     // in the transport's work queue
  bool state_due = false;  // the peer has to be told what was taken
};

}  // namespace gradbus
