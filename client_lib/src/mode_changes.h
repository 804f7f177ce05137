// Mode changes that administrators ask for (`gradbus mode`) and ranks agree on.
//
// All ranks receive the changes in the same order, but not at the same time. A rank that switched
// a step before the others would have no partner for its exchange. So ranks apply changes only at a
// fence, where all are at the same point: as many as every rank has received.
#pragma once

#include <optional>

#include "client_lib/src/session.h"

namespace gradbus {

// The next change that every rank has received; none when there is none. Collective: all ranks call
// it at the same point of their work.
Result<std::optional<ModeChange>> next_mode_change(Session& session);

}  // namespace gradbus
