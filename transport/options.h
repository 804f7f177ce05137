// The allowed values of transport options, for every backend that has connections. Any thread.
#pragma once

#include <cstdint>

#include "common/status.h"
#include "transport/transport.h"

namespace gradbus {

inline constexpr uint32_t kStreamsMax = 16;  // per link

// Returns GB-F100, which names the option and its range.
Status check_transport_options(const TransportOptions& options);

}  // namespace gradbus
