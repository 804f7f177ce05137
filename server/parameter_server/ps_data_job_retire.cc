// The end of a tensor on a shard. The coordinator retires it when every rank of the job has
// unregistered it. The transport may still have answers and copies of its last pushes, and a move
// may be in progress. The tensor is removed after those. Nobody waits for the backup's confirmation
// of a push then, and a backup that has removed the tensor already gives none.
#include <algorithm>
#include <set>
#include <utility>

#include "server/parameter_server/ps_data_job.h"

namespace gradbus {
namespace {

constexpr size_t kRetiredPerTurn = 64;  // other jobs have their turn meanwhile

}  // namespace

void PsDataJob::remove_tensor(const RemoveTensor& command) { retiring_.push_back(command.tensor); }

void PsDataJob::retire() {
  const auto count = static_cast<ptrdiff_t>(std::min(retiring_.size(), kRetiredPerTurn));
  const auto last = retiring_.begin() + count;
  const std::set<uint32_t> sending = links_.sending_among({retiring_.begin(), last});
  const auto left = std::remove_if(retiring_.begin(), last, [&](uint32_t id) {
    if (sending.contains(id) || !may_forget(id)) return false;
    forget(id);
    return true;
  });
  const ptrdiff_t kept = left - retiring_.begin();
  // Those that stay go behind those that were not looked at.
  retiring_.erase(left, last);
  std::rotate(retiring_.begin(), retiring_.begin() + kept, retiring_.end());
}

bool PsDataJob::may_forget(uint32_t id) const {
  const auto moves = [id](const ShardPlan& plan) {
    return plan.collective.tensor == id || plan.moved->tensor == id;
  };
  const auto rests = [](const ShardTensor* of) { return of == nullptr || !of->sends(); };
  return !predecessors_.contains(id) && std::ranges::none_of(waiting_moves_, moves) &&
         rests(tensor(id)) && rests(backup_replica(id));
}

void PsDataJob::forget(uint32_t id) {
  if (retired_.size() <= id) retired_.resize(id + 1);
  retired_[id] = true;
  for (Tensors* const tensors : {&tensors_, &backups_}) {
    if (id >= tensors->size() || (*tensors)[id] == nullptr) continue;
    ShardTensor& of = *(*tensors)[id];
    forget_room(of);
    (*tensors)[id].reset();
  }
  if (id < untaken_.size()) {
    for (Untaken& untaken : std::exchange(untaken_[id], {}))
      for (; !untaken.pushes.empty(); untaken.pushes.pop()) let_go(untaken.pushes.front().buffer);
  }
  std::erase_if(late_credits_,
                [id](const LateCredit& credit) { return credit.header.tensor == id; });
}

// Releases what open_tensor() and open_copies() have reserved.
void PsDataJob::forget_room(const ShardTensor& tensor) {
  const auto answers = static_cast<uint32_t>(tensor.answers_max());
  const auto chunks = static_cast<uint32_t>(tensor.chunks_stored());
  for (uint32_t agent = 0; agent < start_.agents && answers > 0; ++agent)
    links_.forget_sends(agent, answers);
  if (tensor.plan().mode.replicas < 2) return;
  if (tensor.is_backup())
    return links_.forget_credits(copied(tensor), tensor.plan().collective.tensor, chunks);
  links_.forget_sends(backup(tensor), chunks + start_.agents * (answers - chunks));
}

}  // namespace gradbus
