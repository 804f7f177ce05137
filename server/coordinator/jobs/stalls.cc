#include "server/coordinator/jobs/stalls.h"

#include <algorithm>

namespace gradbus {
namespace {

constexpr Nanos kRepeatMin = 500 * kMillisecond;  // between two queries or notices of one round
constexpr Nanos kAnswerMax = 10 * kSecond;        // then the agents are asked anew
constexpr Nanos kFreshMax = 2500 * kMillisecond;  // waits are repeated every second
constexpr uint64_t kWaitedMsMax = 7ull * 24 * 3600 * 1000;

std::string what(const std::pair<std::string, uint64_t>& key) {
  if (key.second == 0) return "the registration of " + tensor_in_quotes(key.first);
  return tensor_in_quotes(key.first) + " round " + std::to_string(key.second);
}

std::string lacks(const RankSet& ranks, const std::pair<std::string, uint64_t>& key) {
  const std::string have = ranks.size() == 1 ? " has not " : " have not ";
  if (key.second == 0) return have + "registered " + tensor_in_quotes(key.first);
  return have + "started " + what(key);
}

}  // namespace

Stalls::Due Stalls::blocked(const v1::RankBlocked& message, Nanos now) {
  const Key key(message.tensor(), message.round());
  const auto waited = static_cast<Nanos>(std::min<uint64_t>(message.waited_ms(), kWaitedMsMax));
  waits_[{message.rank(), message.background()}] = {
      .key = key, .since = now - waited * kMillisecond, .heard = now};
  changed_ = true;
  const auto [at, added] = inquiries_.try_emplace(key);
  Inquiry& inquiry = at->second;
  const Nanos pause = inquiry.unanswered.empty() ? kRepeatMin : kAnswerMax;
  if (!added && now - inquiry.asked_at < pause) return Due::kNothing;
  if (added) forget_unused_inquiries();
  begin_inquiry(inquiry, key.second > 0, now);
  return key.second > 0 ? Due::kQuery : Due::kNotice;
}

// There are never more inquiries than waiters.
void Stalls::forget_unused_inquiries() {
  std::set<Key> used;
  for (const auto& [waiter, wait] : waits_) used.insert(wait.key);
  std::erase_if(inquiries_, [&](const auto& entry) { return !used.contains(entry.first); });
}

void Stalls::begin_inquiry(Inquiry& inquiry, bool of_agents, Nanos now) {
  inquiry.asked_at = now;
  inquiry.missing.clear();
  inquiry.unanswered.clear();
  for (const auto& [agent, info] : membership_->agents()) {
    if (of_agents && !info.lost) inquiry.unanswered.insert(agent);
  }
}

void Stalls::forget(uint32_t rank) {
  std::erase_if(waits_, [&](const auto& entry) { return entry.first.rank == rank; });
  changed_ = true;
}

void Stalls::forget_rounds(const std::string& tensor) {
  const auto is_of = [&](const Key& key) { return key.first == tensor && key.second > 0; };
  std::erase_if(waits_, [&](const auto& entry) { return is_of(entry.second.key); });
  std::erase_if(inquiries_, [&](const auto& entry) { return is_of(entry.first); });
  changed_ = true;
}

bool Stalls::report(uint64_t agent, const v1::ProgressReport& message) {
  const auto at = inquiries_.find({message.tensor(), message.round()});
  if (at == inquiries_.end() || at->second.unanswered.erase(agent) == 0) return false;
  for (const uint32_t rank : message.missing()) {
    const RankRecord* record = membership_->find(rank);
    if (record != nullptr && record->agent == agent) at->second.missing.insert(rank);
  }
  changed_ = true;
  return at->second.unanswered.empty();
}

bool Stalls::fresh(const Waiter& waiter, const Wait& wait, Nanos now) const {
  if (now - wait.heard > kFreshMax) return false;
  return wait.key.second > 0 || registrations_->waits(waiter.rank, wait.key.first);
}

Stalls::Groups Stalls::groups(Nanos now) const {
  Groups groups;
  for (const auto& [waiter, wait] : waits_) {
    if (!fresh(waiter, wait, now)) continue;
    Group& group = groups[wait.key];
    group.waiting.insert(waiter.rank);
    group.longest = std::max(group.longest, now - wait.since);
  }
  for (auto& [key, group] : groups) fill_needed(key, group);
  return groups;
}

void Stalls::fill_needed(const Key& key, Group& group) const {
  const auto at = inquiries_.find(key);
  if (key.second == 0) {
    group.needed = registrations_->missing(key.first);
  } else if (at != inquiries_.end() && at->second.unanswered.empty()) {
    group.needed = at->second.missing;
    // Nobody can answer for ranks that left together with their agent: what they owe never comes.
    for (const auto& [rank, record] : membership_->ranks()) {
      if (membership_->agents().at(record.agent).lost) group.needed->insert(rank);
    }
  }
  if (at != inquiries_.end()) group.asked_at = at->second.asked_at;
}

// P105: somebody waits for a rank that ended cleanly.
std::optional<Stalls::Verdict> Stalls::left_behind(const Groups& groups) const {
  for (const auto& [key, group] : groups) {
    RankSet gone;
    for (const uint32_t rank : group.needed.value_or(RankSet{})) {
      if (!membership_->has_left(rank)) continue;
      const bool proven = key.second == 0 || membership_->find(rank)->left_at <= group.asked_at;
      if (proven) gone.insert(rank);
    }
    if (gone.empty()) continue;
    return Verdict{
        short_error("P105", membership_->places(gone) + " ended, but " +
                                membership_->places(group.waiting) + " still wait" +
                                (group.waiting.size() == 1 ? "s" : "") + " for " + what(key)),
        {}};
  }
  return std::nullopt;
}

bool Stalls::begun_before(uint32_t rank, const Key& key, Nanos when) const {
  return std::ranges::any_of(waits_, [&](const auto& entry) {
    const auto& [waiter, wait] = entry;
    return waiter.rank == rank && wait.key == key && wait.since <= when;
  });
}

// O902: a rank has registered another version of a tensor whose old version others still wait for.
std::optional<Stalls::Verdict> Stalls::moved_on(const Groups& groups) const {
  for (const auto& [key, group] : groups) {
    const auto newer = groups.find({key.first, 0});
    if (key.second == 0 || !group.needed || newer == groups.end()) continue;
    RankSet ahead;
    for (const uint32_t rank : *group.needed) {
      const bool waits = newer->second.waiting.contains(rank);
      if (waits && begun_before(rank, newer->first, group.asked_at)) ahead.insert(rank);
    }
    if (ahead.empty()) continue;
    return Verdict{short_error("O902", "tensor " + tensor_in_quotes(key.first) + ": " +
                                           rank_phrase(ahead) + " registered " +
                                           spec_text(*registrations_->pending_spec(key.first)) +
                                           ", " + rank_phrase(group.waiting) + " still in round " +
                                           std::to_string(key.second) + " of " +
                                           spec_text(*registrations_->ready_spec(key.first))),
                   {}};
  }
  return std::nullopt;
}

// The last time anything changed about who waits and who is there.
Nanos Stalls::steady_since() const {
  Nanos latest = 0;
  for (const auto& [waiter, wait] : waits_) latest = std::max(latest, wait.since);
  for (const auto& [rank, record] : membership_->ranks()) latest = std::max(latest, record.left_at);
  return latest;
}

// The ranks that begin nothing while they wait.
RankSet Stalls::blocked_ranks(Nanos now) const {
  RankSet blocked;
  for (const auto& [waiter, wait] : waits_)
    if (!waiter.background && fresh(waiter, wait, now)) blocked.insert(waiter.rank);
  return blocked;
}

// A wait in the background counts, too: after it, its thread may begin what a rank waits for.
bool Stalls::all_wait_long_enough(const Groups& groups, Nanos now) const {
  const Nanos steady = steady_since();
  for (const auto& [key, group] : groups) {
    if (!group.needed || group.needed->empty()) return false;
    if (key.second > 0 && group.asked_at < steady) return false;
  }
  // Only what a rank has said itself counts: it may have advanced since.
  const auto brief = [&](const auto& entry) {
    const auto& [waiter, wait] = entry;
    return fresh(waiter, wait, now) && wait.heard - wait.since < deadlock_;
  };
  return !groups.empty() && blocked_ranks(now) == membership_->joined() &&
         std::ranges::none_of(waits_, brief);
}

// O903: every rank waits for one that waits. Registrations alone can be refused; a round that some
// ranks have started cannot be taken back, so then the job ends.
std::optional<Stalls::Verdict> Stalls::deadlocked(const Groups& groups, Nanos now) const {
  if (!all_wait_long_enough(groups, now)) return std::nullopt;
  Verdict verdict;
  std::string text;
  bool refusable = true;
  size_t listed = 0;
  for (const auto& [key, group] : groups) {
    refusable = refusable && key.second == 0;
    verdict.refused_names.push_back(key.first);
    if (++listed > kListedMax) continue;
    text.append(listed == 1 ? "" : ", ").append(rank_phrase(group.waiting));
    text.append(group.waiting.size() == 1 ? " waits for " : " wait for ");
    text.append(key.second == 0 ? tensor_in_quotes(key.first) : what(key));
  }
  if (!refusable) verdict.refused_names.clear();
  verdict.error = short_error("O903", text);
  return verdict;
}

std::optional<Stalls::Verdict> Stalls::judge(Nanos now) {
  if (!std::exchange(changed_, false)) return std::nullopt;
  const Groups current = groups(now);
  if (auto verdict = left_behind(current)) return verdict;
  if (auto verdict = moved_on(current)) return verdict;
  return deadlocked(current, now);
}

std::string Stalls::sentence(const std::string& tensor, uint64_t round, Nanos now) const {
  const Key key(tensor, round);
  const Groups current = groups(now);
  const auto at = current.find(key);
  if (at == current.end() || !at->second.needed) return "";
  const Group& group = at->second;
  const std::string late = group.needed->empty()
                               ? "every rank has started " + what(key) + ", its data is on the way"
                               : membership_->places(*group.needed) + lacks(*group.needed, key);
  return clean_text(late + "; waiting: " + rank_phrase(group.waiting) + " for " +
                    seconds_text(group.longest) +
                    (group.needed->empty() ? elsewhere(group.waiting) : ""));
}

// A rank that was stopped after it had started the round is among the first, one that gave up and
// ended among the second.
std::string Stalls::elsewhere(const RankSet& waiting) const {
  RankSet others;
  RankSet ended;
  for (const auto& [rank, record] : membership_->ranks())
    if (!waiting.contains(rank)) (membership_->has_left(rank) ? ended : others).insert(rank);
  std::string text;
  if (!others.empty())
    text += "; not waiting, so computing or stopped: " + membership_->places(others);
  if (!ended.empty()) text += "; ended: " + membership_->places(ended);
  return text;
}

}  // namespace gradbus
