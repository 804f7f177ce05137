// gradbus-nccl: the process with one rank of an NCCL communicator for an agent (nccl_child.h). It
// carries out the orders from descriptor 3, and ends when the agent does.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/errors.h"
#include "common/fd.h"
#include "worker_agent/gpu/cuda_plugin.h"
#include "worker_agent/gpu/nccl_communicator.h"
#include "worker_agent/gpu/nccl_orders.h"

namespace gradbus {
namespace {

// It polls without pauses first, because most collectives take less than this.
constexpr Nanos kSpin = 2 * kMillisecond;
constexpr Nanos kPause = kMillisecond / 5;

class NcclRank {
 public:
  // Returns when the order is done or has failed.
  Status obey(const NcclOrder& order, NcclAnswer& answer) {
    deadline_ = monotonic_now() + Nanos{order.deadline_ms} * kMillisecond;
    GRADBUS_RETURN_IF_ERROR(load());
    switch (order.verb) {
      case NcclVerb::kNewId: return make_id(answer.id);
      case NcclVerb::kConnect: return connect(order);
      case NcclVerb::kOpen: return open(order);
      case NcclVerb::kAllReduce:
      case NcclVerb::kReduceScatter:
      case NcclVerb::kAllGather:
      case NcclVerb::kBroadcast:
      case NcclVerb::kSend:
      case NcclVerb::kReceive: return collective(order);
    }
    return error("D626", "unknown order");
  }

 private:
  const CudaTable& table() const { return *plugin_->table; }
  Status told(CudaResult result, const char* what) const {
    return cuda_status(*plugin_, result, what);
  }

  Status load() {
    if (nccl_ != nullptr) return {};
    const Result<const CudaPlugin*> plugin = system_cuda_plugin();
    if (!plugin.ok()) return plugin.status();
    const Result<const NcclLibrary*> nccl = system_nccl();
    if (!nccl.ok()) return nccl.status();
    plugin_ = plugin.value();
    nccl_ = nccl.value();
    return {};
  }

  Status make_id(NcclId& id) {
    Result<NcclId> made = NcclCommunicator::new_id(*nccl_);
    if (made.ok()) id = made.value();
    return made.status();
  }

  Status connect(const NcclOrder& order) {
    if (communicator_ != nullptr) return error("D626", "connect: it is connected");
    device_ = order.device;
    GRADBUS_RETURN_IF_ERROR(told(table().create_stream(device_, &stream_), "a stream"));
    GRADBUS_RETURN_IF_ERROR(told(table().create_event(device_, &done_), "an event"));
    communicator_ =
        std::make_unique<NcclCommunicator>(*nccl_, "rank " + std::to_string(order.rank));
    GRADBUS_RETURN_IF_ERROR(communicator_->connect(order.id, order.rank, order.ranks, deadline_));
    return end();
  }

  Status open(const NcclOrder& order) {
    if (order.rank_buffer >= kNcclRankBuffersMax || rank_buffers_[order.rank_buffer] != nullptr)
      return error("D626", "open: no free rank buffer " + std::to_string(order.rank_buffer));
    return told(table().open(order.device, &order.memory, &rank_buffers_[order.rank_buffer]),
                "opening memory");
  }

  Status collective(const NcclOrder& order) {
    const bool known = order.from_rank_buffer < kNcclRankBuffersMax &&
                       order.to_rank_buffer < kNcclRankBuffersMax &&
                       rank_buffers_[order.from_rank_buffer] != nullptr &&
                       rank_buffers_[order.to_rank_buffer] != nullptr;
    if (communicator_ == nullptr || !known)
      return error("D626", "a collective: not connected, or in a rank buffer that is not open");
    if (order.has_event != 0) GRADBUS_RETURN_IF_ERROR(wait_for(order.event));
    NcclCall call{
        .from = static_cast<const char*>(rank_buffers_[order.from_rank_buffer]) + order.from,
        .to = static_cast<char*>(rank_buffers_[order.to_rank_buffer]) + order.to,
        .count = order.count,
        .type = order.type,
        .stream = table().native_stream(stream_),
        .deadline = deadline_};
    GRADBUS_RETURN_IF_ERROR(launch(order, call));
    return end();
  }

