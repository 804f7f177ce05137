// The tensors that ranks ask to register and to unregister. Requests are sent in batches, one for
// each rank and turn. While the coordinator is gone they wait in the clients until it returns.
//
// Conductor thread only.
#pragma once

#include <map>
#include <utility>

#include "proto/attach.h"
#include "worker_agent/clients/client_table.h"
#include "worker_agent/control/coordinator_connection.h"

namespace gradbus {

class TensorRequests {
 public:
  TensorRequests(ClientTable& clients, CoordinatorConnection& coordinator, Devices& devices)
      : clients_(clients), coordinator_(coordinator), devices_(devices) {}

  // The rank gets its answer when all ranks have asked, or at once when it is refused. `runs`: the
  // client's job does.
  void add(AttachedClient& client, const RegisterPacket& packet, bool runs, Nanos now);
  // The rank does not use the tensor any more.
  void remove(const AttachedClient& client, const UnregisterPacket& packet);
  // Sends the batches of this turn. What is unregistered goes first: a name that a rank registers
  // again is another tensor.
  void flush();
  // The coordinator is gone: everything is announced when it returns.
  void clear();
  // Repeats the pending requests of a job's ranks: an earlier coordinator may have got them, this
  // one has not.
  void repeat(uint64_t job);
  // Refuses all that wait, because the coordinator has not returned.
  void refuse_all(const Status& why);

 private:
  using Batches = std::map<std::pair<uint64_t, uint32_t>, v1::AgentMessage>;  // by job and rank

  Status check(const AttachedClient& client, const TensorSpec& spec, uint8_t collective, bool runs,
               Nanos now) const;
  void ask_for(const AttachedClient& client, const TensorSpec& spec);

  ClientTable& clients_;
  CoordinatorConnection& coordinator_;
  Devices& devices_;
  Batches registrations_;
  Batches unregistrations_;
};

}  // namespace gradbus
