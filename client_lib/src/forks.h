// What a forked child inherits of its parent's sessions, and how it is kept from using it.
//
// In a child the shared memory of the parent's sessions becomes private to the child, page by page
// as it writes: a child that changes `.grad` changes its own copy. Calls with an inherited session
// fail, because its socket and its rings belong to the parent. Any thread may call anything here.
#pragma once

#include <cstdint>
#include <memory>

#include "common/segment.h"
#include "common/status.h"

namespace gradbus {

// From now on a forked child gets private pages of this segment at the same address.
void make_private_in_children(const std::shared_ptr<Segment>& segment);

// One greater in a child than in its parent.
uint64_t fork_depth();

// Ok in the process that opened a session at `depth`; GB-O907 in its children.
Status check_not_forked(uint64_t depth);

}  // namespace gradbus
