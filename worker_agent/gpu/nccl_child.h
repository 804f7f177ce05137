// One rank of an NCCL communicator in a separate process that can be killed. NCCL can hang in any
// of its calls, also in the one that aborts, and an agent must not.
//
// The agent starts the program gradbus-nccl, gives it orders, and later polls whether they are
// done; nothing here waits. An operation that has not ended by its deadline is aborted in the child
// (nccl_communicator.h). If that hangs too, the process is killed. In both cases this communicator
// cannot be used any more, and its status has the reason. The agent continues with another child,
// or with memory of the host.
//
// Memory and events belong to the agent and are shared with the child (plugin.h). One order at a
// time. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/fd.h"
#include "common/status.h"
#include "worker_agent/gpu/nccl_orders.h"

namespace gradbus {

// The time that an aborted operation has to end.
inline constexpr Nanos kNcclAbortGrace = kSecond;

class NcclChild {
 public:
  enum class State : uint8_t { kIdle, kBusy, kFailed };
  struct Place {
    uint32_t rank_buffer = 0;
    uint64_t offset = 0;  // bytes
  };
  struct Call {
    Place from = {};
    Place to = {};
    uint64_t count = 0;  // elements, as of NcclCall
    NcclType type = NcclType::kF32;
    const CudaShare* ready = nullptr;  // shared event: the input is ready. null: it already is
  };

  // `program`: gradbus-nccl. `who` opens every message. GB-D626 when it cannot be started.
  static Result<std::unique_ptr<NcclChild>> start(const std::string& program, std::string who);
  ~NcclChild();  // kills the process without waiting for its end
  NcclChild(const NcclChild&) = delete;
  NcclChild& operator=(const NcclChild&) = delete;

  // Orders, in kIdle only; otherwise they return GB-D626 and do nothing.
  Status new_id(Nanos deadline);  // see id()
  Status connect(const NcclId& id, uint32_t rank, uint32_t ranks, uint32_t device, Nanos deadline);
  // A descriptor of `share` is duplicated.
  Status open(uint32_t rank_buffer, const CudaMemoryShare& share, uint32_t device, Nanos deadline);
  Status all_reduce(const Call& call, NcclOp op, Nanos deadline);
  Status reduce_scatter(const Call& call, NcclOp op, Nanos deadline);
  Status all_gather(const Call& call, Nanos deadline);
  Status broadcast(const Call& call, uint32_t root, Nanos deadline);
  Status send(const Call& call, uint32_t peer, Nanos deadline);     // `to` is ignored
  Status receive(const Call& call, uint32_t peer, Nanos deadline);  // `from` is ignored

  // kBusy until the order is done; kFailed is final.
  State poll(Nanos now);
  State state() const { return state_; }
  // Readable when poll() has an event.
  int wait_fd() const { return socket_.get(); }
  // In kFailed: GB-D626 for an error of NCCL or the process, GB-D627 for a deadline, or GB-D620 to
  // D625 for what the child could not load.
  const Status& status() const { return status_; }
  const NcclId& id() const { return id_; }  // the result of new_id()

 private:
  NcclChild(std::string who, Fd socket, pid_t process)
      : who_(std::move(who)), socket_(std::move(socket)), process_(process) {}
  Status give(NcclOrder order, const char* what, Nanos deadline);
  Status collective(NcclVerb verb, const Call& call, NcclOrder order, const char* what,
                    Nanos deadline);
  void take(const NcclAnswer& answer);
  void fail(Status why);
  std::string end_of_process();
  bool reap(Nanos patience);

  const std::string who_;
  Fd socket_;
  pid_t process_;  // 0: the process has ended
  int exit_ = 0;   // its exit status, as from waitpid()
  State state_ = State::kIdle;
  uint64_t number_ = 0;
  const char* what_ = "";  // the current operation
  Nanos overdue_ = 0;
  NcclId id_ = {};
  Status status_;
};

}  // namespace gradbus
