// The local part of an engine's turn for a job: the sums of its ranks, on the processor or on GPUs,
// and data that GPUs have encoded in the middle of a round.
#include "worker_agent/data/worker_data_job.h"

#include <algorithm>

namespace gradbus {
namespace {

// Limits the chunks summed for all tensors of a job, so that other jobs and received frames get
// their turn.
constexpr uint64_t kSummedBytesPerTurn = 4u << 20;
// Tensors without a chunk to sum that one turn looks at. A rank can keep very many of them so.
constexpr size_t kFruitlessPerTurn = 64;

}  // namespace

// Sums one chunk of each tensor per turn, so that received frames do not wait behind a large sum.
size_t WorkerDataJob::reduce_local() {
  size_t work = 0;
  uint64_t bytes = 0;
  size_t fruitless = 0;
  size_t i = 0;
  while (i < reducing_.size() && bytes < kSummedBytesPerTurn && fruitless < kFruitlessPerTurn) {
    EngineTensor& tensor = *reducing_[i];
    const Result<std::optional<uint32_t>> chunk = [&] {
      const TracedWork summing(traced(tensor), TraceKind::kReduce);
      return tensor.reduce_some();
    }();
    if (!chunk.ok()) return fail(chunk.status()), work;
    if (chunk.value()) {
      ++work;
      bytes += tensor.chunk_bytes();
      proceed(tensor, tensor.round().chunk_summed(*chunk.value(), queue_));
      run_queue();
    } else {
      ++fruitless;
    }
    if (tensor.reducing()) {
      ++i;
    } else {
      reducing_.erase(reducing_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  if (fruitless == kFruitlessPerTurn)  // the next turn looks at others
    std::rotate(reducing_.begin(), reducing_.begin() + static_cast<ptrdiff_t>(i), reducing_.end());
  return work;
}

// Reduces one chunk per turn, of the first tensor that has one. Clients can do all of it
// themselves, and frames of other jobs wait meanwhile. With 4 MiB per turn, a neighbour was up to
// 14 times slower.
size_t WorkerDataJob::assist() {
  const size_t count = std::min(assisting_.size(), kFruitlessPerTurn);
  const auto last = assisting_.begin() + static_cast<ptrdiff_t>(count);
  const auto first = std::find_if(assisting_.begin(), last, [](EngineTensor* tensor) {
    if (tensor->assists()) return true;
    tensor->stop_assisting();
    return false;
  });
  const size_t chunks = first == last ? 0 : (*first)->assist_some();
  assisting_.erase(assisting_.begin(), first);
  return chunks;
}

// Resumes each of a tensor's partitions that GPUs have finished since.
size_t WorkerDataJob::resume_coded() {
  size_t work = 0;
  for (size_t i = 0; i < coding_.size() && broken_.ok();) {
    EngineTensor& tensor = *coding_[i];
    const Status status = tensor.round().resume(queue_);
    const bool began = !queue_.empty();
    proceed(tensor, status);
    run_queue();
    work += began ? 1 : 0;
    if (began && tensor.round().waits()) continue;
    if (tensor.round().waits()) {
      ++i;
    } else {
      coding_.erase(coding_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  return work;
}

}  // namespace gradbus
