// The tensors of a session: their registrations by name, their rounds, and their end.
// At the end the agent is told and the tensor is deleted here. Its memory may still be used by
// other ranks, so the agent frees it when all have unregistered it.
//
// Any thread; what the agent's packets change is under the socket's lock.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client_lib/src/agent_socket.h"
#include "client_lib/src/arena_segments.h"
#include "client_lib/src/rank_channel.h"
#include "client_lib/src/registration.h"
#include "client_lib/src/session_registry.h"

namespace gradbus {

class RankTensors {
 public:
  // `joined`: this rank's place, known before the first request.
  RankTensors(Session& session, AgentSocket& socket, RankChannel& channel,
              SessionRegistry& registry, const JoinedPacket& joined)
      : session_(session),
        socket_(socket),
        channel_(channel),
        registry_(registry),
        joined_(joined) {}
  ~RankTensors() { registry_.unsettled.fetch_sub(unsettled_.load()); }
  RankTensors(const RankTensors&) = delete;
  RankTensors& operator=(const RankTensors&) = delete;

  // ---- registration
  // Requests `spec`, or finds an earlier request for it. Never blocks; the agent's answer completes
  // it. `device`: the GPU for this rank's elements (Tensor::device_rank_buffer).
  Result<std::shared_ptr<Registration>> request(const TensorSpec& spec,
                                                std::optional<DeviceId> device = {});
  // The same, and a number for the caller's turn at the tensor, which keeps it registered.
  Result<std::shared_ptr<Registration>> request_turn(const TensorSpec& spec, uint64_t& turn);
  // Registrations that wait for the agent's answer.
  uint32_t unsettled() const { return unsettled_.load(); }

  // ---- the end of tensors
  // Ends this rank's use of the tensors. They are deleted here, and their memory is free once all
  // ranks have done the same. Never blocks. O905 while a round of one is in flight; then none is
  // unregistered.
  Status unregister(std::span<Tensor* const> tensors);
  // The same while views of their memory exist: the memory stays until unregister() is called. The
  // names are free at once.
  Status unregister_but_views(std::span<Tensor* const> tensors);
  // Unregisters the tensors of ad-hoc operations of this name, and returns their number. O905 while
  // one is in use.
  Result<size_t> unregister(const std::string& name);

  // The segment with a tensor's elements, which stay mapped while the pointer exists.
  std::shared_ptr<Segment> memory_of(Tensor& tensor);

  // ---- rounds
  // Tells the agent that this rank has begun the tensor's current round.
  Status submit(Tensor& tensor, Submission record);
  // Tells the tensors which of their rounds the agent has completed.
  void take_completions();

  // ---- packets of the agent, with the socket's lock
  ArenaSegments& arena() { return arena_; }
  Status take_registered(Packet& packet);

 private:
  Result<std::shared_ptr<Registration>> request_locked(const TensorSpec& spec,
                                                       std::optional<DeviceId> device);
  Status ask(const std::shared_ptr<Registration>& registration);
  Status settle_alone(Registration& registration);
  Status settle(Registration& registration, const RegisteredPacket& packet,
                std::vector<Fd> fds = {});
  LocalReduction make_local_reduction(const TensorSpec& spec, const Segment& segment,
                                      const RegisteredPacket& place) const;
  Status check_rest(std::span<Tensor* const> tensors) const;
  Status send_unregister(Tensor& tensor, bool viewed);
  Status remove(Tensor& tensor);
  Status remove_replaced(const Registration& by);

  Session& session_;
  AgentSocket& socket_;
  RankChannel& channel_;
  SessionRegistry& registry_;
  const JoinedPacket& joined_;
  ArenaSegments arena_;
  std::map<std::string, std::shared_ptr<Registration>> registrations_;
  // Registrations of ad-hoc operations whose names were used again with other arguments.
  std::vector<std::shared_ptr<Registration>> replaced_;
  std::map<uint32_t, std::shared_ptr<Registration>> asked_;  // by request number
  std::atomic<uint32_t> unsettled_{0};
  std::mutex completion_lock_;  // of the completion ring and the two members below
  std::vector<std::unique_ptr<Tensor>> tensors_;  // by age
  std::vector<Tensor*> tensor_by_id_;
};

}  // namespace gradbus
