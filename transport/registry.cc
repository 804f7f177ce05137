#include "transport/registry.h"

#include <algorithm>
#include <vector>

#include "common/errors.h"
#include "common/log.h"
#include "transport/failover/failover.h"
#include "transport/loopback/loopback.h"
#include "transport/rdma/row.h"
#include "transport/tcp/tcp.h"

namespace gradbus {
namespace {

Status always_available() { return {}; }

constexpr TransportRow kTransports[] = {
    {"tcp", "TCP connections between agents, several per link", always_available,
     TcpTransport::create},
    {"rdma", "RDMA over InfiniBand or RoCE, one or more queue pairs per link", rdma_available,
     create_rdma},
    {"loopback", "copies inside one process, for tests and simulations", always_available,
     LoopbackTransport::create},
};

// A row and its listen address.
struct Place {
  std::string transport;
  std::string bind_address;
};

Result<std::vector<Place>> match_places(std::string_view names, const std::string& bind_address) {
  const std::vector<std::string> transports = split_list(names);
  const std::vector<std::string> addresses = split_list(bind_address);
  std::vector<Place> places;
  if (transports.size() != addresses.size() && transports.size() > 1 && addresses.size() > 1)
    return error("F100", "--bind lists " + std::to_string(addresses.size()) +
                             " addresses and --transport " + std::to_string(transports.size()) +
                             " names; allowed: one of either, or as many of both");
  for (size_t i = 0; i < std::max(transports.size(), addresses.size()); ++i)
    places.push_back({transports[std::min(i, transports.size() - 1)],
                      addresses[std::min(i, addresses.size() - 1)]});
  return places;
}

Result<std::unique_ptr<Transport>> open_several(const std::vector<Place>& places,
                                                TransportOptions options) {
  std::vector<InnerTransport> inner;
  Status last;
  for (const Place& place : places) {
    const TransportRow* row = find_transport(place.transport);
    if (last = row->available(); !last.ok()) {
      spdlog::warn("no path over {}: {}", place.transport, last.message());
      continue;
    }
    options.bind_address = place.bind_address;
    Result<std::unique_ptr<Transport>> opened = row->create(options);
    if (!opened.ok()) return opened.status();
    inner.push_back({place.transport, opened.take()});
  }
  if (inner.empty()) return last;
  return FailoverTransport::create(std::move(inner), options);
}

}  // namespace

std::span<const TransportRow> all_transports() { return kTransports; }

const TransportRow* find_transport(std::string_view name) {
  const auto* row = std::find_if(std::begin(kTransports), std::end(kTransports),
                                 [&](const TransportRow& one) { return one.name == name; });
  return row == std::end(kTransports) ? nullptr : row;
}

Status check_transports(std::string_view names) {
  for (const std::string& name : split_list(names)) {
    if (find_transport(name) != nullptr) continue;
    std::string known;
    for (const TransportRow& row : kTransports)
      known += (known.empty() ? "" : ", ") + std::string(row.name);
    return error("F100",
                 "--transport \"" + name.substr(0, 40) + "\" is unknown; there are: " + known);
  }
  return {};
}

Result<std::unique_ptr<Transport>> open_transports(std::string_view names,
                                                   const TransportOptions& options) {
  GRADBUS_RETURN_IF_ERROR(check_transports(names));
  const Result<std::vector<Place>> places = match_places(names, options.bind_address);
  GRADBUS_RETURN_IF_ERROR(places.status());
  if (places.value().size() > 1) return open_several(places.value(), options);
  const TransportRow* row = find_transport(names);
  GRADBUS_RETURN_IF_ERROR(row->available());
  return row->create(options);
}

std::string common_name(std::string_view names, std::string_view bind_address) {
  const bool several =
      names.find(',') != std::string_view::npos || bind_address.find(',') != std::string_view::npos;
  return several ? "failover" : std::string(names);
}

}  // namespace gradbus
