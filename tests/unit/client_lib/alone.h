// A session of a world of one, for tests of its parts.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "client_lib/src/session.h"

namespace gradbus::test {

inline std::unique_ptr<Session> session_alone() {
  SessionOptions options;
  options.socket_path = testing::TempDir() + "no-agent-here";
  options.identity = {"alone", 0, 1};
  auto session = Session::open(options);
  EXPECT_TRUE(session.ok()) << session.status().message();
  return session.take();
}

inline TensorSpec vector_of(const std::string& name, uint64_t count) {
  TensorSpec spec;
  spec.name = name;
  spec.count = count;
  return spec;
}

}  // namespace gradbus::test
