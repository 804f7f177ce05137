// What a forked child inherits of its parent's sessions, and how it is kept from using it.
//
// In a child the shared memory of the parent's sessions becomes private to the child, page by page
// as it writes: a child that changes `.grad` changes its own copy. Calls with an inherited session
// fail, because its socket and its rings belong to the parent. Any thread may call anything here.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/segment.h"
#include "common/status.h"

namespace gradbus {

// From now on a forked child gets private pages of this segment at the same address.
void make_private_in_children(const std::shared_ptr<Segment>& segment);

// One greater in a child than in its parent. In the header, because every call of the C interface
// reads it.
inline std::atomic<uint64_t> forks_above_this_process{0};
inline uint64_t fork_depth() { return forks_above_this_process.load(std::memory_order_relaxed); }

// GB-O907: a child was given a call with a session of its parent.
Status forked_error();

}  // namespace gradbus
