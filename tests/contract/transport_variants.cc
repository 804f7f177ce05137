#include "contract/transport_variants.h"

#include "transport/rdma/row.h"

namespace gradbus {
namespace {

Status always_available() { return {}; }

template <const char* names>
Result<std::unique_ptr<Transport>> create_several(const TransportOptions& options) {
  return open_transports(names, options);
}

Result<std::unique_ptr<Transport>> create_three_pairs(const TransportOptions& options) {
  TransportOptions more = options;
  more.queue_pairs = 3;
  return create_rdma(more);
}

Result<std::unique_ptr<Transport>> create_sockets_only(const TransportOptions& options) {
  TransportOptions less = options;
  less.local_links = false;
  return open_transports("tcp", less);
}

constexpr char kTwoTcp[] = "tcp,tcp";
constexpr char kTwoLoopbacks[] = "loopback,loopback";
constexpr char kRdmaThenTcp[] = "rdma,tcp";

// Links of several paths, of several queue pairs, or that leave the machine's memory alone; the
// name is part of a test's.
constexpr TransportRow kSeveral[] = {
    {"tcp_sockets", "", always_available, create_sockets_only},
    {"tcp_and_tcp", "", always_available, create_several<kTwoTcp>},
    {"two_loopbacks", "", always_available, create_several<kTwoLoopbacks>},
    {"rdma_of_three_pairs", "", rdma_available, create_three_pairs},
    {"rdma_and_tcp", "", rdma_available, create_several<kRdmaThenTcp>},
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(All, TransportContract, testing::ValuesIn(transport_variants()),
                         [](const auto& variant) { return variant.param.name(); });

std::string TransportVariant::name() const {
  return std::string(row->name) + (faults ? "_faulty" : "");
}

Result<std::unique_ptr<Transport>> TransportVariant::create(const TransportOptions& options) const {
  Result<std::unique_ptr<Transport>> plain = row->create(options);
  if (!plain.ok() || !faults) return plain;
  return make_faulty(plain.take(), *faults);
}

std::vector<TransportVariant> transport_variants() {
  FaultPlan rough;
  rough.seed = 42;
  rough.busy = 0.2;
  rough.delay = 0.3;
  rough.reorder = true;
  std::vector<TransportVariant> variants;
  const auto add = [&](const TransportRow& row) {
    variants.push_back({&row, std::nullopt});
    variants.push_back({&row, rough});
  };
  for (const TransportRow& row : all_transports()) add(row);
  for (const TransportRow& row : kSeveral) add(row);
  return variants;
}

void TransportContract::SetUp() {
  if (const Status status = GetParam().row->available(); !status.ok())
    GTEST_SKIP() << status.message();
}

std::unique_ptr<Node> TransportContract::make_node(TransportOptions options, size_t slots) const {
  options.peer_timeout_ms = 8000;
  Result<std::unique_ptr<Transport>> transport = GetParam().create(options);
  EXPECT_TRUE(transport.ok()) << transport.status().message();
  return std::make_unique<Node>(transport.take(), slots);
}

}  // namespace gradbus
