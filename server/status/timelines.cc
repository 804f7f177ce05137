#include "server/status/timelines.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "proto/trace.h"

namespace gradbus {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kAgents = int64_t{1} << 32;  // where their tracks begin

constexpr auto number_of(TraceKind kind) { return static_cast<uint32_t>(kind); }

bool is_shown(const v1::TraceSpan& span, bool of_rank) {
  if (span.end_ns() < span.begin_ns()) return false;
  if (!of_rank)
    return span.kind() == number_of(TraceKind::kSend) ||
           span.kind() == number_of(TraceKind::kReceive);
  return span.kind() == number_of(TraceKind::kWait) ||
         span.kind() == number_of(TraceKind::kFlight) ||
         (span.kind() == number_of(TraceKind::kPhase) && span.name() == "step");
}

// In us with one digit behind the point.
double tenths_of_us(int64_t ns) {
  const int64_t tenths = ns / 100;
  return static_cast<double>(tenths) / 10;
}

struct Window {
  int64_t begin = 0;
  int64_t end = 0;
  size_t steps = 0;
};

std::vector<int64_t> step_ends(const Timeline::Track& track) {
  std::vector<int64_t> ends;
  for (const TimelineSpan& span : track.spans)
    if (span.kind == number_of(TraceKind::kPhase)) ends.push_back(span.end);
  std::ranges::sort(ends);
  return ends;
}

// The last steps of the first rank that has any; else the last tenth of all spans.
Window window_of(const Timeline& timeline) {
  Window all = {std::numeric_limits<int64_t>::max(), 0};
  for (const auto& [key, track] : timeline.tracks) {
    if (const std::vector<int64_t> ends = step_ends(track); ends.size() > 1) {
      const size_t steps = std::min(kTimelineSteps, ends.size() - 1);
      return {ends[ends.size() - 1 - steps], ends.back(), steps};
    }
    for (const TimelineSpan& span : track.spans) {
      all.begin = std::min(all.begin, span.begin);
      all.end = std::max(all.end, span.end);
    }
  }
  if (all.end <= all.begin) return {};
  all.begin = all.end - (all.end - all.begin + 9) / 10;
  return all;
}

Json spans_json(const Timeline::Track& track, const Window& window) {
  Json spans = Json::array();
  const auto us = [&](int64_t at) {
    return tenths_of_us(std::clamp(at, window.begin, window.end) - window.begin);
  };
  for (const TimelineSpan& span : track.spans)
    if (span.kind != number_of(TraceKind::kPhase) && span.end > window.begin &&
        span.begin < window.end)
      spans.push_back(
          {trace_kind_name(static_cast<TraceKind>(span.kind)), us(span.begin), us(span.end)});
  return spans;
}

}  // namespace

Timeline& Timelines::of_job(uint64_t job_id) {
  if (!kept_.contains(job_id) && kept_.size() >= kTimelinesMax)
    kept_.erase(std::ranges::min_element(
        kept_, {}, [](const auto& entry) { return entry.second.timeline.received; }));
  return kept_[job_id].timeline;
}

void Timelines::add(const v1::TraceRecords& records, uint32_t agent, const std::string& node,
                    int64_t offset, Nanos now) {
  if (records.tracks().empty()) return;
  Timeline& timeline = of_job(records.job_id());
  for (const v1::TraceTrack& from : records.tracks()) {
    const bool of_rank = from.rank() >= 0;
    const int64_t key = of_rank ? int64_t{from.rank()} : kAgents + agent;
    if (!timeline.tracks.contains(key) && timeline.tracks.size() >= kTimelineTracksMax) continue;
    Timeline::Track& track = timeline.tracks[key];
    track.node = node;
    for (const v1::TraceSpan& span : from.spans()) {
      if (!is_shown(span, of_rank)) continue;
      track.spans.push_back({span.kind(), static_cast<int64_t>(span.begin_ns()) - offset,
                             static_cast<int64_t>(span.end_ns()) - offset});
      if (track.spans.size() > kTrackSpansMax) track.spans.pop_front();
      timeline.version += 1;
      timeline.received = now;
    }
  }
}

Timelines::ById Timelines::copies() {
  ById all;
  for (auto& [id, kept] : kept_) {
    if (kept.copy == nullptr || kept.copy->version != kept.timeline.version)
      kept.copy = std::make_shared<const Timeline>(kept.timeline);
    all.emplace_back(id, kept.copy);
  }
  return all;
}

std::string timeline_json(const Timeline& timeline) {
  const Window window = window_of(timeline);
  Json tracks = Json::array();
  for (const auto& [key, track] : timeline.tracks) {
    const bool of_rank = key < kAgents;
    tracks.push_back({{"rank", of_rank ? Json(key) : Json(nullptr)},
                      {"node", track.node},
                      {"spans", spans_json(track, window)}});
  }
  const Json json = {{"length_us", tenths_of_us(window.end - window.begin)},
                     {"steps", window.steps},
                     {"tracks", tracks}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace gradbus
