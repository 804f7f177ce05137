#include "cli/options/policy_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace gradbus {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class PolicyFiles : public testing::Test {
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

TEST_F(PolicyFiles, RulesInOrder) {
  const Result<PolicyFile> policy = read_policy_file(write(R"(
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
  const std::vector<TensorRule> expected = {{.name = "*.bias", .value = "none"},
                                            {.name = "fc?.*",
                                             .elements_min = 10,
                                             .elements_max = 1000,
                                             .dims_min = 2,
                                             .dims_max = 4,
                                             .value = "none:decay=0.5"}};
  EXPECT_EQ(policy.value().compressions.rules(), expected);
  EXPECT_TRUE(policy.value().modes.rules().empty());
}

TEST_F(PolicyFiles, TheScheduleOfAJob) {
  EXPECT_EQ(read_policy_file(write("schedule = \"dear\"\n")).value().schedule, "dear");
  EXPECT_EQ(read_policy_file(write("# nothing\n")).value().schedule, "");
  EXPECT_THAT(message("\nschedule = \"deer\"\n"),
              AllOf(HasSubstr(path_ + ":2"), HasSubstr("did you mean dear?")));
  EXPECT_THAT(message("schedule = 3\n"), HasSubstr(path_ + ":1"));
  EXPECT_EQ(policy_variables("", "", write("schedule = \"ddp\"\n")).value().schedule, "ddp");
  EXPECT_EQ(policy_variables("", "", write("# nothing\n"), "wfbp").value().schedule, "wfbp");
  EXPECT_EQ(policy_variables("", "", "", "wfbp").value().schedule, "wfbp");
  EXPECT_THAT(policy_variables("", "", write("schedule = \"ddp\"\n"), "wfbp").status().message(),
              HasSubstr("has a schedule, too"));
  EXPECT_THAT(policy_variables("", "", "", "ddq").status().message(),
              HasSubstr("did you mean ddp?"));
}

TEST_F(PolicyFiles, AnEmptyFileIsDense) {
  EXPECT_TRUE(read_policy_file(write("# nothing\n")).value().compressions.rules().empty());
}

TEST_F(PolicyFiles, MistakesNameFileAndLine) {
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

// One rule, one group of tensors: what it says nothing of stays as it would be without a policy.
TEST_F(PolicyFiles, ModesBesideCompressions) {
  const Result<PolicyFile> policy = read_policy_file(write(R"(
[[rule]]
max_dims = 1
mode = "sync"

[[rule]]
name = "fc*"
compression = "fp16"
mode = "delayed:k=2"
)"));
  ASSERT_TRUE(policy.ok()) << policy.status().message();
  EXPECT_EQ(policy.value().modes.find("fc.bias", 9, 1), "sync");
  EXPECT_EQ(policy.value().modes.find("fc.weight", 9, 2), "delayed:k=2");
  EXPECT_EQ(policy.value().modes.find("other", 9, 2), "");
  EXPECT_EQ(policy.value().compressions.find("fc.bias", 9, 1), "none");
  EXPECT_EQ(policy.value().compressions.find("fc.weight", 9, 2), "fp16");
  EXPECT_THAT(message("[[rule]]\nmode = \"delaid\"\n"),
              AllOf(StartsWith(path_ + ":1"), HasSubstr("did you mean \"delayed\"?")));
}

TEST_F(PolicyFiles, TheCommandLineTakesTheFileAlone) {
  const auto variables = [](const char* compression, const char* mode, const std::string& file) {
    return policy_variables(compression, mode, file);
  };
  EXPECT_EQ(variables("", "", "").value().compression, "");
  EXPECT_EQ(variables("none:decay=0.5", "", "").value().compression, "none:decay=0.5");
  EXPECT_EQ(variables("", "delayed", "").value().mode, "delayed");
  EXPECT_EQ(variables("auto:cosine=0.9,fp16", "", "").value().compression, "auto:cosine=0.9,fp16");
  EXPECT_THAT(variables("nne", "", "").status().message(), HasSubstr("did you mean"));
  EXPECT_THAT(variables("fp16,topq", "", "").status().message(), HasSubstr("did you mean"));
  EXPECT_THAT(variables("auto:cosine=7", "", "").status().message(), HasSubstr("from 0 to 1"));
  EXPECT_THAT(variables("", "synk", "").status().message(), HasSubstr("did you mean"));
  EXPECT_THAT(variables("none", "", "file").status().message(), HasSubstr("give one"));
  EXPECT_THAT(variables("", "sync", "file").status().message(), HasSubstr("--mode and --policy"));
  const std::string file = write("[[rule]]\nmax_dims = 1\ncompression = \"none\"\n");
  EXPECT_EQ(variables("", "", file).value().compression, "*|0|18446744073709551615|0|1|none");
  EXPECT_EQ(variables("", "", file).value().mode, "");
}

}  // namespace
}  // namespace gradbus
