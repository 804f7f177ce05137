// Mode changes that administrators ask for (`gradbus mode`) and ranks agree on.
//
// Agents pass them on to their ranks in one order, but not at one moment, and a rank that switched
// a step before the others would exchange with nobody. So ranks take them up only where all are at
// the same point, a fence, and there as many as the one that has heard of fewest.
#pragma once

#include <optional>

#include "client_lib/src/session.h"

namespace gradbus {

// The next change that every rank has heard of; none when there is none. Collective: all ranks call
// it at the same point of their work.
Result<std::optional<ModeChange>> next_mode_change(Session& session);

}  // namespace gradbus
