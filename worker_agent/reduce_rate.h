// How fast this node sums: what the coordinator's cost model calls gamma.
#pragma once

namespace gradbus {

// Nanoseconds for a byte of f32 that is added to another one, both in the cache: the best of a few
// tries, about a millisecond in all. Any thread.
double measured_reduce_ns();

}  // namespace gradbus
