// Measures paths between engines that the test calls, on loopback transports. Also tests a probe
// whose peer breaks the rules.
#include "data_plane/path_probe.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/unit/data_plane/engine_cluster.h"

namespace gradbus {
namespace {

struct Prober {
  Mailbox<JobBroken> broken;
  std::unique_ptr<Transport> made = test::loopback();
  const std::string address = made->local_address();
  Engine engine{std::move(made), broken, 2};
  std::shared_ptr<Mailbox<PathAnswer>> answers = std::make_shared<Mailbox<PathAnswer>>();

  void measure(uint64_t probe, const std::string& to) {
    engine.post(MeasurePath{probe, to, answers});
  }
};

std::vector<PathAnswer> await(Prober& asks, const std::vector<Prober*>& others, size_t count) {
  std::vector<PathAnswer> got;
  for (const Nanos until = monotonic_now() + 30 * kSecond;
       got.size() < count && monotonic_now() < until;) {
    asks.engine.do_work();
    for (Prober* other : others) other->engine.do_work();
    for (const PathAnswer& answer : asks.answers->take()) got.push_back(answer);
  }
  return got;
}

TEST(PathProbe, TwoEnginesMeasureTheirPathAgainAndAgain) {
  Prober one, other;
  for (uint64_t probe = 1; probe <= 10; ++probe) {
    const Nanos begin = monotonic_now();
    one.measure(probe, other.address);
    const auto answers = await(one, {&other}, 1);
    const Nanos took = monotonic_now() - begin;
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].probe, probe);
    EXPECT_GT(answers[0].alpha_us, 0);
    EXPECT_GT(answers[0].beta_ns, 0);
    // All pings took at least as long as the quickest; half of the frames took at least the
    // measured time.
    EXPECT_LE(answers[0].alpha_us * 1000 * 2 * kProbePings, static_cast<double>(took));
    EXPECT_LE(answers[0].beta_ns * kProbeFramesMin / 2 * kProbeFrameBytes,
              static_cast<double>(took));
  }
}

TEST(PathProbe, OneEngineAnswersSeveralAtATime) {
  Prober one, two, other;
  one.measure(1, other.address);
  two.measure(2, other.address);
  const auto answers = await(one, {&two, &other}, 1);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_GT(answers[0].beta_ns, 0);
  EXPECT_GT(await(two, {&one, &other}, 1).at(0).beta_ns, 0);
}

TEST(PathProbe, WithoutFiguresTheAnswerComesToo) {
  Prober one, other;
  one.measure(1, "loopback:nobody");
  const auto nobody = await(one, {}, 1);
  ASSERT_EQ(nobody.size(), 1u);
  EXPECT_EQ(nobody[0].alpha_us, 0);
  EXPECT_EQ(nobody[0].beta_ns, 0);
  // Only one measurement runs at a time: the second gets its answer at once.
  one.measure(2, other.address);
  one.measure(3, other.address);
  const auto answers = await(one, {&other}, 2);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].probe, 3u);
  EXPECT_EQ(answers[0].beta_ns, 0);
  EXPECT_EQ(answers[1].probe, 2u);
  EXPECT_GT(answers[1].beta_ns, 0);
}

TEST(PathProbe, AnEngineWithAJobMeasuresNothing) {
  test::Cluster cluster(2, 1);
  cluster.turn(2);
  auto answers = std::make_shared<Mailbox<PathAnswer>>();
  cluster.nodes[0]->engine.post(MeasurePath{7, cluster.nodes[1]->address, answers});
  cluster.turn(2);
  const auto got = answers->take();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].probe, 7u);
  EXPECT_EQ(got[0].beta_ns, 0);
}

// ---- faults of the other side. `peer` accepts and breaks the rules.

struct BadPeer {
  std::unique_ptr<Transport> transport = test::loopback();
  std::vector<std::byte> memory = std::vector<std::byte>(2 << 20);
  RegionId region = transport->register_memory(memory).value();
  LinkId link;
  bool accepted = false;
  uint32_t frames = 0;

  void poll() {
    std::array<TransportEvent, 16> events;
    const size_t count = transport->poll(events);
    for (size_t i = 0; i < count; ++i) {
      if (events[i].kind == TransportEvent::Kind::kReceived) ++frames;
      if (events[i].kind != TransportEvent::Kind::kAccepted) continue;
      accepted = true;
      link = events[i].link;
      transport->post_receive(link, {region, 0, 1 << 20}, 0);
    }
  }
  void send(FrameKind kind, uint64_t payload) {
    FrameHeader header;
    header.kind = static_cast<uint8_t>(kind);
    transport->post_send(link, header, {region, 1 << 20, payload}, 0);
  }
};

void turn(PathProbe& probe, Transport& transport, Nanos now) {
  std::array<TransportEvent, 16> events;
  const size_t count = transport.poll(events);
  for (size_t i = 0; i < count; ++i)
    if (probe.owns(events[i].link)) probe.on_event(events[i], now);
  probe.do_work(now);
}

