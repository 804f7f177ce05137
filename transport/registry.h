// The table of transports: one constant row each. A new backend is one folder and one row here;
// the contract suite loops over the table.
#pragma once

#include <memory>
#include <span>
#include <string>
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

// Checks `--transport`: the name of a row, or several with commas between in the order of
// preference. With several, a link that loses its path continues on another one
// (failover/failover.h). GB-F100 lists the valid names.
Status check_transports(std::string_view names);
// Opens them. With several transports, bind_address may have one address for each. With one
// transport, several addresses are several paths. If one of several rows cannot run on this
// machine, it is omitted and logged.
Result<std::unique_ptr<Transport>> open_transports(std::string_view names,
                                                   const TransportOptions& options);
// The name by which agents find a common transport: that of the row, or "failover".
std::string common_name(std::string_view names, std::string_view bind_address);

}  // namespace gradbus
