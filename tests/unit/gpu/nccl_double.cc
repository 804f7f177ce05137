#include "tests/unit/gpu/nccl_double.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace gradbus {

// One rank's end. Ranks with the same id find each other in `groups`.
struct NcclComm {
  std::string id;
  uint32_t rank = 0;
  uint32_t ranks = 0;
};

namespace {

enum class Kind { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kPass };

struct Call {
  Kind kind;
  const float* from;
  float* to;
  size_t count;
  int root;
};

struct Group {
  std::map<uint32_t, NcclComm*> members;
  std::map<uint32_t, Call> calls;
  std::map<std::pair<uint32_t, uint32_t>, Call> sends;  // by sender and receiver: not received yet
  std::map<std::pair<uint32_t, uint32_t>, Call> receives;
};

NcclDouble* current = nullptr;
std::map<std::string, Group> groups;
std::set<const void*> done;

std::vector<float> sum_of(const Group& group, size_t count) {
  std::vector<float> sum(count, 0.0F);
  for (const auto& [rank, call] : group.calls)
    for (size_t i = 0; i < count; ++i) sum[i] += call.from[i];
  return sum;
}

// Computes results before it writes, because `from` and `to` may be the same memory.
std::vector<float> result_of(const Group& group, uint32_t rank, const Call& call) {
  if (call.kind == Kind::kAllReduce) return sum_of(group, call.count);
  if (call.kind == Kind::kBroadcast) {
    const float* from = group.calls.at(static_cast<uint32_t>(call.root)).from;
    return {from, from + call.count};
  }
  std::vector<float> result;
  if (call.kind == Kind::kAllGather) {
    for (const auto& [other, theirs] : group.calls)
      result.insert(result.end(), theirs.from, theirs.from + theirs.count);
    return result;
  }
  const std::vector<float> sum = sum_of(group, call.count * group.calls.size());
  const auto first = sum.begin() + static_cast<ptrdiff_t>(rank * call.count);
  return {first, first + static_cast<ptrdiff_t>(call.count)};
}

NcclResult post(NcclComm* comm, const Call& call) {
  Group& group = groups[comm->id];
  group.calls[comm->rank] = call;
  done.erase(call.to);
  if (current->hangs) return NcclResult::kInProgress;
  if (group.calls.size() < comm->ranks) return NcclResult::kSuccess;
  std::map<uint32_t, std::vector<float>> results;
  for (const auto& [rank, theirs] : group.calls) results[rank] = result_of(group, rank, theirs);
  for (const auto& [rank, theirs] : group.calls) {
    std::copy(results[rank].begin(), results[rank].end(), theirs.to);
    done.insert(theirs.to);
  }
  group.calls.clear();
  return NcclResult::kSuccess;
}

// The end that calls last moves the elements.
NcclResult pass(NcclComm* comm, const std::pair<uint32_t, uint32_t>& ends, const Call& call) {
  Group& group = groups[comm->id];
  const bool sends = comm->rank == ends.first;
  (sends ? group.sends : group.receives)[ends] = call;
  done.erase(sends ? call.from : call.to);
  const auto sent = group.sends.find(ends);
  const auto received = group.receives.find(ends);
  if (sent == group.sends.end() || received == group.receives.end()) return NcclResult::kSuccess;
  std::copy_n(sent->second.from, sent->second.count, received->second.to);
  done.insert(sent->second.from);
  done.insert(received->second.to);
  group.sends.erase(sent);
  group.receives.erase(received);
  return NcclResult::kSuccess;
}

Call call_of(Kind kind, const void* from, void* to, size_t count, int root = 0) {
  return {kind, static_cast<const float*>(from), static_cast<float*>(to), count, root};
}

NcclResult init_rank(NcclComm** comm, int ranks, NcclId id, int rank, NcclConfig* config) {
  current->last_blocking = config->blocking;
  *comm = new NcclComm{.id = std::string(id.bytes, sizeof(id.bytes)),
                       .rank = static_cast<uint32_t>(rank),
                       .ranks = static_cast<uint32_t>(ranks)};
  groups[(*comm)->id].members[(*comm)->rank] = *comm;
  ++current->alive;
  return current->init_answer;
}

NcclResult async_error(NcclComm* comm, NcclResult* result) {
  *result = current->async;
  const Group& group = groups[comm->id];
  if (*result != NcclResult::kSuccess) return NcclResult::kSuccess;
  const bool all_here = group.members.size() == comm->ranks;
  if (!all_here || current->hangs || current->launches_slowly) *result = NcclResult::kInProgress;
  return NcclResult::kSuccess;
}

NcclResult destroy(NcclComm* comm) {
  groups[comm->id].members.erase(comm->rank);
  --current->alive;
  delete comm;
  return NcclResult::kSuccess;
}

NcclResult abort_comm(NcclComm* comm) {
  ++current->aborted;
  return destroy(comm);
}

NcclResult get_version(int* version) {
  *version = current->version;
  return NcclResult::kSuccess;
}

NcclResult get_id(NcclId* id) {
  static char next = 'a';
  *id = {};
  id->bytes[0] = next++;
  return NcclResult::kSuccess;
}

const char* error_text(NcclResult result) {
  return result == NcclResult::kRemoteError ? "remote process exited" : "internal error";
}

}  // namespace

NcclDouble::NcclDouble() {
  current = this;
  library_.error_text = error_text;
  library_.get_version = get_version;
  library_.get_id = get_id;
  library_.init_rank = init_rank;
  library_.async_error = async_error;
  library_.abort = abort_comm;
  library_.destroy = destroy;
  library_.all_reduce = [](const void* from, void* to, size_t count, NcclType, NcclOp,
                           NcclComm* comm, void*) {
    return post(comm, call_of(Kind::kAllReduce, from, to, count));
  };
  library_.reduce_scatter = [](const void* from, void* to, size_t count, NcclType, NcclOp,
                               NcclComm* comm, void*) {
    return post(comm, call_of(Kind::kReduceScatter, from, to, count));
  };
  library_.all_gather = [](const void* from, void* to, size_t count, NcclType, NcclComm* comm,
                           void*) {
    return post(comm, call_of(Kind::kAllGather, from, to, count));
  };
  library_.broadcast = [](const void* from, void* to, size_t count, NcclType, int root,
                          NcclComm* comm, void*) {
    return post(comm, call_of(Kind::kBroadcast, from, to, count, root));
  };
  library_.send = [](const void* from, size_t count, NcclType, int peer, NcclComm* comm, void*) {
    return pass(comm, {comm->rank, static_cast<uint32_t>(peer)},
                call_of(Kind::kPass, from, nullptr, count));
  };
  library_.receive = [](void* to, size_t count, NcclType, int peer, NcclComm* comm, void*) {
    return pass(comm, {static_cast<uint32_t>(peer), comm->rank},
                call_of(Kind::kPass, nullptr, to, count));
  };
}

NcclDouble::~NcclDouble() {
  groups.clear();
  done.clear();
  current = nullptr;
}

bool NcclDouble::is_done(const void* memory) const { return done.count(memory) != 0; }

}  // namespace gradbus
