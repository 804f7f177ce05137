#include "transport/net/address.h"

#include <gtest/gtest.h>

namespace gradbus {
namespace {

std::string parsed(const Result<SocketAddress>& address) {
  return address.ok() ? format_address(address.value()) : address.status().message().substr(0, 7);
}

TEST(Address, BindAddressesInEveryForm) {
  EXPECT_EQ(parsed(resolve_bind_address("127.0.0.1")), "127.0.0.1:0");
  EXPECT_EQ(parsed(resolve_bind_address("127.0.0.1:4000")), "127.0.0.1:4000");
  EXPECT_EQ(parsed(resolve_bind_address("0.0.0.0:65535")), "0.0.0.0:65535");
  EXPECT_EQ(parsed(resolve_bind_address("::1")), "[::1]:0");
  EXPECT_EQ(parsed(resolve_bind_address("[::1]")), "[::1]:0");
  EXPECT_EQ(parsed(resolve_bind_address("[::]:80")), "[::]:80");
}

TEST(Address, WhatIsNoAddressIsF100) {
  for (const char* text :
       {"", ":", ":80", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "[::1",
        "[::1]x", "[::1]:", "[]:80", "1:2:3", "256.0.0.1", "127.0.0.1:80:80", "no such host"}) {
    EXPECT_EQ(parsed(resolve_bind_address(text)), "GB-F100") << text;
  }
}

TEST(Address, PeersAreNumericAndHaveAPort) {
  EXPECT_EQ(parsed(parse_peer_address("10.1.2.3:9")), "10.1.2.3:9");
  EXPECT_EQ(parsed(parse_peer_address("[fd00::2]:9")), "[fd00::2]:9");
  for (const char* text : {"10.1.2.3", "10.1.2.3:0", "localhost:80", "::1"}) {
    EXPECT_EQ(parsed(parse_peer_address(text)), "GB-F100") << text;
  }
}

TEST(Address, OnlyAWildcardIsReplaced) {
  const auto reachable = [](const char* text) {
    return format_address(reachable_address(resolve_bind_address(text).take()));
  };
  EXPECT_EQ(reachable("127.0.0.1:80"), "127.0.0.1:80");
  EXPECT_FALSE(reachable("0.0.0.0:80").starts_with("0.0.0.0"));
  EXPECT_TRUE(reachable("0.0.0.0:80").ends_with(":80"));
  EXPECT_FALSE(reachable("[::]:80").starts_with("[::]"));
}

}  // namespace
}  // namespace gradbus
