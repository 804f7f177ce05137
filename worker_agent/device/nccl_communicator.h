// One rank's end of an NCCL communicator, for a thread that must not hang: nothing here waits.
// connect() and the collectives start something, poll() says how far it is, and what has not come
// by its deadline is aborted, after which this communicator is of no more use.
//
// One operation at a time. One thread.
//
//   unconnected -connect-> connecting -> ready -all_reduce...-> launching -> running -finished->
//   ready
//
// In `launching` NCCL is still putting its work on the stream; from `running` on an event recorded
// on the stream comes when the operation is done: the caller asks for that and says finished().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/clock.h"
#include "common/status.h"
#include "worker_agent/device/nccl_library.h"

namespace gradbus {

enum class NcclState : uint8_t {
  kUnconnected,
  kConnecting,
  kReady,
  kLaunching,
  kRunning,
  kFailed,  // and aborted: status() says why
};

// Memory of the device that the stream is of; it belongs to the operation until finished().
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
  // Aborts what is under way.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // The name of a new communicator, from one of its ranks, which the others are told.
  static Result<NcclId> new_id(const NcclLibrary& library);

  // Once. Every rank of `ranks` calls it with the same id.
  Status connect(const NcclId& id, uint32_t rank, uint32_t ranks, Nanos deadline);

  // In kReady only, else GB-D626 and nothing is done. All ranks call the same in the same order.
  Status all_reduce(const NcclCall& call, NcclOp op);
  Status reduce_scatter(const NcclCall& call, NcclOp op);
  Status all_gather(const NcclCall& call);
  Status broadcast(const NcclCall& call, uint32_t root);
  // The same count and type on both ends; the other ranks have no part in it.
  Status send(const NcclCall& call, uint32_t peer);
  Status receive(const NcclCall& call, uint32_t peer);

  NcclState poll(Nanos now);
  // In kRunning: the event behind the operation has come.
  void finished();

  NcclState state() const { return state_; }
  // Of kFailed: GB-D626 for what NCCL says, GB-D627 for a deadline.
  const Status& status() const { return status_; }

 private:
  // What a call that starts something has answered; `next` is the state until it is through.
  Status started(NcclResult result, const char* what, NcclState next, Nanos deadline);
  Status refuse_unless(NcclState state, const char* what) const;
  void fail(Status why);
  std::string text(NcclResult result) const;

  const NcclLibrary& library_;
  const std::string who_;
  NcclComm* comm_ = nullptr;
  NcclState state_ = NcclState::kUnconnected;
  const char* what_ = "";  // is under way
  Nanos deadline_ = 0;
  Status status_;
};

}  // namespace gradbus
