// Tests of the error table and of the message form that it defines.
#include "common/errors.h"
#include "common/text/error_text.h"

#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>

namespace gradbus {
namespace {

bool is_upper_snake(std::string_view name) {
  if (name.empty() || name.front() == '_' || name.back() == '_') return false;
  for (const char c : name) {
    if (!std::isupper(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return name.find("__") == std::string_view::npos;
}

bool is_id(std::string_view id) {
  return id.size() == 4 && std::isupper(static_cast<unsigned char>(id[0])) &&
         id.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

TEST(ErrorsTest, MessageIsOneLineOfTheFixedForm) {
  const Status status = error("P101", "rank 3 of job digits died");
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_EQ(status.message(),
            "GB-P101 PEER_LOST: rank 3 of job digits died | next: look at that rank's output; "
            "then restart the job");
}

TEST(ErrorsTest, NextCanBeOverridden) {
  EXPECT_EQ(error("F100", "flag --port", "use 0").message(),
            "GB-F100 BAD_OPTION: flag --port | next: use 0");
}

TEST(ErrorsTest, ThePartThatOtherErrorsHold) {
  EXPECT_EQ(what_of(error("P101", "rank 3: gone").message()), "rank 3: gone");
  EXPECT_EQ(what_of("10.0.0.1:7: " + error("P101", "rank 3").message()), "10.0.0.1:7: rank 3");
  EXPECT_EQ(what_of("connection: reset"), "connection: reset");
}

TEST(ErrorsTest, RowsAreFoundByEitherFormOfId) {
  ASSERT_NE(find_error("P101"), nullptr);
  EXPECT_EQ(find_error("GB-P101"), find_error("P101"));
  EXPECT_EQ(find_error("P10"), nullptr);
  EXPECT_EQ(find_error("p101"), nullptr);
  EXPECT_EQ(find_error(""), nullptr);
}

TEST(ErrorsTest, IdsAndNamesAreUnique) {
  std::set<std::string_view> ids, names;
  for (const ErrorInfo& row : all_errors()) {
    EXPECT_TRUE(ids.insert(row.id).second) << row.id;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
  }
  EXPECT_GT(ids.size(), 30u);
}

// gradbus_wait documents: "after TIMEOUT the operation is still in flight and can be waited for
// again". So no timeout may be an error that ends a job. J404 ends gradbus_init; M006 belongs to
// gradbus.elastic.
TEST(ErrorsTest, ATimeoutEndsNoJob) {
  for (const ErrorInfo& row : all_errors()) {
    if (row.code != Code::kTimeout) continue;
    EXPECT_TRUE(row.id == "P110" || row.id == "J404" || row.id == "M006") << row.id;
  }
}

TEST(ErrorsTest, EveryRowIsComplete) {
  for (const ErrorInfo& row : all_errors()) {
    EXPECT_TRUE(is_id(row.id)) << row.id;
    EXPECT_TRUE(is_upper_snake(row.name)) << row.name;
    EXPECT_NE(row.code, Code::kOk) << row.id;
    EXPECT_TRUE(row.meaning.ends_with('.')) << row.id << ": the meaning is a sentence";
    EXPECT_FALSE(row.next.empty()) << row.id;
    EXPECT_EQ(row.next.find('\n'), std::string_view::npos) << row.id;
  }
}

}  // namespace
}  // namespace gradbus
