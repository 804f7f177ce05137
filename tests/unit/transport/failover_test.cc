// Links whose paths break in the middle: every post ends once, every frame arrives once, whatever
// breaks when. The paths are loopback and TCP; a cutter between ends them at a chosen event.
#include <gmock/gmock.h>

#include <random>

#include "contract/transport_node.h"
#include "transport/failover/failover.h"
#include "transport/faulty/faulty.h"
#include "transport/registry.h"

namespace gradbus {
namespace {

using testing::HasSubstr;
using Kind = TransportEvent::Kind;

// Ends every link of a transport, data and control at once, before event number `at` of it is seen;
// with `dead`, none can be opened any more.
struct Cut {
  uint64_t at = UINT64_MAX;
  uint64_t again = 0;  // once more so many events later
  bool dead = false;
  uint64_t events = 0;
  uint64_t cuts = 0;
  uint64_t opened = 0;
};

class Cutter final : public Transport {
 public:
  Cutter(std::unique_ptr<Transport> inner, Cut& cut) : inner_(std::move(inner)), cut_(cut) {}

  Result<RegionId> register_memory(std::span<std::byte> memory) override {
    return inner_->register_memory(memory);
  }
  void unregister_memory(RegionId region) override { inner_->unregister_memory(region); }
  std::string local_address() const override { return inner_->local_address(); }
  Result<LinkId> connect(std::string_view address, const FrameHeader& hello) override {
    if (cut_.dead) return Status(Code::kUnavailable, "the path is dead");
    Result<LinkId> link = inner_->connect(address, hello);
    if (link.ok()) alive_.insert(link.value().index);
    cut_.opened += link.ok() ? 1 : 0;
    return link;
  }
  Code post_send(LinkId link, const FrameHeader& header, Slice payload, uint64_t token) override {
    return inner_->post_send(link, header, payload, token);
  }
  Code post_receive(LinkId link, Slice into, uint64_t token) override {
    return inner_->post_receive(link, into, token);
  }
  size_t poll(std::span<TransportEvent> events) override {
    if (cut_.dead) cut();
    const size_t count = inner_->poll(events.first(1));
    for (size_t i = 0; i < count; ++i) {
      if (++cut_.events == cut_.at) {
        cut();
        const uint64_t pause = std::exchange(cut_.again, 0);
        cut_.at = pause == 0 ? UINT64_MAX : cut_.at + pause;
      }
      if (events[i].kind == Kind::kAccepted) alive_.insert(events[i].link.index);
      if (events[i].kind == Kind::kClosed) alive_.erase(events[i].link.index);
    }
    return count;
  }
  void disconnect(LinkId link) override { inner_->disconnect(link); }
  int wait_fd() const override { return inner_->wait_fd(); }
  std::string link_error(LinkId link) const override { return inner_->link_error(link); }

 private:
  void cut() {
    cut_.cuts += alive_.empty() ? 0 : 1;
    for (const uint32_t index : alive_) inner_->disconnect(LinkId{index});
    alive_.clear();
  }

