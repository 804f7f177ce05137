// Options of horovodrun: what they become, and what is said of the others.
#include "cli/options/horovod_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradbus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(HorovodOptions, BecomeVariablesAndWordsOfSsh) {
  RunOptions options;
  std::vector<std::string> sentences;
  const GivenHorovodOptions given = {{"--fusion-threshold-mb", "32"},
                                     {"--ssh-port", "2222"},
                                     {"--autotune-steps-per-sample", "5"}};
  ASSERT_TRUE(apply_horovod_options(given, &options, &sentences).ok());
  EXPECT_THAT(options.variables, UnorderedElementsAre("HOROVOD_FUSION_THRESHOLD=33554432",
                                                      "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE=5"));
  EXPECT_EQ(options.ssh, "ssh -o BatchMode=yes -p 2222");
  EXPECT_THAT(sentences, IsEmpty());
}

TEST(HorovodOptions, SayWhatDoesNothing) {
  RunOptions options;
  std::vector<std::string> sentences;
  ASSERT_TRUE(
      apply_horovod_options({{"--cycle-time-ms", "5"}, {"--gloo", ""}}, &options, &sentences).ok());
  EXPECT_THAT(sentences,
              ElementsAre(HasSubstr("--cycle-time-ms does nothing here"), HasSubstr("--gloo")));
  EXPECT_THAT(options.variables, IsEmpty());
}

TEST(HorovodOptions, EachRefusalNamesTheOptionAndWhatToDo) {
  for (const HorovodOption& option : horovod_options()) {
    if (option.use != HorovodUse::kRefused) continue;
    RunOptions options;
    std::vector<std::string> sentences;
    const Status status = apply_horovod_options({{option.name, "2"}}, &options, &sentences);
    EXPECT_THAT(status.message(), HasSubstr("GB-H200"));
    EXPECT_THAT(status.message(), HasSubstr(option.name));
    EXPECT_THAT(status.message(), HasSubstr(option.text));
  }
}

TEST(HorovodOptions, RefuseValuesThatAreNone) {
  for (const char* text : {"", "x", "-1", "1.5", "99999999999999999999"}) {
    RunOptions options;
    std::vector<std::string> sentences;
    const Status status =
        apply_horovod_options({{"--fusion-threshold-mb", text}}, &options, &sentences);
    EXPECT_THAT(status.message(), HasSubstr("--fusion-threshold-mb")) << text;
  }
  RunOptions options;
  std::vector<std::string> sentences;
  EXPECT_FALSE(apply_horovod_options({{"--ssh-port", "1 2"}}, &options, &sentences).ok());
}

}  // namespace
}  // namespace gradbus
