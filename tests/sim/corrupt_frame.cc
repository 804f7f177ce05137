#include "tests/sim/corrupt_frame.h"

#include <limits>

#include "tests/sim/oracle.h"

namespace gradbus::sim {
namespace {

// Another value of the same type: near, far, 0 or the largest.
template <typename T>
T another(Random& random, T good) {
  constexpr T kMax = std::numeric_limits<T>::max();
  for (;;) {
    const uint64_t far = random();
    const T values[] = {static_cast<T>(good + 1), static_cast<T>(good - 1), T{0}, kMax,
                        static_cast<T>(far)};
    const T value = values[pick(random, 0, 4)];
    if (value != good) return value;
  }
}

bool has_lengths(const CollectivePlan& plan) {
  return plan.kind == CollectiveKind::kAllGather || plan.kind == CollectiveKind::kGather;
}

// A block of the receiver's own, or none. (Another one from elsewhere could be true.)
uint32_t wrong_source(Random& random, const CollectivePlan& plan, uint32_t good) {
  if (reduces(plan.kind)) return another(random, good);
  const auto blocks = static_cast<uint32_t>(block_count(plan.kind, plan.world()));
  const auto index = static_cast<uint32_t>(pick(random, 0, blocks + 1));
  const bool own =
      index < blocks && plan.agent_of_rank[source_rank(plan, index)] == plan.agent_index;
  return own ? index : blocks + index;
}

// Recursive doubling takes frames of the next round, and of the current one after them.
uint64_t wrong_step(Random& random, const CollectivePlan& plan, uint64_t good) {
  if (plan.algorithm != Algorithm::kRecursiveDoubling) return another(random, good);
  return pick(random, 0, 1) == 0 ? 0 : good + 2 + pick(random, 0, 1u << 31);
}

// More than a block may have. (A smaller block could be true, if it is its first frame.)
uint64_t wrong_total(Random& random, const CollectivePlan& plan, uint64_t good) {
  if (!has_lengths(plan)) return another(random, good);
  const uint64_t capacity = plan.count * dtype_bytes(plan.dtype);
  return pick(random, 0, 1) == 0 ? capacity + 1 : std::numeric_limits<uint64_t>::max() - good % 8;
}

}  // namespace

FrameHeader corrupt_frame(Random& random, const CollectivePlan& plan, const FrameHeader& good) {
  FrameHeader bad = good;
  switch (pick(random, 0, 9)) {
    case 0: bad.kind = another(random, good.kind); break;
    case 1: bad.codec = another(random, good.codec); break;
    case 2: bad.dtype = another(random, good.dtype); break;
    case 3: bad.op = another(random, good.op); break;
    case 4: bad.collective = another(random, good.collective); break;
    case 5: bad.source = wrong_source(random, plan, good.source); break;
    case 6: bad.step = wrong_step(random, plan, good.step); break;
    case 7: bad.chunk = plan.chunks() + static_cast<uint32_t>(pick(random, 0, 1u << 31)); break;
    case 8: bad.length = another(random, good.length); break;
    default: bad.total = wrong_total(random, plan, good.total); break;
  }
  return bad;
}

}  // namespace gradbus::sim
