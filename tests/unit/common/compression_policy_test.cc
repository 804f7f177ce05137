#include "common/compression_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradbus {
namespace {

using testing::HasSubstr;

TEST(CompressionPolicy, GlobsMatchWholeNames) {
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("*", "fc1.weight"));
  EXPECT_TRUE(glob_matches("fc?.*", "fc1.weight"));
  EXPECT_TRUE(glob_matches("*.weight", "a.weight.b.weight"));
  EXPECT_TRUE(glob_matches("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(glob_matches("*.weight", "fc1.weights"));
  EXPECT_FALSE(glob_matches("fc?", "fc"));
  EXPECT_FALSE(glob_matches("", "a"));
}

TEST(CompressionPolicy, OneCompressionLeavesVectorsAndSmallTensorsDense) {
  const CompressionPolicy policy = CompressionPolicy::parse("topk:ratio=0.01").take();
  EXPECT_EQ(policy.find("w", 1 << 20, 2), "topk:ratio=0.01");
  EXPECT_EQ(policy.find("w", 1 << 20, 0), "topk:ratio=0.01");  // dimensions not known
  EXPECT_EQ(policy.find("bias", 1 << 20, 1), "");
  EXPECT_EQ(policy.find("w", 16383, 2), "");
  EXPECT_EQ(policy.find("w", 16384, 2), "topk:ratio=0.01");
}

TEST(CompressionPolicy, TheFirstMatchWins) {
  const CompressionPolicy policy({{.name = "*.bias", .compression = "none"},
                                  {.name = "layer1.*", .elements_max = 100, .compression = "fp16"},
                                  {.dims_min = 2, .dims_max = 2, .compression = "onebit"}});
  EXPECT_EQ(policy.find("layer1.bias", 50, 2), "");
  EXPECT_EQ(policy.find("layer1.w", 50, 2), "fp16");
  EXPECT_EQ(policy.find("layer1.w", 101, 2), "onebit");
  EXPECT_EQ(policy.find("conv", 101, 4), "");
}

TEST(CompressionPolicy, TextAndBack) {
  const std::vector<CompressionRule> rules = {
      {.name = "a*", .elements_min = 3, .compression = "topk:ratio=0.1,ef=none"},
      {.elements_max = 7, .dims_min = 1, .dims_max = 4, .compression = "none"}};
  const Result<CompressionPolicy> again = CompressionPolicy::parse(CompressionPolicy(rules).text());
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again.value().rules(), rules);
}

TEST(CompressionPolicy, NothingIsDense) {
  EXPECT_EQ(CompressionPolicy::parse("").take().find("w", 1 << 20, 2), "");
  EXPECT_EQ(CompressionPolicy::parse("none").take().find("w", 1 << 20, 2), "");
}

TEST(CompressionPolicy, RefusesMalformedRules) {
  for (const char* text : {"a|b", "a|1|2|3|4|", "|1|2|3|4|none", "a|1|2|x|4|none", "a|1|2|3|none"})
    EXPECT_THAT(CompressionPolicy::parse(text).status().message(), HasSubstr("GB-O910")) << text;
}

}  // namespace
}  // namespace gradbus
