// A test double of libibverbs, for tests only: one device that does what a test says, so that what
// no healthy machine does can be tried. It moves no bytes. One at a time, one thread.
#pragma once

#include <netinet/in.h>

#include <cerrno>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transport/rdma/verbs_library.h"

namespace gradbus {

class VerbsDouble {
 public:
  // What was handed to a device, and whether the processor copied it then.
  struct Request {
    std::vector<ibv_sge> parts;
    bool copied = false;
  };
  // A queue pair that somebody made, with what it was given and not asked to end yet.
  struct Pair {
    ibv_qp qp{};  // first: the library hands out its address
    std::deque<ibv_send_wr> sends;
    std::deque<uint64_t> receives;  // wr_id
    std::deque<ibv_wc> ended;
    std::deque<Request> requests;  // all sends and receives that it ever had
    uint32_t armed = 0;            // times that a notice was asked for
    bool failed = false;
  };

  VerbsDouble();
  ~VerbsDouble();
  VerbsDouble(const VerbsDouble&) = delete;
  VerbsDouble& operator=(const VerbsDouble&) = delete;

  const VerbsLibrary& library() const { return library_; }

  // What there is, and the errno with which something is refused; 0: it is not.
  bool device_there = true;
  ibv_port_state port_state = IBV_PORT_ACTIVE;
  std::vector<ibv_gid_entry> gids;
  int open_refused = 0;
  int domain_refused = 0;
  int memory_refused = 0;
  int pair_refused = 0;
  int receiver_refused = 0;  // INIT to RTR: a GID that leads nowhere
  int send_refused = 0;
  bool gives_back = true;  // what a failed queue pair holds

  std::vector<std::unique_ptr<Pair>> pairs;  // in the order of their making
  int registrations = 0;                     // alive

  // Ends the first `count` sends of `pair`. As a device does: an error always says so, a success
  // only where that was asked for.
  static void end_sends(Pair& pair, size_t count, ibv_wc_status status);
  static void end_receive(Pair& pair, ibv_wc_status status, uint32_t bytes);

 private:
  VerbsLibrary library_;
};

ibv_gid_entry gid_entry(uint32_t index, const std::string& ipv6, uint32_t type);

}  // namespace gradbus
