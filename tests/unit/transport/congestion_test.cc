#include "transport/net/congestion.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "transport/net/socket.h"
#include "transport/tcp/tcp.h"

namespace gradbus {
namespace {

// Both ends of a connection inside this machine, settled.
struct Pair {
  explicit Pair(const CongestionControl& congestion) {
    listener = listen_on(resolve_bind_address("127.0.0.1").take(), congestion).take();
    opener = start_connect(local_address_of(listener.get()), 1500, congestion).take();
    pollfd waiting{listener.get(), POLLIN, 0};
    EXPECT_EQ(poll(&waiting, 1, 10'000), 1);
    acceptor = accept_connection(listener.get(), 1500, congestion);
    waiting = {opener.get(), POLLOUT, 0};
    EXPECT_EQ(poll(&waiting, 1, 10'000), 1);
    congestion.settle(opener.get());
  }
  std::string names() const {
    return congestion_control_of(opener.get()) + " " + congestion_control_of(acceptor.get());
  }
  Fd listener, opener, acceptor;
};

std::string system_default() {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return congestion_control_of(fd.get());
}

std::string twice(const std::string& name) { return name + " " + name; }

TEST(Congestion, OnlyBbrIsReplacedAndOnlyNearBy) {
  const auto of = [](const char* system, const char* usable) {
    const CongestionControl chosen = CongestionControl::automatic(system, usable);
    return chosen.near + "/" + chosen.far;
  };
  EXPECT_EQ(of("bbr", "cubic"), "cubic/bbr");
  EXPECT_EQ(of("bbr2", "reno"), "reno/bbr2");
  EXPECT_EQ(of("bbr", ""), "/");
  EXPECT_EQ(of("cubic", "cubic"), "/");
  EXPECT_EQ(of("dctcp", "cubic"), "/");
  EXPECT_EQ(of("", "reno"), "/");
}

TEST(Congestion, ANameIsTakenOnBothSidesWhateverTheDistance) {
  CongestionControl reno = CongestionControl::choose("reno").take();  // every kernel has it
  EXPECT_EQ(Pair(reno).names(), "reno reno");
  reno.far_from = 0;
  EXPECT_EQ(Pair(reno).names(), "reno reno");
}

TEST(Congestion, SystemLeavesTheSystems) {
  EXPECT_EQ(Pair(CongestionControl::choose("system").take()).names(), twice(system_default()));
}

TEST(Congestion, ALongRoundTripGoesOnWithTheFarOne) {
  const std::string far = system_default();
  CongestionControl both{"reno", far};
  EXPECT_EQ(Pair(both).names(), "reno reno");
  both.far_from = 0;
  EXPECT_EQ(Pair(both).names(), twice(far));
}

TEST(Congestion, AutoPacesNothingInsideOneMachine) {
  const std::string names = Pair(CongestionControl::choose("auto").take()).names();
  EXPECT_EQ(names.find("bbr"), std::string::npos) << names;
}

TEST(Congestion, WhatTheKernelDoesNotHaveIsRefused) {
  for (const char* name :
       {"", "no-such-thing", "a name that is longer than a kernel's names are"}) {
    const auto chosen = CongestionControl::choose(name);
    ASSERT_FALSE(chosen.ok()) << name;
    EXPECT_TRUE(chosen.status().message().starts_with("GB-F100")) << chosen.status().message();
    EXPECT_NE(chosen.status().message().find("tcp_allowed_congestion_control"), std::string::npos);
  }
  TransportOptions options;
  options.congestion_control = "no-such-thing";
  EXPECT_FALSE(TcpTransport::create(options).ok());
}

}  // namespace
}  // namespace gradbus
