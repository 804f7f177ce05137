// What has happened in the cluster, for `gradbus events` and the web page. Part of Coordinator;
// pure.
//
// The log keeps the newest kEventsKept events. An event that equals the one before it in all but
// its time is counted there, so a program that repeats a mistake does not push out the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "gradbus/v1/coordinator.pb.h"

namespace gradbus {

inline constexpr size_t kEventsKept = 1024;
inline constexpr size_t kEventTextBytesMax = 500;

// In the order of kEventKinds. Words are only added, never changed.
enum class EventKind : uint8_t {
  kStarted,
  kReloaded,
  kAttached,
  kNodeStopped,
  kLost,
  kRefused,
  kForgotten,
  kDrained,
  kUndrained,
  kJobStarted,
  kJobFinished,
  kJobStopped,
  kJobFailed,
  kStalled,
  kMode,
  kShards,
};

struct EventKindInfo {
  EventKind kind;
  std::string_view word;     // in answers
  std::string_view meaning;  // a sentence
};
inline constexpr EventKindInfo kEventKinds[] = {
    {EventKind::kStarted, "started", "The coordinator was started."},
    {EventKind::kReloaded, "reloaded", "The coordinator has read its configuration again."},
    {EventKind::kAttached, "attached", "An agent or shard has attached."},
    {EventKind::kNodeStopped, "node_stopped", "An agent or shard was stopped on purpose."},
    {EventKind::kLost, "lost", "An agent or shard ended without a goodbye, or was silent."},
    {EventKind::kRefused, "refused", "An agent or shard may not attach."},
    {EventKind::kForgotten, "forgotten", "A person has removed a lost node from the list."},
    {EventKind::kDrained, "drained", "A person gives the node no new jobs."},
    {EventKind::kUndrained, "undrained", "The node takes jobs again."},
    {EventKind::kJobStarted, "job_started", "All ranks of the job have joined."},
    {EventKind::kJobFinished, "job_finished", "All ranks of the job have left."},
    {EventKind::kJobStopped, "job_stopped", "A person has stopped the job."},
    {EventKind::kJobFailed, "job_failed", "The job has ended with an error."},
    {EventKind::kStalled, "stalled", "Ranks of the job wait for a late rank."},
    {EventKind::kMode, "mode", "A group of tensors changes its mode at the next fence."},
    {EventKind::kShards, "shards", "The job has lost a shard, or changes its shards."},
};

class EventLog {
 public:
  // `node`, `job`: "" when the event is about none. `text`: one line; it is cut if it is too long.
  void add(EventKind kind, const std::string& node, const std::string& job, std::string_view text,
           Nanos now);
  // The events after this number; at most `newest` of them.
  v1::EventsReply after(uint64_t number, Nanos now, size_t newest = kEventsKept) const;

 private:
  struct Event {
    EventKind kind = EventKind::kStarted;
    std::string node;
    std::string job;
    std::string text;
    Nanos at = 0;
    uint64_t times = 1;
  };

  std::deque<Event> events_;
  uint64_t last_ = 0;  // number of the newest event
};

}  // namespace gradbus
