#include "client_lib/src/process_set.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "client_lib/src/operation.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr size_t kShownMax = 16;

using RankList = std::vector<int32_t>;

std::string text_of(const RankList& ranks) {
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kShownMax); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > kShownMax) text += ", ... " + std::to_string(ranks.size()) + " in all";
  return "[" + text + "]";
}

// Every rank's list, by rank.
Result<std::vector<RankList>> exchange(Session& session, const RankList& ranks) {
  OperationRequest request;
  request.spec = {"gradbus.process_set", ranks.size(), DType::kI32, ReduceOp::kNone,
                  CollectiveKind::kAllGather};
  request.in = ranks.data();
  const std::shared_ptr<Operation> operation = make_operation(session, request);
  GRADBUS_RETURN_IF_ERROR(operation->run());
  std::vector<RankList> lists;
  const std::byte* from = operation->output().data();
  for (const uint64_t count : operation->counts()) {
    lists.emplace_back(count);
    if (count > 0) std::memcpy(lists.back().data(), from, count * sizeof(int32_t));
    from += count * sizeof(int32_t);
  }
  return lists;
}

// Every rank compares the same lists, so all come to the same answer.
Status check_same(const std::string& set, const std::vector<RankList>& lists) {
  const auto other = std::find_if(lists.begin(), lists.end(),
                                  [&](const RankList& list) { return list != lists.front(); });
  if (other == lists.end()) return {};
  RankList who;
  for (size_t rank = 0; rank < lists.size(); ++rank)
    if (lists[rank] == *other) who.push_back(static_cast<int32_t>(rank));
  return error("O902",
               set + ": rank 0 gave the list " + text_of(lists.front()) + ", each of the ranks " +
                   text_of(who) + " gave " + text_of(*other),
               "make all ranks add the same process sets in the same order");
}

Status check_members(const std::string& set, const RankList& ranks, uint32_t world_size) {
  if (ranks.empty()) return error("O900", set + ": the list of ranks is empty");
  std::vector<bool> seen(world_size);
  for (const int32_t rank : ranks) {
    if (rank < 0 || static_cast<uint32_t>(rank) >= world_size)
      return error("O900", set + ": " + text_of(ranks) + " holds " + std::to_string(rank) +
                               ", which is not a rank of 0.." + std::to_string(world_size - 1));
    if (seen[rank])
      return error("O900",
                   set + ": " + text_of(ranks) + " holds rank " + std::to_string(rank) + " twice");
    seen[rank] = true;
  }
  return {};
}

// Where this rank stands in the list, or none.
std::optional<int64_t> place_in(const RankList& ranks, uint32_t rank) {
  const auto at = std::find(ranks.begin(), ranks.end(), static_cast<int32_t>(rank));
  if (at == ranks.end()) return std::nullopt;
  return at - ranks.begin();
}

}  // namespace

Result<std::unique_ptr<Session>> open_process_set(Session& session, const RankList& ranks) {
  const std::string job = session.identity().job + "/" +
                          std::to_string(session.operations().unnamed().next("process set"));
  const std::string set = "process set \"" + job + "\"";
  const Result<std::vector<RankList>> lists = exchange(session, ranks);
  if (!lists.ok()) return lists.status();
  GRADBUS_RETURN_IF_ERROR(check_same(set, lists.value()));
  GRADBUS_RETURN_IF_ERROR(check_members(set, ranks, session.world_size()));
  if (job.size() > kJobNameBytesMax)
    return error("J401",
                 set + ": the job's name has " + std::to_string(job.size()) + " bytes; at most " +
                     std::to_string(kJobNameBytesMax) + " are allowed",
                 "set a shorter GRADBUS_JOB");
  const std::optional<int64_t> place = place_in(ranks, session.rank());
  if (!place) return std::unique_ptr<Session>();
  return session.open_set(
      {session.identity().launcher, job, *place, static_cast<int64_t>(ranks.size())});
}

}  // namespace gradbus
