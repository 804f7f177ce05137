#include "worker_agent/gpu/nccl_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "common/errors.h"
#include "shared_memory/attach_socket.h"

namespace gradbus {
namespace {

constexpr Nanos kReapPause = kMillisecond;

// Opens a socket pair: our end, and one that only a child gets.
Status open_pair(Fd (&ends)[2]) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return error("D626", std::string("a socket pair: ") + strerror(errno));
  ends[0].reset(pair[0]);
  ends[1].reset(pair[1]);
  return {};
}

}  // namespace

Result<std::unique_ptr<NcclChild>> NcclChild::start(const std::string& program, std::string who) {
  Fd ends[2];
  GRADBUS_RETURN_IF_ERROR(open_pair(ends));
  // dup2 onto the same number would leave it closed on exec.
  if (ends[1].get() == kNcclSocket)
    ends[1].reset(fcntl(ends[1].get(), F_DUPFD_CLOEXEC, kNcclSocket + 1));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1].get(), kNcclSocket);
  std::string path = program;
  char* words[] = {path.data(), nullptr};
  pid_t process = 0;
  const int problem = posix_spawn(&process, path.c_str(), &actions, nullptr, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) return error("D626", who + ": starting " + program + ": " + strerror(problem));
  return std::unique_ptr<NcclChild>(new NcclChild(std::move(who), std::move(ends[0]), process));
}

NcclChild::~NcclChild() {
  if (process_ != 0) kill(process_, SIGKILL);
  if (!reap(0)) std::thread([process = process_] { waitpid(process, nullptr, 0); }).detach();
}

// ---- orders

Status NcclChild::new_id(Nanos deadline) { return give({}, "new_id", deadline); }

Status NcclChild::connect(const NcclId& id, uint32_t rank, uint32_t ranks, uint32_t device,
                          Nanos deadline) {
  NcclOrder order{.verb = NcclVerb::kConnect, .id = id};
  order.rank = rank;
  order.ranks = ranks;
  order.device = device;
  return give(order, "connect", deadline);
}

Status NcclChild::open(uint32_t rank_buffer, const CudaMemoryShare& share, uint32_t device,
                       Nanos deadline) {
  NcclOrder order{.verb = NcclVerb::kOpen};
  order.device = device;
  order.rank_buffer = rank_buffer;
  order.memory = share;
  return give(order, "open", deadline);
}

Status NcclChild::all_reduce(const Call& call, NcclOp op, Nanos deadline) {
  NcclOrder order;
  order.op = op;
  return collective(NcclVerb::kAllReduce, call, order, "all_reduce", deadline);
}

Status NcclChild::reduce_scatter(const Call& call, NcclOp op, Nanos deadline) {
  NcclOrder order;
  order.op = op;
  return collective(NcclVerb::kReduceScatter, call, order, "reduce_scatter", deadline);
}

Status NcclChild::all_gather(const Call& call, Nanos deadline) {
  return collective(NcclVerb::kAllGather, call, {}, "all_gather", deadline);
}

Status NcclChild::broadcast(const Call& call, uint32_t root, Nanos deadline) {
  NcclOrder order;
  order.root = root;
  return collective(NcclVerb::kBroadcast, call, order, "broadcast", deadline);
}

Status NcclChild::send(const Call& call, uint32_t peer, Nanos deadline) {
  NcclOrder order;
  order.peer = peer;
  Call one = call;
  one.to = call.from;
  return collective(NcclVerb::kSend, one, order, "send", deadline);
}

Status NcclChild::receive(const Call& call, uint32_t peer, Nanos deadline) {
  NcclOrder order;
  order.peer = peer;
  Call one = call;
  one.from = call.to;
  return collective(NcclVerb::kReceive, one, order, "receive", deadline);
}

Status NcclChild::collective(NcclVerb verb, const Call& call, NcclOrder order, const char* what,
                             Nanos deadline) {
  order.verb = verb;
  order.from_rank_buffer = call.from.rank_buffer;
  order.from = call.from.offset;
  order.to_rank_buffer = call.to.rank_buffer;
  order.to = call.to.offset;
  order.count = call.count;
  order.type = call.type;
  order.has_event = call.ready != nullptr ? 1 : 0;
  if (call.ready != nullptr) order.event = *call.ready;
  return give(order, what, deadline);
}

Status NcclChild::give(NcclOrder order, const char* what, Nanos deadline) {
  if (state_ == State::kFailed) return status_;
  if (state_ == State::kBusy)
    return error("D626", who_ + ": " + what + " while " + what_ + " is under way");
  const Nanos left = std::max<Nanos>(deadline - monotonic_now(), 0);
  order.number = ++number_;
  order.deadline_ms =
      static_cast<uint32_t>(std::min<Nanos>((left + kMillisecond - 1) / kMillisecond, UINT32_MAX));
  what_ = what;
  overdue_ = deadline + kNcclAbortGrace;
  state_ = State::kBusy;
  std::vector<int> descriptors;
  if (order.memory.descriptor >= 0) descriptors.push_back(order.memory.descriptor);
  if (send_packet(socket_.get(), &order, sizeof(order), descriptors) != Code::kOk)
    fail(error("D626", who_ + ": " + what + ": " + end_of_process()));
  return status_;
}

// ---- answers

NcclChild::State NcclChild::poll(Nanos now) {
  if (state_ != State::kBusy) return state_;
  NcclAnswer answer;
  const ssize_t got = recv(socket_.get(), &answer, sizeof(answer), MSG_DONTWAIT);
  if (got == static_cast<ssize_t>(sizeof(answer)) && answer.number == number_) {
    take(answer);
  } else if (got >= 0 || (errno != EAGAIN && errno != EINTR)) {
    fail(error("D626", who_ + ": " + what_ + ": " + end_of_process()));
  } else if (now >= overdue_) {
    fail(error("D627", who_ + ": " + what_ +
                           " has not ended by its deadline, nor has its abort: process " +
                           std::to_string(process_) + " was killed"));
  }
  return state_;
}

void NcclChild::take(const NcclAnswer& answer) {
  if (answer.code != static_cast<uint32_t>(Code::kOk)) {
    const size_t length = strnlen(answer.message, sizeof(answer.message));
    return fail(Status(static_cast<Code>(answer.code), std::string(answer.message, length))
                    .with_context(who_));
  }
  id_ = answer.id;
  state_ = State::kIdle;
}

void NcclChild::fail(Status why) {
  if (process_ != 0) kill(process_, SIGKILL);
  reap(0);
  state_ = State::kFailed;
  status_ = std::move(why);
}

// "its process was ended by signal 11".
std::string NcclChild::end_of_process() {
  if (!reap(kNcclAbortGrace)) return "its process has closed the connection";
  if (WIFSIGNALED(exit_))
    return "its process was ended by signal " + std::to_string(WTERMSIG(exit_));
  return "its process ended with status " + std::to_string(WEXITSTATUS(exit_));
}

// Returns true when the process has ended. A process that the kernel keeps alive is left to the
// kernel.
bool NcclChild::reap(Nanos patience) {
  const Nanos until = monotonic_now() + patience;
  while (process_ != 0) {
    if (waitpid(process_, &exit_, WNOHANG) != 0) {
      process_ = 0;
    } else if (monotonic_now() >= until) {
      return false;
    } else {
      const timespec pause{0, kReapPause};
      nanosleep(&pause, nullptr);
    }
  }
  return true;
}

}  // namespace gradbus