  Status launch(const NcclOrder& order, const NcclCall& call) {
    switch (order.verb) {
      case NcclVerb::kAllReduce: return communicator_->all_reduce(call, order.op);
      case NcclVerb::kReduceScatter: return communicator_->reduce_scatter(call, order.op);
      case NcclVerb::kAllGather: return communicator_->all_gather(call);
      case NcclVerb::kSend: return communicator_->send(call, order.peer);
      case NcclVerb::kReceive: return communicator_->receive(call, order.peer);
      default: return communicator_->broadcast(call, order.root);
    }
  }

  // Makes the stream wait for the agent's work on another one.
  Status wait_for(const CudaShare& share) {
    CudaEvent* event = nullptr;
    GRADBUS_RETURN_IF_ERROR(told(table().open_event(device_, &share, &event), "opening an event"));
    const Status waits = told(table().wait_event(stream_, event), "an event");
    const Status closed = told(table().destroy_event(event), "an event");
    return waits.ok() ? closed : waits;
  }

  // Waits until the communicator is ready again, or has failed.
  Status end() {
    const Nanos began = monotonic_now();
    bool recorded = false;
    while (true) {
      const Nanos now = monotonic_now();
      const NcclState state = communicator_->poll(now);
      if (state == NcclState::kReady) return {};
      if (state == NcclState::kFailed) return communicator_->status();
      if (state == NcclState::kRunning) {
        if (!recorded) GRADBUS_RETURN_IF_ERROR(told(table().record_event(done_, stream_), "done"));
        recorded = true;
        const CudaResult done = table().query_event(done_);
        if (done == CudaResult::kOk) {
          communicator_->finished();
          return {};
        }
        if (done != CudaResult::kNotReady) return told(done, "a collective");
      }
      const timespec pause{0, kPause};
      if (now - began > kSpin) nanosleep(&pause, nullptr);
    }
  }

  const CudaPlugin* plugin_ = nullptr;
  const NcclLibrary* nccl_ = nullptr;
  std::unique_ptr<NcclCommunicator> communicator_;
  uint32_t device_ = 0;
  CudaStream* stream_ = nullptr;
  CudaEvent* done_ = nullptr;
  std::array<void*, kNcclRankBuffersMax> rank_buffers_ = {};
  Nanos deadline_ = 0;
};

// Receives an order with its descriptor, if it has one. Returns false when there are no more.
bool receive(NcclOrder& order, Fd& descriptor) {
  iovec piece{&order, sizeof(order)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(kNcclSocket, &message, MSG_CMSG_CLOEXEC);
  order.memory.descriptor = -1;  // until now the number in the agent
  const cmsghdr* part = CMSG_FIRSTHDR(&message);
  if (got > 0 && part != nullptr && part->cmsg_type == SCM_RIGHTS)
    std::memcpy(&order.memory.descriptor, CMSG_DATA(part), sizeof(int));
  descriptor.reset(order.memory.descriptor);
  return got == static_cast<ssize_t>(sizeof(order));
}

int serve() {
  // The process ends with the agent, even if a call of NCCL never returns.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  NcclRank rank;
  NcclOrder order;
  Fd descriptor;  // of the latest order that had one
  while (receive(order, descriptor)) {
    NcclAnswer answer;
    answer.number = order.number;
    const Status status = rank.obey(order, answer);
    answer.code = static_cast<uint32_t>(status.code());
    status.message().copy(answer.message, sizeof(answer.message) - 1);
    if (send(kNcclSocket, &answer, sizeof(answer), MSG_NOSIGNAL) < 0) break;
  }
  _exit(0);  // skips the destructors of libraries, which may hang
}

}  // namespace
}  // namespace gradbus

int main() {
  if (fcntl(gradbus::kNcclSocket, F_GETFD) < 0) {
    std::fputs("gradbus-nccl is started by gradbus-agent\n", stderr);
    return 2;
  }
  return gradbus::serve();
}
