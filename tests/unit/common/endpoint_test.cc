// Tests of the coordinator's address: user input, and the form for gRPC.
#include "common/endpoint.h"

#include <gtest/gtest.h>

namespace gradbus {
namespace {

TEST(Endpoint, AHostAloneGetsTheDefaultPort) {
  const std::pair<const char*, const char*> cases[] = {
      {"localhost", "localhost:7400"}, {"10.0.0.1", "10.0.0.1:7400"},
      {"node-1:80", "node-1:80"},      {"[::1]", "[::1]:7400"},
      {"[::1]:99", "[::1]:99"},        {"fe80::1", "[fe80::1]:7400"},
      {"unix:/run/c", "unix:/run/c"},  {"unix-abstract:c", "unix-abstract:c"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_EQ(coordinator_endpoint(text, "--coordinator").value(), expected);
}

TEST(Endpoint, WhatIsNoAddressIsRefusedAndNamed) {
  for (const char* text : {"", "a b", "host:", "host:0", "host:65536", "host:7400x", ":7400",
                           "http://host:7400", "[::1", "[::1]7400", "host:-1"}) {
    const auto found = coordinator_endpoint(text, "--coordinator");
    ASSERT_FALSE(found.ok()) << text;
    EXPECT_TRUE(found.status().message().starts_with("GB-F100")) << text;
    EXPECT_NE(found.status().message().find("--coordinator"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace gradbus
