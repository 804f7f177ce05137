// The definition of reduce(): one element at a time, without SIMD. It is also the fallback for
// processors that no SIMD target supports. Pure, any thread.
#include <cstring>

#include "common/check.h"
#include "common/kernels/reduce.h"
#include "common/kernels/reduce_elements.h"

namespace gradbus {
namespace {

using Sources = std::span<const std::byte* const>;
using Targets = std::span<std::byte* const>;

template <typename Element>
typename Element::Stored reduce_one(const Reduction& reduction, Sources sources, size_t offset) {
  const typename Element::Factors factors = Element::factors(reduction);
  typename Element::Wide result{};
  for (size_t s = 0; s < sources.size(); ++s) {
    typename Element::Stored stored;
    std::memcpy(&stored, sources[s] + offset, sizeof(stored));
    const auto value = Element::enter(factors, Element::widen(stored));
    // The first source starts the result, so that -0 stays -0.
    result = s == 0 ? value : Element::combine(reduction.op, result, value);
  }
  return Element::narrow(Element::finish(factors, reduction.op, result));
}

template <typename Element>
void reduce_all(const Reduction& reduction, Sources sources, Targets targets, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const size_t offset = i * sizeof(typename Element::Stored);
    const auto result = reduce_one<Element>(reduction, sources, offset);
    for (std::byte* target : targets) std::memcpy(target + offset, &result, sizeof(result));
  }
}

}  // namespace

void reduce_scalar(DType dtype, const Reduction& reduction, Sources sources, Targets targets,
                   size_t count) {
  GRADBUS_CHECK(!sources.empty() && !targets.empty() && reduction.divisor > 0);
  GRADBUS_CHECK(is_dtype(static_cast<uint32_t>(dtype)));
  with_element(dtype, [&]<typename Element>(Element) {
    reduce_all<Element>(reduction, sources, targets, count);
  });
}

}  // namespace gradbus
