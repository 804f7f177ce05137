// Runs a test once for each SIMD target that this processor has.
#pragma once

#include <gtest/gtest.h>

#include "hwy/targets.h"

namespace gradbus {

template <class Body>
void on_each_target(const Body& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace gradbus
