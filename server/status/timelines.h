// The newest spans of jobs that were traced, for the timeline on the web page. Pure; one thread at
// a time.
//
// `gradbus trace` takes all spans of a job. Here is a bounded copy of the last ones, without names
// of tensors and layers: these are only for the job's owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "gradbus/v1/coordinator.pb.h"

namespace gradbus {

inline constexpr size_t kTimelinesMax = 8;
inline constexpr size_t kTimelineTracksMax = 48;  // ranks and agents of a job
inline constexpr size_t kTrackSpansMax = 512;
inline constexpr size_t kTimelineSteps = 3;

struct TimelineSpan {
  uint32_t kind = 0;  // TraceKind; kPhase: a whole step of the training loop
  int64_t begin = 0;  // by the coordinator's clock
  int64_t end = 0;
};

struct Timeline {
  struct Track {
    std::string node;
    std::deque<TimelineSpan> spans;
  };
  uint64_t version = 0;             // changes with each span
  Nanos received = 0;               // when the last span came
  std::map<int64_t, Track> tracks;  // by rank; behind them the agents
};

class Timelines {
 public:
  using ById = std::vector<std::pair<uint64_t, std::shared_ptr<const Timeline>>>;

  // Records of a job that is traced. `agent`: its index in the job; `offset`: of its clock.
  void add(const v1::TraceRecords& records, uint32_t agent, const std::string& node, int64_t offset,
           Nanos now);
  // Copies, which are made only of timelines that have changed since the last call.
  ById copies();

 private:
  struct Kept {
    Timeline timeline;
    std::shared_ptr<const Timeline> copy;
  };
  Timeline& of_job(uint64_t job_id);

  std::map<uint64_t, Kept> kept_;  // by the job's id
};

// The last steps as one object: {"length_us", "steps", "tracks": [{"rank", "node", "spans"}]}. A
// span is [kind, begin, end], in us from the begin of what is shown. `steps` is 0 where the
// training loop has no steps; then the last tenth of the time is shown.
std::string timeline_json(const Timeline& timeline);

}  // namespace gradbus
