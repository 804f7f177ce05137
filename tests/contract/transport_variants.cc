#include "contract/transport_variants.h"

namespace gradbus {

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
  for (const TransportRow& row : all_transports()) {
    variants.push_back({&row, std::nullopt});
    variants.push_back({&row, rough});
  }
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
