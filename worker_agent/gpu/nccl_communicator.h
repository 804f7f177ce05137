// One rank's end of an NCCL communicator, for a thread that must not hang: nothing here waits.
// connect() and the collectives start an operation, and poll() returns its state. An operation that
// has not ended by its deadline is aborted. Then this communicator cannot be used any more.
//
// One operation at a time. One thread.
//
//   unconnected -connect-> connecting -> ready -all_reduce...-> launching -> running -finished->
//   ready
//
// In `launching` NCCL is still putting its work on the stream. From `running` on, the caller
// records an event on the stream. When the event has completed, the caller calls finished().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/clock.h"
#include "common/status.h"
#include "worker_agent/gpu/nccl_library.h"

namespace gradbus {

enum class NcclState : uint8_t {
  kUnconnected,
  kConnecting,
  kReady,
  kLaunching,
  kRunning,
  kFailed,  // and aborted: status() says why
};

// Memory on the device of the stream. It belongs to the operation until finished().
struct NcclCall {
  const void* from = nullptr;
  void* to = nullptr;
  // all_reduce, broadcast: of both; reduce_scatter, receive: of `to`; all_gather, send: of `from`
  size_t count = 0;
  NcclType type = NcclType::kF32;
  void* stream = nullptr;  // a cudaStream_t
  Nanos deadline = 0;
};

class NcclCommunicator {
 public:
  // `who` opens every message: "job digits, rank 3". The library outlives this.
  NcclCommunicator(const NcclLibrary& library, std::string who);
  // Aborts the current operation.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // The id of a new communicator, made by one of its ranks; the others get it.
  static Result<NcclId> new_id(const NcclLibrary& library);

  // Call it once. Every rank of `ranks` calls it with the same id.
  Status connect(const NcclId& id, uint32_t rank, uint32_t ranks, Nanos deadline);

  // In kReady only; otherwise it returns GB-D626 and does nothing. All ranks make the same calls in
  // the same order.
  Status all_reduce(const NcclCall& call, NcclOp op);
  Status reduce_scatter(const NcclCall& call, NcclOp op);
  Status all_gather(const NcclCall& call);
  Status broadcast(const NcclCall& call, uint32_t root);
  // The same count and type on both ends; the other ranks are not involved.
  Status send(const NcclCall& call, uint32_t peer);
  Status receive(const NcclCall& call, uint32_t peer);

  NcclState poll(Nanos now);
  // In kRunning: the event after the operation has completed.
  void finished();

  NcclState state() const { return state_; }
  // In kFailed: GB-D626 for an error of NCCL, GB-D627 for a deadline.
  const Status& status() const { return status_; }

 private:
  // Handles the result of a call that starts an operation; `next` is the state until it is done.
  Status started(NcclResult result, const char* what, NcclState next, Nanos deadline);
  Status refuse_unless(NcclState state, const char* what) const;
  void fail(Status why);
  std::string text(NcclResult result) const;

  const NcclLibrary& library_;
  const std::string who_;
  NcclComm* comm_ = nullptr;
  NcclState state_ = NcclState::kUnconnected;
  const char* what_ = "";  // the current operation
  Nanos deadline_ = 0;
  Status status_;
};

}  // namespace gradbus
