#include "server/coordinator/jobs/event_log.h"

#include <algorithm>

#include "server/coordinator/members/text.h"

namespace gradbus {
namespace {

constexpr bool in_order() {
  size_t at = 0;
  for (const EventKindInfo& info : kEventKinds)
    if (static_cast<size_t>(info.kind) != at++) return false;
  return true;
}
static_assert(in_order());

}  // namespace

void EventLog::add(EventKind kind, const std::string& node, const std::string& job,
                   std::string_view text, Nanos now) {
  Event event{kind, node, job, clean_text(text, kEventTextBytesMax), now};
  if (!events_.empty()) {
    Event& newest = events_.back();
    if (newest.kind == kind && newest.node == node && newest.job == job &&
        newest.text == event.text) {
      newest.at = now;
      ++newest.times;
      return;
    }
  }
  if (events_.size() == kEventsKept) events_.pop_front();
  events_.push_back(std::move(event));
  ++last_;
}

v1::EventsReply EventLog::after(uint64_t number, Nanos now, size_t newest) const {
  v1::EventsReply reply;
  const uint64_t first_kept = last_ - events_.size() + 1;
  const uint64_t wanted = std::min(number, last_) + 1;
  const uint64_t oldest_of_newest = last_ - std::min<uint64_t>(newest, last_) + 1;
  const uint64_t first = std::max({wanted, first_kept, oldest_of_newest});
  reply.set_dropped(first - wanted);
  for (uint64_t i = first; i <= last_; ++i) {
    const Event& event = events_[i - first_kept];
    v1::Event& shown = *reply.add_events();
    shown.set_number(i);
    shown.set_kind(std::string(kEventKinds[static_cast<size_t>(event.kind)].word));
    shown.set_node(event.node);
    shown.set_job(event.job);
    shown.set_text(event.text);
    shown.set_age_ms(static_cast<uint64_t>((now - event.at) / kMillisecond));
    shown.set_times(event.times);
  }
  return reply;
}

}  // namespace gradbus
