// Measures how fast this node sums. The coordinator's cost model calls it gamma.
#pragma once

namespace gradbus {

// Nanoseconds to add one byte of f32 to another one, both in the cache. It is the best of a few
// tries, which take about a millisecond in total. Any thread.
double measured_reduce_ns();

}  // namespace gradbus
