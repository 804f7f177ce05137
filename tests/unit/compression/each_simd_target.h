// Runs a check once for each SIMD target that this processor has.
#pragma once

#include <gtest/gtest.h>

#include "hwy/highway.h"
#include "hwy/targets.h"

namespace gradbus {

inline void choose_target(int64_t target) {  // 0: the best one again
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

template <typename Check>
void for_each_simd_target(Check check) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  ASSERT_FALSE(targets.empty());
  for (const int64_t target : targets) {
    SCOPED_TRACE(hwy::TargetName(target));
    choose_target(target);
    check();
  }
  choose_target(0);
}

}  // namespace gradbus
