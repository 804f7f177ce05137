// One rank of an NCCL communicator, in a process of its own that may be thrown away: NCCL can hang
// in any of its calls, also in the one that aborts, and an agent must not.
//
// The agent starts the program gradbus-nccl, gives it orders, and asks later whether they are done;
// nothing here waits. What has not ended by its deadline is aborted there (nccl_communicator.h);
// where that hangs, too, the process is killed. Either way this communicator is of no more use, its
// status says why, and the agent goes on: another child, or memory of the host.
//
// Memory and events are the agent's, shared with the child (plugin.h). One order at a time. One
// thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/fd.h"
#include "common/status.h"
#include "worker_agent/device/nccl_orders.h"

namespace gradbus {

// What has been aborted has this long to end.
inline constexpr Nanos kNcclAbortGrace = kSecond;

class NcclChild {
 public:
  enum class State : uint8_t { kIdle, kBusy, kFailed };
  struct Place {
    uint32_t area = 0;
    uint64_t offset = 0;  // bytes
  };
  struct Call {
    Place from = {};
    Place to = {};
    uint64_t count = 0;  // elements, as of NcclCall
    NcclType type = NcclType::kF32;
    const CudaShare* ready = nullptr;  // shared event: what is read is there. null: it is
  };

  // `program`: gradbus-nccl. `who` opens every message. GB-D626 when it cannot be started.
  static Result<std::unique_ptr<NcclChild>> start(const std::string& program, std::string who);
  ~NcclChild();  // kills it, and does not wait for its end
  NcclChild(const NcclChild&) = delete;
  NcclChild& operator=(const NcclChild&) = delete;

  // In kIdle only, else GB-D626 and nothing is done.
  Status new_id(Nanos deadline);  // see id()
  Status connect(const NcclId& id, uint32_t rank, uint32_t ranks, uint32_t device, Nanos deadline);
  // A descriptor of `share` is duplicated.
  Status open(uint32_t area, const CudaMemoryShare& share, uint32_t device, Nanos deadline);
  Status all_reduce(const Call& call, NcclOp op, Nanos deadline);
  Status reduce_scatter(const Call& call, NcclOp op, Nanos deadline);
  Status all_gather(const Call& call, Nanos deadline);
  Status broadcast(const Call& call, uint32_t root, Nanos deadline);
  Status send(const Call& call, uint32_t peer, Nanos deadline);     // `to` does not matter
  Status receive(const Call& call, uint32_t peer, Nanos deadline);  // `from` does not matter

  // kBusy until the order is done; never back from kFailed.
  State poll(Nanos now);
  State state() const { return state_; }
  // Readable when poll() has something to find.
  int wait_fd() const { return socket_.get(); }
  // Of kFailed: GB-D626 for what NCCL or the process says, GB-D627 for a deadline, or what the
  // child could not load: GB-D620 to D625.
  const Status& status() const { return status_; }
  const NcclId& id() const { return id_; }  // that new_id() has asked for

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
  pid_t process_;  // 0: it has ended
  int exit_ = 0;   // then, as waitpid() says it
  State state_ = State::kIdle;
  uint64_t number_ = 0;
  const char* what_ = "";  // is under way
  Nanos overdue_ = 0;
  NcclId id_ = {};
  Status status_;
};

}  // namespace gradbus
