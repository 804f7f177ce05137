// The end of a tensor in the engine. The coordinator retires a tensor when every rank of the job
// has unregistered it, so its last round is over on every node. Sends that the transport has not
// reported yet may still be in flight, and peers' credits for a round that will not take place.
#include <algorithm>
#include <set>

#include "common/errors.h"
#include "worker_agent/data/worker_data_job.h"

namespace gradbus {
namespace {

constexpr size_t kRetiredPerTurn = 64;  // other jobs have their turn meanwhile

}  // namespace

void WorkerDataJob::remove_tensor(const RemoveTensor& command) {
  const uint32_t id = command.tensor;
  if (retired_.size() <= id) retired_.resize(id + 1);
  if (tensor(id) == nullptr) {  // it was never added: the nodes had not agreed on NCCL yet
    retired_[id] = true;
    command.gone->post({command.job, id});
    return;
  }
  retiring_.push_back(command);
}

size_t WorkerDataJob::retire() {
  const size_t count = std::min(retiring_.size(), kRetiredPerTurn);
  const auto last = retiring_.begin() + static_cast<ptrdiff_t>(count);
  std::vector<uint32_t> ids;
  for (auto at = retiring_.begin(); at != last; ++at) ids.push_back(at->tensor);
  const std::set<uint32_t> sending =
      links_ == nullptr ? std::set<uint32_t>() : links_->sending_among(ids);
  const auto left = std::remove_if(retiring_.begin(), last, [&](const RemoveTensor& command) {
    EngineTensor& of = *tensor(command.tensor);
    if (!of.rests()) {  // a rank has posted it, perhaps while its last frames were in flight
      fail(error("S210", "job \"" + start_.name + "\": tensor \"" + of.name() +
                             "\" was unregistered by ranks that have a round in flight"));
      return true;
    }
    if (sending.contains(command.tensor)) return false;
    forget(of);
    command.gone->post({command.job, command.tensor});
    return true;
  });
  const auto gone = static_cast<size_t>(last - left);
  // Those that stay go behind those that were not looked at.
  retiring_.erase(left, last);
  std::rotate(retiring_.begin(), retiring_.begin() + static_cast<ptrdiff_t>(count - gone),
              retiring_.end());
  return gone;
}

void WorkerDataJob::forget(EngineTensor& tensor) {
  const uint32_t id = tensor.id();
  for (const auto& operation : tensor.round().operations()) {
    const CollectiveNeeds& needs = operation->collective().needs();
    for (const CollectiveNeeds::Target& target : needs.targets)
      links_->forget_sends(target.peer, target.sends_max);
    for (const uint32_t peer : needs.sources) links_->forget_credits(peer, id, 1);
  }
  if (starts_.has(id)) starts_.remove(id, *links_);
  std::erase(reducing_, &tensor);
  std::erase(coding_, &tensor);
  std::erase(assisting_, &tensor);
  std::erase_if(early_credits_,
                [&](const EarlyCredit& credit) { return credit.operation.tensor == id; });
  retired_[id] = true;
  --live_;
  tensors_[id].reset();
}

}  // namespace gradbus