TEST(PathProbe, WrongAnswersEndIt) {
  struct Row {
    FrameKind kind;
    uint64_t payload;
    int times;
  };
  const Row rows[] = {{FrameKind::kCredit, 0, 1},   // wrong kind
                      {FrameKind::kProbe, 8, 1},    // with a payload
                      {FrameKind::kProbe, 300, 1},  // larger than its slot
                      {FrameKind::kProbe, 0, 2}};   // more answers than questions
  for (const Row& row : rows) {
    BadPeer peer;
    const std::unique_ptr<Transport> transport = test::loopback();
    PathProbe probe(*transport, peer.transport->local_address(), 0);
    for (int i = 0; i < 4; ++i) {
      peer.poll();
      turn(probe, *transport, 0);
    }
    ASSERT_EQ(probe.state(), PathProbe::State::kRunning);
    ASSERT_EQ(peer.frames, 1u);
    for (int i = 0; i < row.times; ++i) peer.send(row.kind, row.payload);
    for (int i = 0; i < 4; ++i) {
      turn(probe, *transport, 0);
      peer.poll();
    }
    EXPECT_EQ(probe.state(), PathProbe::State::kFailed) << row.payload;
    EXPECT_TRUE(probe.closed());
    EXPECT_EQ(probe.beta_ns(), 0);
  }
}

TEST(PathProbe, SilenceEndsItAtTheDeadline) {
  BadPeer peer;
  const std::unique_ptr<Transport> transport = test::loopback();
  PathProbe probe(*transport, peer.transport->local_address(), 1000);
  for (int i = 0; i < 10; ++i) {
    peer.poll();
    turn(probe, *transport, 1000 + kProbeLimit - 1);
  }
  EXPECT_EQ(probe.state(), PathProbe::State::kRunning);
  for (int i = 0; i < 3; ++i) turn(probe, *transport, 1000 + kProbeLimit);
  EXPECT_EQ(probe.state(), PathProbe::State::kFailed);
  EXPECT_TRUE(probe.closed());
}

// A simulated wire of 80 ns a byte and 500 us each way, with its own clock. It tests the formula,
// not the machine. The probe reads the clock `pause` too late once, at answer `late_at`.
struct KnownWire {
  static constexpr Nanos kOneWay = 500'000;
  static constexpr Nanos kFrame = Nanos{80} * kProbeFrameBytes;

  BadPeer peer;
  std::unique_ptr<Transport> transport = test::loopback();
  PathProbe probe{*transport, peer.transport->local_address(), 0};
  Nanos now = 0;

  explicit KnownWire(uint32_t late_at = 0, Nanos pause = 0) {
    for (int i = 0; i < 3; ++i) {
      peer.poll();
      turn(probe, *transport, now);
    }
    while (probe.state() == PathProbe::State::kRunning && carry_frames()) {
      now = std::max(now, due_.front()) + (++answers_ == late_at ? pause : 0);
      due_.erase(due_.begin());
      peer.send(FrameKind::kProbe, 0);
      turn(probe, *transport, now);
    }
  }

 private:
  // Returns false when nothing is in flight, so nothing can happen any more.
  bool carry_frames() {
    for (peer.poll(); carried_ < peer.frames; peer.poll(), ++carried_) {
      wire_free_ = std::max(wire_free_, now) + (carried_ < kProbePings ? 0 : kFrame);
      due_.push_back(wire_free_ + 2 * kOneWay);
      peer.transport->post_receive(peer.link, {peer.region, 0, 1 << 20}, 0);
    }
    return !due_.empty();
  }

  Nanos wire_free_ = 0;
  uint32_t carried_ = 0;
  uint32_t answers_ = 0;
  std::vector<Nanos> due_;  // arrival times of answers at the probe
};

TEST(PathProbe, FiguresOfAKnownWire) {
  const KnownWire wire;
  EXPECT_EQ(wire.probe.state(), PathProbe::State::kDone);
  EXPECT_DOUBLE_EQ(wire.probe.alpha_us(), 500);
  EXPECT_DOUBLE_EQ(wire.probe.beta_ns(), 80);
  // The pings take 50 ms, and a window of frames 5.2 ms.
  EXPECT_LT(wire.now, kProbePings * 2 * KnownWire::kOneWay + kProbeBurst +
                          (kProbeWindowMax + 1) * KnownWire::kFrame);
}

TEST(PathProbe, APauseChangesLittle) {
  for (uint32_t late_at = 1; late_at < kProbePings + 12; ++late_at) {
    const KnownWire wire(late_at, 10 * kMillisecond);
    ASSERT_EQ(wire.probe.state(), PathProbe::State::kDone);
    EXPECT_DOUBLE_EQ(wire.probe.alpha_us(), 500);
    EXPECT_LE(wire.probe.beta_ns(), 80) << late_at;
    EXPECT_GE(wire.probe.beta_ns(), 50) << late_at;
  }
}

TEST(ProbeEcho, EndsAfterAsManyFramesAsAProbeHas) {
  Prober other;
  const std::unique_ptr<Transport> transport = test::loopback();
  std::vector<std::byte> memory(1 << 20);
  const RegionId region = transport->register_memory(memory).value();
  FrameHeader hello;
  hello.kind = static_cast<uint8_t>(FrameKind::kHello);
  const LinkId link = transport->connect(other.address, hello).value();
  FrameHeader frame;
  frame.kind = static_cast<uint8_t>(FrameKind::kProbe);
  uint32_t answered = 0;
  for (bool closed = false; !closed;) {
    ASSERT_LE(answered, kProbePings + kProbeFramesMax);
    transport->post_receive(link, {region, 0, 128}, 0);
    transport->post_send(link, frame, {region, 0, 0}, 0);
    other.engine.do_work();
    std::array<TransportEvent, 64> events;
    const size_t count = transport->poll(events);
    for (size_t i = 0; i < count; ++i) {
      const bool received = events[i].kind == TransportEvent::Kind::kReceived;
      answered += received && events[i].code == Code::kOk;
      closed = closed || events[i].kind == TransportEvent::Kind::kClosed;
    }
  }
  EXPECT_GE(answered, kProbePings);
}

}  // namespace
}  // namespace gradbus
