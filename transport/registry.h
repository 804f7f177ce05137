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

// What `--transport` may say: the name of a row, or several with commas between, in the order of
// preference: then a link that loses its path goes on over another (failover/failover.h). GB-F100
// names what there is.
Status check_transports(std::string_view names);
// Opens them. With several, bind_address may list one address for each; with one, several paths of
// it. A row of several that this machine cannot run is left out, the log says so.
Result<std::unique_ptr<Transport>> open_transports(std::string_view names,
                                                   const TransportOptions& options);
// Under which name agents find that they have a transport in common: the row's, or "failover".
std::string common_name(std::string_view names, std::string_view bind_address);

}  // namespace gradbus
