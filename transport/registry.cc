#include "transport/registry.h"

#include <algorithm>

#include "transport/loopback/loopback.h"
#include "transport/rdma/row.h"
#include "transport/tcp/tcp.h"

namespace gradbus {
namespace {

Status always_available() { return {}; }

constexpr TransportRow kTransports[] = {
    {"tcp", "TCP connections between agents, several per link", always_available,
     TcpTransport::create},
    {"rdma", "RDMA over InfiniBand or RoCE, one queue pair per link", rdma_available, create_rdma},
    {"loopback", "copies inside one process, for tests and simulations", always_available,
     LoopbackTransport::create},
};

}  // namespace

std::span<const TransportRow> all_transports() { return kTransports; }

const TransportRow* find_transport(std::string_view name) {
  const auto* row = std::find_if(std::begin(kTransports), std::end(kTransports),
                                 [&](const TransportRow& one) { return one.name == name; });
  return row == std::end(kTransports) ? nullptr : row;
}

}  // namespace gradbus
