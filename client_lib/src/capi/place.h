// A rank's place in its job, as the C interface tells it.
#pragma once

#include <cstdint>

#include "proto/attach.h"

namespace gradbus::capi {

struct Place {
  explicit Place(const JoinedPacket& joined)
      : rank(static_cast<int32_t>(joined.rank)),
        size(static_cast<int32_t>(joined.world_size)),
        local_rank(static_cast<int32_t>(joined.local_rank)),
        local_size(static_cast<int32_t>(joined.local_size)),
        cross_rank(static_cast<int32_t>(joined.agent_index)),
        cross_size(static_cast<int32_t>(joined.agents)) {}

  int32_t rank;
  int32_t size;
  int32_t local_rank;
  int32_t local_size;
  int32_t cross_rank;
  int32_t cross_size;
};

}  // namespace gradbus::capi
