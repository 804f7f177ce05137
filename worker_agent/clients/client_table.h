// The processes that are attached to this node, by their sockets. It watches the sockets and the
// ends of the processes, and finds the clients that are silent, stuck or dead.
//
// A client stays until remove(), so a loop over all() must not remove. Conductor thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "worker_agent/clients/attached_client.h"
#include "worker_agent/clients/owned_values.h"
#include "worker_agent/clients/watched_fds.h"

namespace gradbus {

class ClientTable {
 public:
  ClientTable(WatchedFds& watched, uint64_t clients_max)
      : watched_(watched), clients_max_(clients_max) {}

  // It must send its first packet within 2 s. It is refused with GB-A304 when there are too many.
  void add(AcceptedClient accepted, Nanos now);
  void remove(int fd);
  bool is_full() const { return clients_.size() >= clients_max_; }
  // Of the clients that have sent nothing: the oldest one of the user who has most of them. Null:
  // all have sent something.
  AttachedClient* longest_silent() const;

  // Null: there is none.
  AttachedClient* find(int fd) const;
  // The client whose process `fd` belongs to: readable when that process has ended.
  AttachedClient* of_process(int fd) const;
  auto all() const { return OwnedValues(clients_); }
  bool empty() const { return clients_.empty(); }
  size_t size() const { return clients_.size(); }
  uint64_t size_max() const { return clients_max_; }
  void count_packet() { ++packets_; }
  uint64_t packets() const { return packets_; }  // of all clients so far

  // The sockets of clients:
  // whose process has ended without an event. Needed where pidfd_open is refused, as in containers
  // with an old seccomp profile. It looks every 250 ms.
  std::vector<int> ended(Nanos now);
  // whose deadline has passed.
  std::vector<int> silent(Nanos now) const;
  // that do not read their answers.
  std::vector<int> given_up() const;

  // Packets that did not fit into a socket are sent when it has room again. After each turn.
  void watch_full_sockets();

 private:
  WatchedFds& watched_;
  const uint64_t clients_max_;
  std::map<int, std::unique_ptr<AttachedClient>> clients_;  // by socket
  std::map<int, int> client_of_process_;                    // pidfd -> socket
  std::set<int> full_;                                      // sockets watched for room
  Nanos next_look_ = 0;
  uint64_t packets_ = 0;
  uint64_t added_ = 0;  // clients, ever
};

}  // namespace gradbus
