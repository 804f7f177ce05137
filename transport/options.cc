#include "transport/options.h"

#include <string>

#include "common/errors.h"

namespace gradbus {
namespace {

constexpr uint32_t kQueuePairsLimit = 16;
constexpr uint32_t kPostsLimit = 1 << 16;
constexpr uint32_t kTimeoutLimitMs = 3'600'000;

}  // namespace

Status check_transport_options(const TransportOptions& options) {
  const auto within = [](uint32_t value, uint32_t max) { return value >= 1 && value <= max; };
  if (!within(options.streams, kStreamsMax)) {
    return error("F100", "streams is " + std::to_string(options.streams) + ", allowed: 1 to 16");
  }
  if (!within(options.queue_pairs, kQueuePairsLimit)) {
    return error("F100",
                 "queue_pairs is " + std::to_string(options.queue_pairs) + ", allowed: 1 to 16");
  }
  if (!within(options.posts_max, kPostsLimit)) {
    return error("F100",
                 "posts_max is " + std::to_string(options.posts_max) + ", allowed: 1 to 65536");
  }
  if (!within(options.peer_timeout_ms, kTimeoutLimitMs)) {
    return error("F100", "peer_timeout_ms is " + std::to_string(options.peer_timeout_ms) +
                             ", allowed: 1 to 3600000");
  }
  if (options.return_ms > kTimeoutLimitMs) {
    return error("F100",
                 "return_ms is " + std::to_string(options.return_ms) + ", allowed: 0 to 3600000");
  }
  return {};
}

}  // namespace gradbus
