// What the contract suite runs over: every row of all_transports(), plain and behind a fault plan
// under which every promise of transport.h still holds. A row that this machine cannot run is
// skipped by name; tests/system/transport/test_rdma_vm.py runs the rdma row in a virtual machine.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "contract/transport_node.h"
#include "transport/faulty/faulty.h"
#include "transport/registry.h"

namespace gradbus {

struct TransportVariant {
  const TransportRow* row = nullptr;
  std::optional<FaultPlan> faults;

  std::string name() const;
  Result<std::unique_ptr<Transport>> create(const TransportOptions& options = {}) const;
};
// In test listings, instead of its bytes.
inline void PrintTo(const TransportVariant& variant, std::ostream* out) { *out << variant.name(); }

std::vector<TransportVariant> transport_variants();

class TransportContract : public testing::TestWithParam<TransportVariant> {
 protected:
  // Skips, with the reason, what this machine cannot run.
  void SetUp() override;
  // With a peer timeout that a node which is not polled for a while does not miss.
  std::unique_ptr<Node> make_node(TransportOptions options = {}, size_t slots = 32) const;
};

}  // namespace gradbus
