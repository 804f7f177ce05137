#include "common/policy/codec_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradbus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> codecs(std::string_view text) {
  return parse_codec_choice(text).take().codecs;
}

std::string refusal(std::string_view text) {
  return std::string(parse_codec_choice(text).status().message());
}

TEST(CodecChoice, OneCodecWithOptionsIsNone) {
  for (const char* text :
       {"", "none", "fp16", "topk:ratio=0.01", "topk:ratio=0.01,ef=none", "autumn"})
    EXPECT_FALSE(is_codec_choice(text)) << text;
  for (const char* text : {"auto", "auto:cosine=0.9", "fp16,int8", "none,topk:ratio=0.1,ef=none"})
    EXPECT_TRUE(is_codec_choice(text)) << text;
}

TEST(CodecChoice, OptionsBelongToTheCodecBeforeThem) {
  EXPECT_THAT(codecs("fp16,topk:ratio=0.01,ef=none,int8"),
              ElementsAre("fp16", "topk:ratio=0.01,ef=none", "int8"));
  EXPECT_THAT(codecs("auto:cosine=0.25,topk:ratio=0.01,warmup=4,fp16"),
              ElementsAre("topk:ratio=0.01,warmup=4", "fp16"));
}

TEST(CodecChoice, DenseIsAlwaysMeantAndNothingTwice) {
  EXPECT_THAT(codecs("none,int8,int8"), ElementsAre("int8"));
  EXPECT_THAT(codecs("auto"), ElementsAre("fp16", "int8", "onebit"));
}

TEST(CodecChoice, AutoTakesTheLeastCosine) {
  EXPECT_DOUBLE_EQ(parse_codec_choice("auto").value().cosine_min, 0.5);
  EXPECT_DOUBLE_EQ(parse_codec_choice("auto:cosine=0.9,int8").value().cosine_min, 0.9);
  EXPECT_THAT(refusal("auto:cosine=2"), HasSubstr("expected a number from 0 to 1"));
  EXPECT_THAT(refusal("auto:cosin=0.5"), HasSubstr("did you mean \"cosine\"?"));
}

TEST(CodecChoice, CodecsWithStepsOfAnotherScaleAreRefused) {
  EXPECT_THAT(refusal("fp16,signsgd"), HasSubstr("O910"));
  EXPECT_THAT(refusal("fp16,signsgd"), HasSubstr("signsgd sends signs without a magnitude"));
  EXPECT_THAT(refusal("auto,signum:momentum=0.9"), HasSubstr("signs without a magnitude"));
  for (const char* text :
       {"auto,dgc:ratio=0.01", "fp16,topk:ratio=0.01,ef=dgc", "auto,dgc:ef=auto"})
    EXPECT_THAT(refusal(text), HasSubstr("adds momentum to the gradients")) << text;
  for (const char* text : {"auto,powersgd", "fp16,rows:dim=8"})
    EXPECT_THAT(refusal(text), HasSubstr("looks at matrices")) << text;
  for (const char* text : {"fp16,efsignsgd", "fp16,dgc:ratio=0.01,ef=residual", "fp16,onebit"})
    EXPECT_TRUE(parse_codec_choice(text).ok()) << text;
}

TEST(CodecChoice, NeitherNoCodecNorTooManyAreAChoice) {
  EXPECT_THAT(refusal("none,none"), HasSubstr("names 0 codecs; 1 to 8 are allowed"));
  std::string many = "auto";
  for (int i = 0; i < 9; ++i) many += ",int8:x=" + std::to_string(i);
  EXPECT_THAT(refusal(many), HasSubstr("names 9 codecs"));
}

}  // namespace
}  // namespace gradbus
