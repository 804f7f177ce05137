// Schedules by name in C. Expected priorities are those of docs/concepts/schedules.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "gradbus/schedules.h"

namespace {

using testing::HasSubstr;

struct Applied {
  gradbus_code code;
  uint32_t priority;
  uint32_t result_priority;
  uint64_t budget_bytes;
  int waits_in_forward;
};

Applied applied(const char* schedule, uint32_t number, uint32_t count) {
  gradbus_tensor_spec spec;
  gradbus_tensor_spec_init(&spec);
  spec.priority = spec.result_priority = 77;
  int waits = -1;
  const gradbus_code code = gradbus_apply_schedule(schedule, number, count, &spec, &waits);
  return {code, spec.priority, spec.result_priority, spec.budget_bytes, waits};
}

void expect(const Applied& found, uint32_t priority, uint32_t result_priority, int waits) {
  EXPECT_EQ(found.code, GRADBUS_OK) << gradbus_last_error();
  EXPECT_EQ(found.priority, priority);
  EXPECT_EQ(found.result_priority, result_priority);
  EXPECT_EQ(found.waits_in_forward, waits);
}

// Tensor 0 of 3 is that of the last layer.
TEST(CapiSchedules, EachHasItsOrder) {
  for (const char* schedule : {"wfbp", "ddp", "fusion"}) expect(applied(schedule, 0, 3), 0, 0, 0);
  for (const char* schedule : {"bytescheduler", "auto"}) {
    expect(applied(schedule, 0, 3), 2, 2, 1);
    expect(applied(schedule, 2, 3), 0, 0, 1);
  }
  expect(applied("dear", 0, 3), 0, 3, 1);
  expect(applied("dear", 2, 3), 0, 1, 1);
}

TEST(CapiSchedules, ABudgetIsInBytes) {
  EXPECT_EQ(applied("dear:budget=700", 0, 1).budget_bytes, 700U);
  EXPECT_EQ(applied("ddp:budget=16M", 0, 1).budget_bytes, 16U << 20);
  EXPECT_EQ(applied("ddp:budget=1024G", 0, 1).budget_bytes, uint64_t{1} << 40);
  EXPECT_EQ(applied("ddp", 0, 1).budget_bytes, 0U);
}

TEST(CapiSchedules, NullIsThatOfTheLauncher) {
  unsetenv("GRADBUS_SCHEDULE");
  expect(applied(nullptr, 0, 3), 2, 2, 1);
  setenv("GRADBUS_SCHEDULE", "dear:budget=4K", 1);
  expect(applied(nullptr, 0, 3), 0, 3, 1);
  EXPECT_EQ(applied(nullptr, 0, 3).budget_bytes, 4096U);
  expect(applied("ddp", 0, 3), 0, 0, 0);
  unsetenv("GRADBUS_SCHEDULE");
}

TEST(CapiSchedules, WhatIsWrongIsNamedAndChangesNothing) {
  const struct {
    const char* schedule;
    uint32_t number, count;
    const char* part;
  } kRows[] = {
      {"deer", 0, 1, "schedule \"deer\" is unknown | next: take one of wfbp, ddp"},
      {"mergecomp", 0, 1, "lets a coordinator plan the tensors"},
      {"mg-wfbp:budget=1M", 0, 1, "lets a coordinator plan the tensors"},
      {"dear:budget=0", 0, 1, "budget=BYTES is the only one"},
      {"dear:budget=1025G", 0, 1, "budget=BYTES is the only one"},
      {"dear:budget=-1", 0, 1, "budget=BYTES is the only one"},
      {"dear:groups=2", 0, 1, "budget=BYTES is the only one"},
      {"dear:", 0, 1, "budget=BYTES is the only one"},
      {"dear", 3, 3, "tensor 3 of 3 has no place"},
      {"dear", 0, (1U << 20) + 1, "has no place"},
  };
  for (const auto& row : kRows) {
    const Applied found = applied(row.schedule, row.number, row.count);
    EXPECT_EQ(found.code, GRADBUS_INVALID) << row.schedule;
    EXPECT_THAT(gradbus_last_error(), HasSubstr(row.part));
    EXPECT_EQ(found.priority, 77U);
    EXPECT_EQ(found.waits_in_forward, -1);
  }
  EXPECT_EQ(gradbus_apply_schedule("dear", 0, 1, nullptr, nullptr), GRADBUS_INVALID);
}

// A program that was compiled before priorities: what follows its struct is not ours.
TEST(CapiSchedules, AnOlderStructIsRefused) {
  gradbus_tensor_spec spec;
  std::memset(&spec, 0x5a, sizeof(spec));
  gradbus_init_struct(&spec, offsetof(gradbus_tensor_spec, priority));
  EXPECT_NE(gradbus_apply_schedule("dear", 0, 1, &spec, nullptr), GRADBUS_OK);
  EXPECT_THAT(gradbus_last_error(), HasSubstr("has no priorities"));
  EXPECT_EQ(spec.priority, 0x5a5a5a5aU);
}

}  // namespace
