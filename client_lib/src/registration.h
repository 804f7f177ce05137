// A registration of a name: requested, complete or refused.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "client_lib/src/tensor.h"

namespace gradbus {

struct Registration {
  Registration(TensorSpec asked, std::optional<DeviceId> on) : spec(std::move(asked)), device(on) {}

  const TensorSpec spec;
  const std::optional<DeviceId> device;  // where to place this rank's elements; none: host memory
  // Written before `done` is stored, by the thread that reads the agent's answer; then constant.
  Tensor* tensor = nullptr;
  Status failure;
  bool settled() const { return done.load(std::memory_order_acquire); }
  std::atomic<bool> done{false};
  // Whether this registration has these arguments and was not refused.
  bool serves(const TensorSpec& asked, std::optional<DeviceId> on) const {
    return spec == asked && device == on && !(settled() && !failure.ok());
  }

  // Ad-hoc operations use the tensor one after the other, in the order in which they were started:
  // `taken` hands out numbers, `turn` is the number whose turn it is.
  std::atomic<uint64_t> taken{0};
  std::atomic<uint64_t> turn{0};
  // Under the session's lock: a caller has the tensor itself, and will unregister it.
  bool held = false;
  // Only ad-hoc operations use it, and none is in flight.
  bool idle() const { return settled() && !held && turn.load() == taken.load(); }
};

}  // namespace gradbus
