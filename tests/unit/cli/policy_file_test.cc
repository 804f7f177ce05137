#include "cli/policy_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace gradbus {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class PolicyFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  std::string message(const std::string& text) {
    return read_policy_file(write(text)).status().message();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  const std::string path_ =
      testing::TempDir() + "gradbus_policy_" + std::to_string(getpid()) + ".toml";
};

TEST_F(PolicyFile, RulesInOrder) {
  const Result<CompressionPolicy> policy = read_policy_file(write(R"(
[[rule]]
name = "*.bias"
compression = "none"

[[rule]]
name = "fc?.*"
min_elements = 10
max_elements = 1000
min_dims = 2
max_dims = 4
compression = "none:decay=0.5"
)"));
  ASSERT_TRUE(policy.ok()) << policy.status().message();
  const std::vector<CompressionRule> expected = {{.name = "*.bias", .compression = "none"},
                                                 {.name = "fc?.*",
                                                  .elements_min = 10,
                                                  .elements_max = 1000,
                                                  .dims_min = 2,
                                                  .dims_max = 4,
                                                  .compression = "none:decay=0.5"}};
  EXPECT_EQ(policy.value().rules(), expected);
}

TEST_F(PolicyFile, AnEmptyFileIsDense) {
  EXPECT_TRUE(read_policy_file(write("# nothing\n")).value().rules().empty());
}

TEST_F(PolicyFile, MistakesNameFileAndLine) {
  EXPECT_THAT(message("[[rule]]\ncompresion = \"none\"\n"),
              AllOf(HasSubstr(path_ + ":2"), HasSubstr("did you mean compression?")));
  EXPECT_THAT(message("[[rules]]\ncompression = \"none\"\n"), HasSubstr("did you mean [[rule]]?"));
  EXPECT_THAT(message("[[rule]]\nname = \"a\"\n"), HasSubstr("has no compression"));
  EXPECT_THAT(message("[[rule]]\ncompression = \"nne\"\n"),
              AllOf(StartsWith(path_ + ":1"), HasSubstr("did you mean \"none\"?")));
  EXPECT_THAT(message("[[rule]]\nmin_dims = -1\ncompression = \"none\"\n"),
              AllOf(HasSubstr(path_ + ":2"), HasSubstr("whole number of 0 or more")));
  EXPECT_THAT(message("[[rule]]\nname = \"a|b\"\ncompression = \"none\"\n"),
              HasSubstr(path_ + ":2"));
  EXPECT_THAT(message("[[rule]\n"), AllOf(HasSubstr("GB-F102"), HasSubstr(path_)));
  EXPECT_THAT(read_policy_file("/nowhere/policy.toml").status().message(), HasSubstr("GB-F102"));
}

TEST_F(PolicyFile, TheCommandLineTakesOneOfTheTwo) {
  EXPECT_EQ(compression_variable("", "").value(), "");
  EXPECT_EQ(compression_variable("none:decay=0.5", "").value(), "none:decay=0.5");
  EXPECT_THAT(compression_variable("nne", "").status().message(), HasSubstr("did you mean"));
  EXPECT_THAT(compression_variable("none", "file").status().message(), HasSubstr("give one"));
  const std::string file = write("[[rule]]\nmax_dims = 1\ncompression = \"none\"\n");
  EXPECT_EQ(compression_variable("", file).value(), "*|0|18446744073709551615|0|1|none");
}

}  // namespace
}  // namespace gradbus
