// That a fault plan does what it says; that the contract holds under it is in tests/contract.
#include "transport/faulty/faulty.h"

#include <gtest/gtest.h>

#include "contract/transport_node.h"
#include "transport/registry.h"

namespace gradbus {
namespace {

std::unique_ptr<Transport> loopback() { return find_transport("loopback")->create({}).take(); }

// The order in which 40 frames arrive behind `plan`.
std::vector<uint64_t> arrivals(const FaultPlan& plan) {
  Node a(loopback()), b(make_faulty(loopback(), plan));
  const Ends ends = join(a, b);
  b.receive(ends.acceptor, 40);
  for (uint64_t seed = 1; seed <= 40; ++seed) a.send(ends.opener, seed, 10);
  EXPECT_TRUE(poll_until({&a, &b}, [&] { return b.arrived.size() == 40; }));
  std::vector<uint64_t> order;
  for (const Node::Arrived& frame : b.arrived) order.push_back(frame.header.step);
  return order;
}

FaultPlan delaying(uint64_t seed, bool reorder) {
  FaultPlan plan;
  plan.seed = seed;
  plan.delay = 0.5;
  plan.reorder = reorder;
  return plan;
}

TEST(Faulty, OnlyReorderingReorders) {
  const std::vector<uint64_t> in_order = arrivals({});
  EXPECT_TRUE(std::is_sorted(in_order.begin(), in_order.end()));
  EXPECT_EQ(arrivals(delaying(1, false)), in_order);
  EXPECT_NE(arrivals(delaying(1, true)), in_order);
}

TEST(Faulty, OneSeedIsOneCourse) {
  EXPECT_EQ(arrivals(delaying(5, true)), arrivals(delaying(5, true)));
  EXPECT_NE(arrivals(delaying(5, true)), arrivals(delaying(6, true)));
}

TEST(Faulty, BusyComesAsOftenAsPlanned) {
  FaultPlan plan;
  plan.busy = 0.25;
  TransportOptions options;
  options.posts_max = 4096;
  Node a(make_faulty(find_transport("loopback")->create(options).take(), plan)), b(loopback());
  const Ends ends = join(a, b);
  int busy = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    busy += a.try_send(ends.opener, seed, 0) == Code::kBusy;
  }
  EXPECT_NEAR(busy, 500, 100);  // five standard deviations of the binomial
}

}  // namespace
}  // namespace gradbus
