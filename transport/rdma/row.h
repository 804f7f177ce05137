// The RDMA backend as the registry and `gradbus doctor` see it, without a header of verbs:
// present.cc has it, absent.cc stands in where libibverbs' headers were missing when Gradbus was
// built.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace gradbus {

// GB-D607 with what is missing: headers, library, device, or an active port.
Status rdma_available();
Result<std::unique_ptr<Transport>> create_rdma(const TransportOptions& options);

// One thing that matters to RDMA on this machine.
struct RdmaFinding {
  bool good = false;
  std::string name;   // "rdma rxe0/1"
  std::string value;  // "active, RoCE v2 GID 1 ..."
  std::string next;   // what to do; "" when there is nothing
};
// Every port, the place that an agent listening on `bind_address` would take, and a trial: memory
// is registered and a queue pair made, then both are given back. Opens every device; start-up only.
std::vector<RdmaFinding> examine_rdma(const std::string& bind_address);

}  // namespace gradbus
