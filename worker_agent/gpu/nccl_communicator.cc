#include "worker_agent/gpu/nccl_communicator.h"

#include <utility>

#include "common/errors.h"

namespace gradbus {

NcclCommunicator::NcclCommunicator(const NcclLibrary& library, std::string who)
    : library_(library), who_(std::move(who)) {}

NcclCommunicator::~NcclCommunicator() {
  if (comm_ == nullptr) return;
  if (state_ == NcclState::kReady)
    library_.destroy(comm_);
  else
    library_.abort(comm_);
}

Result<NcclId> NcclCommunicator::new_id(const NcclLibrary& library) {
  NcclId id;
  const NcclResult result = library.get_id(&id);
  if (result == NcclResult::kSuccess) return id;
  return error("D626", std::string("ncclGetUniqueId: ") + library.error_text(result));
}

Status NcclCommunicator::connect(const NcclId& id, uint32_t rank, uint32_t ranks, Nanos deadline) {
  GRADBUS_RETURN_IF_ERROR(refuse_unless(NcclState::kUnconnected, "connect"));
  NcclConfig config;
  config.blocking = 0;
  const NcclResult result =
      library_.init_rank(&comm_, static_cast<int>(ranks), id, static_cast<int>(rank), &config);
  return started(result, "connect", NcclState::kConnecting, deadline);
}

Status NcclCommunicator::all_reduce(const NcclCall& call, NcclOp op) {
  GRADBUS_RETURN_IF_ERROR(refuse_unless(NcclState::kReady, "all_reduce"));
  return started(
      library_.all_reduce(call.from, call.to, call.count, call.type, op, comm_, call.stream),
      "all_reduce", NcclState::kLaunching, call.deadline);
}

Status NcclCommunicator::reduce_scatter(const NcclCall& call, NcclOp op) {
  GRADBUS_RETURN_IF_ERROR(refuse_unless(NcclState::kReady, "reduce_scatter"));
  return started(
      library_.reduce_scatter(call.from, call.to, call.count, call.type, op, comm_, call.stream),
      "reduce_scatter", NcclState::kLaunching, call.deadline);
}

Status NcclCommunicator::all_gather(const NcclCall& call) {
  GRADBUS_RETURN_IF_ERROR(refuse_unless(NcclState::kReady, "all_gather"));
  return started(library_.all_gather(call.from, call.to, call.count, call.type, comm_, call.stream),
                 "all_gather", NcclState::kLaunching, call.deadline);
}

Status NcclCommunicator::broadcast(const NcclCall& call, uint32_t root) {
  GRADBUS_RETURN_IF_ERROR(refuse_unless(NcclState::kReady, "broadcast"));
  return started(library_.broadcast(call.from, call.to, call.count, call.type,
                                    static_cast<int>(root), comm_, call.stream),
                 "broadcast", NcclState::kLaunching, call.deadline);
}

Status NcclCommunicator::send(const NcclCall& call, uint32_t peer) {
  GRADBUS_RETURN_IF_ERROR(refuse_unless(NcclState::kReady, "send"));
  return started(
      library_.send(call.from, call.count, call.type, static_cast<int>(peer), comm_, call.stream),
      "send", NcclState::kLaunching, call.deadline);
}

Status NcclCommunicator::receive(const NcclCall& call, uint32_t peer) {
  GRADBUS_RETURN_IF_ERROR(refuse_unless(NcclState::kReady, "receive"));
  return started(
      library_.receive(call.to, call.count, call.type, static_cast<int>(peer), comm_, call.stream),
      "receive", NcclState::kLaunching, call.deadline);
}

NcclState NcclCommunicator::poll(Nanos now) {
  const bool waits = state_ == NcclState::kConnecting || state_ == NcclState::kLaunching ||
                     state_ == NcclState::kRunning;
  if (!waits) return state_;
  NcclResult of_comm = NcclResult::kSuccess;
  NcclResult result = library_.async_error(comm_, &of_comm);
  if (result == NcclResult::kSuccess) result = of_comm;
  if (result == NcclResult::kSuccess) {
    if (state_ == NcclState::kConnecting) return state_ = NcclState::kReady;
    state_ = NcclState::kRunning;
  } else if (result != NcclResult::kInProgress) {
    fail(error("D626", text(result)));
    return state_;
  }
  if (now >= deadline_)
    fail(error("D627", who_ + ": " + what_ + " has not ended by its deadline, and was aborted"));
  return state_;
}

void NcclCommunicator::finished() {
  if (state_ == NcclState::kRunning) state_ = NcclState::kReady;
}

Status NcclCommunicator::started(NcclResult result, const char* what, NcclState next,
                                 Nanos deadline) {
  what_ = what;
  deadline_ = deadline;
  state_ = next;
  if (result != NcclResult::kSuccess && result != NcclResult::kInProgress)
    fail(error("D626", text(result)));
  return status_;
}

Status NcclCommunicator::refuse_unless(NcclState state, const char* what) const {
  if (state_ == state) return {};
  if (state_ == NcclState::kFailed) return status_;
  return error(
      "D626", who_ + ": " + what + " while " +
                  (state_ == NcclState::kUnconnected ? "not connected" : "something is under way"));
}

void NcclCommunicator::fail(Status why) {
  if (comm_ != nullptr) library_.abort(comm_);
  comm_ = nullptr;
  state_ = NcclState::kFailed;
  status_ = std::move(why);
}

std::string NcclCommunicator::text(NcclResult result) const {
  return who_ + ": " + what_ + ": " + library_.error_text(result);
}

}  // namespace gradbus
