// The RDMA backend for the registry and `gradbus doctor`, without verbs headers. present.cc
// implements it. absent.cc replaces it in builds without the headers of libibverbs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace gradbus {

// Returns GB-D607 with what is missing: headers, library, device, or an active port.
Status rdma_available();
Result<std::unique_ptr<Transport>> create_rdma(const TransportOptions& options);

// One fact about RDMA on this machine.
struct RdmaFinding {
  bool good = false;
  std::string name;   // "rdma rxe0/1"
  std::string value;  // "active, RoCE v2 GID 1 ..."
  std::string next;   // what to do; "" when there is nothing
};
// Lists every port and the choice of an agent that listens on `bind_address`. Also tries to
// register memory and to create a queue pair, then releases both. Opens every device; start-up
// only.
std::vector<RdmaFinding> examine_rdma(const std::string& bind_address);

}  // namespace gradbus
