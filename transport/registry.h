// The table of transports: one constant row each. A new backend is one folder and one row here;
// the contract suite loops over the table.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "transport/transport.h"

namespace gradbus {

struct TransportRow {
  std::string_view name;     // "tcp"
  std::string_view summary;  // one sentence for `gradbus doctor`
  // kUnavailable with the reason when this machine cannot run it.
  Status (*available)();
  Result<std::unique_ptr<Transport>> (*create)(const TransportOptions& options);
};

std::span<const TransportRow> all_transports();

// The row called `name`, or nullptr.
const TransportRow* find_transport(std::string_view name);

}  // namespace gradbus
