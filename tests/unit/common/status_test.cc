#include "common/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "common/dtype.h"

namespace gradbus {
namespace {

Status pass_on(Status inner) {
  GRADBUS_RETURN_IF_ERROR(std::move(inner));
  return Status(Code::kBusy, "reached the end");
}

TEST(StatusTest, DefaultIsOk) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().code(), Code::kOk);
  EXPECT_EQ(Status().message(), "");
}

TEST(StatusTest, ContextIsAddedOncePerLevelInFront) {
  const Status status =
      Status(Code::kTimeout, "no answer").with_context("link 2").with_context("a");
  EXPECT_EQ(status.message(), "a: link 2: no answer");
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(Status().with_context("nothing wrong").message(), "");
}

TEST(StatusTest, ReturnIfErrorReturnsOnlyErrors) {
  EXPECT_EQ(pass_on(Status()).code(), Code::kBusy);
  EXPECT_EQ(pass_on(Status(Code::kClosed, "gone")).message(), "gone");
}

TEST(StatusTest, ResultHoldsAValueOrAStatus) {
  Result<std::unique_ptr<int>> value = std::make_unique<int>(7);
  ASSERT_TRUE(value.ok());
  EXPECT_TRUE(value.status().ok());
  EXPECT_EQ(*value.take(), 7);
  const Result<int> failed = Status(Code::kExhausted, "full");
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), Code::kExhausted);
}

// The numbers cross processes: 0 to 12, each with its own name, and none above.
TEST(StatusTest, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (int number = 0; number <= 12; ++number) {
    const std::string_view name = code_name(static_cast<Code>(number));
    EXPECT_NE(name, "?") << number;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(code_name(static_cast<Code>(13)), "?");
  EXPECT_EQ(static_cast<int>(Code::kPeerLost), 8);
  EXPECT_EQ(static_cast<int>(Code::kInternal), 12);
}

TEST(DTypeTest, WidthsAndNames) {
  struct Row {
    uint32_t number;
    size_t bytes;
    std::string_view name;
  };
  constexpr Row kRows[] = {{1, 4, "f32"},  {2, 8, "f64"},  {3, 2, "f16"},  {4, 2, "bf16"},
                           {5, 4, "i32"},  {6, 8, "i64"},  {7, 1, "u8"},   {8, 1, "i8"},
                           {9, 1, "bool"}, {10, 2, "i16"}, {11, 2, "u16"}, {12, 4, "u32"},
                           {13, 8, "u64"}};
  for (const Row& row : kRows) {
    EXPECT_TRUE(is_dtype(row.number));
    EXPECT_EQ(dtype_bytes(static_cast<DType>(row.number)), row.bytes);
    EXPECT_EQ(dtype_name(static_cast<DType>(row.number)), row.name);
  }
  for (const uint32_t number : {0u, 14u, 255u, 256u, 257u}) EXPECT_FALSE(is_dtype(number));
  EXPECT_EQ(dtype_bytes(static_cast<DType>(0)), 0u);
  EXPECT_EQ(dtype_name(static_cast<DType>(14)), "?");
}

}  // namespace
}  // namespace gradbus