  std::unique_ptr<Transport> inner_;
  Cut& cut_;
  std::set<uint32_t> alive_;
};

TransportOptions with_timeout(uint32_t peer_timeout_ms, uint32_t return_ms = 0) {
  TransportOptions options;
  options.peer_timeout_ms = peer_timeout_ms;
  options.return_ms = return_ms;
  return options;
}

// A node that is not polled for a while does not miss it.
constexpr uint32_t kPatientMs = 8000;

std::unique_ptr<Transport> plain(std::string_view name) {
  return find_transport(name)->create(with_timeout(kPatientMs)).take();
}

std::unique_ptr<Transport> with_paths(std::vector<InnerTransport> paths,
                                      uint32_t peer_timeout_ms = kPatientMs,
                                      uint32_t return_ms = 0) {
  return FailoverTransport::create(std::move(paths), with_timeout(peer_timeout_ms, return_ms))
      .take();
}

std::unique_ptr<Node> node_of(std::unique_ptr<Transport> transport) {
  return std::make_unique<Node>(std::move(transport), 8);
}

// Random frames both ways while the paths do what they like: `frames` of them, and on until
// `until`.
void operation(
    Node& a, Node& b, const Ends& ends, uint64_t frames, uint64_t seed,
    const std::function<bool()>& until = [] { return true; }) {
  std::mt19937_64 random(seed);
  a.keep_receiving();
  b.keep_receiving();
  a.receive(ends.opener, 4);
  b.receive(ends.acceptor, 4);
  uint64_t from_a = 0, from_b = 0;
  const auto done = [&] {
    return from_a == frames && from_b == frames && a.arrived.size() >= frames &&
           b.arrived.size() >= frames && a.ended_sends[Code::kOk] == frames &&
           b.ended_sends[Code::kOk] == frames && until();
  };
  const Nanos deadline = monotonic_now() + 2 * kEventually;
  while (!done() && monotonic_now() < deadline && a.closed.empty() && b.closed.empty()) {
    if (from_a == frames && from_b == frames && !until()) ++frames;
    if (from_a < frames)
      from_a += a.try_send(ends.opener, from_a + 1, random() % 3000) == Code::kOk;
    if (from_b < frames)
      from_b += b.try_send(ends.acceptor, from_b + 1, random() % 3000) == Code::kOk;
    for (uint64_t polls = random() % 3; polls > 0; --polls) {
      a.poll(1 + random() % 8);
      b.poll(1 + random() % 8);
    }
  }
  EXPECT_TRUE(done()) << a.transport().link_error(ends.opener) << " / "
                      << b.transport().link_error(ends.acceptor);
  for (const Node* node : {&a, &b}) {
    EXPECT_EQ(node->arrived.size(), frames) << "each once";
    EXPECT_EQ(node->arrived_seeds().size(), frames);
    EXPECT_TRUE(node->all_whole());
    EXPECT_TRUE(node->closed.empty());
  }
}

std::unique_ptr<Node> cut_node(std::string_view name, Cut& first, Cut& second,
                               uint32_t peer_timeout_ms = kPatientMs, uint32_t return_ms = 0) {
  std::vector<InnerTransport> paths;
  paths.push_back({std::string(name), std::make_unique<Cutter>(plain(name), first)});
  paths.push_back({std::string(name), std::make_unique<Cutter>(plain(name), second)});
  return node_of(with_paths(std::move(paths), peer_timeout_ms, return_ms));
}

// The path is cut at each event of an exchange in turn, at the opener and at the acceptor.
TEST(Failover, APathCutAnywhereLosesAndDoublesNothing) {
  for (const bool at_opener : {true, false}) {
    uint64_t cuts = 0;
    for (uint64_t at = 1; at < 200; ++at) {
      Cut cut, none;
      cut.at = at;
      const auto a = cut_node("loopback", at_opener ? cut : none, none);
      const auto b = cut_node("loopback", at_opener ? none : cut, none);
      const Ends ends = join(*a, *b);
      operation(*a, *b, ends, 40, at);
      ASSERT_FALSE(testing::Test::HasFailure()) << at << (at_opener ? " opener" : " acceptor");
      cuts += cut.cuts;
    }
    EXPECT_GT(cuts, 100u) << "the cuts fell into the exchange";
  }
}

TEST(Failover, ATcpPathCutAnywhereLosesAndDoublesNothing) {
  for (uint64_t at = 1; at < 120; at += 7) {
    Cut cut, none;
    cut.at = at;
    const auto a = cut_node("tcp", at % 2 ? cut : none, none);
    const auto b = cut_node("tcp", at % 2 ? none : cut, none);
    const Ends ends = join(*a, *b);
    operation(*a, *b, ends, 40, at);
    ASSERT_FALSE(testing::Test::HasFailure()) << at;
  }
}

// Links that break, frames that are corrupt, transports that are busy and late, on both paths.
TEST(Failover, BadPathsCarryEveryFrameOnce) {
  for (const std::string_view name : {"loopback", "tcp"}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      FaultPlan plan;
      plan.seed = seed;
      plan.busy = 0.1;
      plan.delay = 0.2;
      plan.reorder = true;
      plan.drop_link = 0.01;
      const auto bad = [&] {
        std::vector<InnerTransport> paths;
        for (int path = 0; path < 2; ++path, ++plan.seed)
          paths.push_back({std::string(name), make_faulty(plain(name), plan)});
        return node_of(with_paths(std::move(paths)));
      };
      const auto a = bad(), b = bad();
      const Ends ends = join(*a, *b);
      operation(*a, *b, ends, 300, seed);
      ASSERT_FALSE(testing::Test::HasFailure()) << name << " " << seed;
    }
  }
}

// Its first path corrupts frames, the second breaks often: after three frames the first is not
// taken any more.
TEST(Failover, APathThatCorruptsIsGivenUp) {
  FaultPlan corrupt, fragile;
  corrupt.corrupt = 0.1;
  fragile.drop_link = 0.05;
  Cut first, none;
  std::vector<InnerTransport> paths;
  paths.push_back(
      {"loopback", std::make_unique<Cutter>(make_faulty(plain("loopback"), corrupt), first)});
  paths.push_back({"loopback", make_faulty(plain("loopback"), fragile)});
  const auto a = node_of(with_paths(std::move(paths)));
  const auto b = cut_node("loopback", none, none);
  const Ends ends = join(*a, *b);
  operation(*a, *b, ends, 1000, 3);
  EXPECT_EQ(first.opened, 2 * kCorruptMax) << "a data and a control link each time";
}

// ---- back to a better path

bool on_first_path(const Node& node) {
  const TransportTotals totals = const_cast<Node&>(node).transport().totals();
  return totals.paths[0].links == 1 && totals.paths[1].links == 0;
}

// The first path ends, works again, and ends once more at each event that it sees from then on:
// while the opener asks on it, while the link goes back to it, afterwards.
TEST(Failover, ALinkGoesBackAndLosesNothingWhereverItIsCutOnTheWay) {
  for (const bool at_opener : {true, false}) {
    for (uint64_t again = 1; again < 80; ++again) {
      Cut cut, none;
      cut.at = 20;
      cut.again = again;
      const auto a = cut_node("loopback", at_opener ? cut : none, none, kPatientMs, 1);
      const auto b = cut_node("loopback", at_opener ? none : cut, none);
      const Ends ends = join(*a, *b);
      operation(*a, *b, ends, 40, again, [&] {
        return cut.at == UINT64_MAX && a->transport().totals().switches >= 2 && on_first_path(*a);
      });
      ASSERT_FALSE(testing::Test::HasFailure()) << again << (at_opener ? " opener" : " acceptor");
      EXPECT_TRUE(on_first_path(*b));
    }
  }
}

// The path that it leaves for a better one breaks at some event of its leaving, or before.
TEST(Failover, TheOtherPathMayBreakOnTheWayBack) {
  for (const std::string_view name : {"loopback", "tcp"}) {
    for (uint64_t at = 1; at < 160; at += name == "tcp" ? 16 : 3) {
      Cut first, second, none;
      first.at = 20;
      second.at = at;
      const auto a = cut_node(name, first, second, kPatientMs, 1);
      const auto b = cut_node(name, none, none);
      const Ends ends = join(*a, *b);
      operation(*a, *b, ends, 40, at,
                [&] { return first.at == UINT64_MAX && on_first_path(*a) && on_first_path(*b); });
      ASSERT_FALSE(testing::Test::HasFailure()) << name << " " << at;
    }
  }
}

TEST(Failover, ALinkStaysWhereNothingBetterAnswers) {
  Cut first, none;
  const auto a = cut_node("loopback", first, none, kPatientMs, 1);
  const auto b = cut_node("loopback", none, none);
  const Ends ends = join(*a, *b);
  first.dead = true;
  const Nanos begin = monotonic_now();
  operation(*a, *b, ends, 40, 1, [&] { return monotonic_now() - begin > 50 * kMillisecond; });
  const TransportTotals totals = a->transport().totals();
  EXPECT_EQ(totals.switches, 1u);
  EXPECT_EQ(totals.paths[1].links, 1u);
  EXPECT_THAT(totals.paths[0].name, testing::StartsWith("loopback loopback/"));
}

TEST(Failover, ALinkThatIsToldToStaysOnItsPath) {
  Cut first, none;
  first.at = 20;
  const auto a = cut_node("loopback", first, none);
  const auto b = cut_node("loopback", none, none);
  const Ends ends = join(*a, *b);
  const Nanos begin = monotonic_now();
  operation(*a, *b, ends, 40, 1, [&] { return monotonic_now() - begin > 50 * kMillisecond; });
  EXPECT_EQ(first.opened, 2u) << "a data and a control link at the start";
  EXPECT_EQ(a->transport().totals().paths[1].links, 1u);
}

// Twice, four times, ... as rarely: nobody answers (up to 8 times), the path does not last (64).
TEST(Failover, ABetterPathIsTriedLessOftenTheMoreItFails) {
  constexpr Nanos kPause = 10 * kSecond;
  EXPECT_EQ(return_pause(kPause, 0, 0), kPause);
  EXPECT_EQ(return_pause(kPause, 1, 0), 2 * kPause);
  EXPECT_EQ(return_pause(kPause, 2, 1), 4 * kPause);
  EXPECT_EQ(return_pause(kPause, 1, 3), 8 * kPause);
  EXPECT_EQ(return_pause(kPause, 100, 0), 8 * kPause);
  EXPECT_EQ(return_pause(kPause, 100, 100), 64 * kPause);
}

TEST(Failover, OnlyTheOpenerOfALinkMayAsk) {
  Cut none;
  const auto a = cut_node("loopback", none, none), b = cut_node("loopback", none, none);
  (void)join(*a, *b);
  Node intruder(plain("loopback"), 4);
  const auto paths = parse_paths(b->transport().local_address()).take();
  const PathHello probe{12345, kProbeAttempt, true, true};
  const Result<LinkId> link =
      intruder.transport().connect(paths[0].address, pack_path_hello(hello_header(7), probe));
  ASSERT_TRUE(link.ok());
  intruder.receive(link.value());
  ASSERT_TRUE(poll_until({a.get(), b.get(), &intruder},
                         [&] { return intruder.closed.contains(link.value().index); }));
  EXPECT_TRUE(intruder.arrived.empty());
}

TEST(Failover, AllPathsDeadIsPeerLostWithTheReasonOfEach) {
  Cut first, second, none;
  const auto a = cut_node("tcp", first, second, 1500);
  const auto b = cut_node("tcp", none, none, 1500);
  const Ends ends = join(*a, *b);
  for (uint64_t seed = 0; seed < 5; ++seed) a->send(ends.opener, seed, 100);
  first.dead = second.dead = true;
  ASSERT_TRUE(
      poll_until({a.get(), b.get()}, [&] { return a->closed.contains(ends.opener.index); }));
  EXPECT_EQ(a->closed.at(ends.opener.index), Code::kPeerLost);
  EXPECT_EQ(a->outstanding(), 0u);
  const std::string why = a->transport().link_error(ends.opener);
  EXPECT_THAT(why, HasSubstr("GB-P102"));
  EXPECT_THAT(why, HasSubstr("no path is left"));
  EXPECT_THAT(why, testing::ContainsRegex("tcp 127.0.0.1:[0-9]+: the path is dead; tcp 127"));
  // The acceptor waits for longer, but not for ever.
  ASSERT_TRUE(
      poll_until({a.get(), b.get()}, [&] { return b->closed.contains(ends.acceptor.index); }));
  EXPECT_EQ(b->closed.at(ends.acceptor.index), Code::kPeerLost);
  EXPECT_THAT(b->transport().link_error(ends.acceptor), HasSubstr("did not come back"));
}

// One path only: it is opened again.
TEST(Failover, ALinkOfOnePathComesBackOverIt) {
  Cut cut;
  cut.at = 30;
  std::vector<InnerTransport> one;
  one.push_back({"tcp", std::make_unique<Cutter>(plain("tcp"), cut)});
  const auto a = node_of(with_paths(std::move(one)));
  Cut none;
  const auto b = cut_node("tcp", none, none);
  // Of the two addresses of b, a has one transport to reach both.
  const Ends ends = join(*a, *b);
  operation(*a, *b, ends, 60, 1);
  EXPECT_EQ(cut.cuts, 1u);
}

TEST(Failover, AnOrderlyEndIsNoBrokenPath) {
  Cut none;
  const auto a = cut_node("tcp", none, none), b = cut_node("tcp", none, none);
  const Ends ends = join(*a, *b);
  const Nanos begin = monotonic_now();
  a->transport().disconnect(ends.opener);
  ASSERT_TRUE(
      poll_until({a.get(), b.get()}, [&] { return b->closed.contains(ends.acceptor.index); }));
  EXPECT_EQ(b->closed.at(ends.acceptor.index), Code::kClosed);
  EXPECT_LT(monotonic_now() - begin, 8 * kSecond) << "not by a deadline";
  // The acceptor's end, too.
  const Ends again = join(*a, *b);
  b->transport().disconnect(again.acceptor);
  ASSERT_TRUE(
      poll_until({a.get(), b.get()}, [&] { return a->closed.contains(again.opener.index); }));
  EXPECT_EQ(a->closed.at(again.opener.index), Code::kClosed);
}

TEST(Failover, AnEndDuringARecoveryIsToldOnTheNextPath) {
  Cut cut, none;
  const auto a = cut_node("loopback", cut, none), b = cut_node("loopback", none, none);
  const Ends ends = join(*a, *b);
  cut.dead = true;
  a->poll();  // its path is cut
  b->transport().disconnect(ends.acceptor);
  ASSERT_TRUE(
      poll_until({a.get(), b.get()}, [&] { return a->closed.contains(ends.opener.index); }));
  EXPECT_EQ(a->closed.at(ends.opener.index), Code::kClosed);
}

TEST(Failover, WhatCannotBeIsRefusedByName) {
  Cut none;
  const auto a = cut_node("tcp", none, none);
  EXPECT_THAT(a->transport().connect("127.0.0.1:1", hello_header(1)).status().message(),
              HasSubstr("GB-F100"));
  EXPECT_THAT(a->transport().connect("rdma=127.0.0.1:1", hello_header(1)).status().message(),
              HasSubstr("GB-D604"));
  EXPECT_THAT(open_transports("tcp,pigeon", {}).status().message(), HasSubstr("\"pigeon\""));
  TransportOptions options;
  options.bind_address = "127.0.0.1,127.0.0.2,127.0.0.3";
  EXPECT_THAT(open_transports("tcp,tcp", options).status().message(),
              HasSubstr("--bind lists 3 addresses and --transport 2 names"));
}

TEST(Failover, ListsOfNamesAndAddressesGoTogether) {
  TransportOptions options;
  options.bind_address = "127.0.0.1,127.0.0.2";
  const auto two = open_transports("tcp", options).take();
  EXPECT_THAT(two->local_address(),
              testing::MatchesRegex("tcp=127.0.0.1:[0-9]+,tcp=127.0.0.2:[0-9]+"));
  EXPECT_THAT(open_transports("tcp,loopback", {}).take()->local_address(),
              testing::MatchesRegex("tcp=127.0.0.1:[0-9]+,loopback=loopback/[0-9]+"));
  EXPECT_THAT(open_transports("tcp", {}).take()->local_address(),
              testing::MatchesRegex("127.0.0.1:[0-9]+"));
  EXPECT_EQ(common_name("tcp", "127.0.0.1"), "tcp");
  EXPECT_EQ(common_name("tcp", "127.0.0.1,127.0.0.2"), "failover");
  EXPECT_EQ(common_name("rdma,tcp", "127.0.0.1"), "failover");
}

}  // namespace
}  // namespace gradbus
