// Workloads: published sizes of known models, and profiles that are right or wrong.
#include "server/scheduling/workload.h"

#include <gmock/gmock.h>

#include "server/scheduling/known_models.h"

namespace gradbus::scheduling {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Published {
  const char* name;
  size_t layers;         // modules with parameters
  uint64_t elements;     // torchvision's and Hugging Face's model cards
  const char* heaviest;  // the layer with the most parameters
};

constexpr Published kPublished[] = {
    {"resnet50", 107, 25'557'032, "layer4.0.conv2"},
    {"resnet101", 209, 44'549'160, "layer4.0.conv2"},
    {"vgg16", 16, 138'357'544, "classifier.0"},
    {"densenet201", 402, 20'013'928, "classifier"},
    {"bert-base", 101, 109'482'240, "embeddings.word_embeddings"},
    {"bert-large", 197, 335'141'888, "embeddings.word_embeddings"},
    {"mlp", 3, 12'587'008 + 10'488'320 + 2'561'000, "layer0"},
};

TEST(KnownModels, HaveThePublishedNumbersOfParameters) {
  ASSERT_EQ(known_models().size(), std::size(kPublished));
  for (const Published& published : kPublished) {
    const Workload workload = known_workload(published.name).value();
    EXPECT_EQ(workload.layers.size(), published.layers) << published.name;
    EXPECT_EQ(workload.bytes(), 4 * published.elements) << published.name;
    const auto heaviest =
        std::max_element(workload.layers.begin(), workload.layers.end(),
                         [](const Layer& a, const Layer& b) { return a.elements < b.elements; });
    EXPECT_EQ(heaviest->name, published.heaviest);
  }
}

TEST(KnownModels, ComputeForTheirTotalAThirdOfItForward) {
  for (const KnownModel& model : known_models()) {
    const Workload workload = known_workload(std::string(model.name)).value();
    EXPECT_NEAR(workload.compute_us(), model.compute_ms * 1000, 1e-3) << model.name;
    EXPECT_NEAR(workload.forward_us() * 3, workload.compute_us(), 1e-3) << model.name;
  }
}

// Expect: conv1 of ResNet-50 makes 2 * 7*7*3*64 * 112*112 = 236 of 8,223 MFLOP.
TEST(KnownModels, SharesOfTimeAreSharesOfWork) {
  const Workload workload = known_workload("resnet50").value();
  EXPECT_EQ(workload.layers[0].name, "conv1");
  EXPECT_NEAR(workload.layers[0].forward_us / workload.forward_us(), 236.0 / 8223, 1e-4);
}

TEST(KnownModels, AnUnknownOneNamesTheOthers) {
  const Status status = known_workload("resnet5").status();
  EXPECT_THAT(status.message(), HasSubstr("did you mean \"resnet50\"?"));
  EXPECT_THAT(status.message(), HasSubstr("| next: take one of: resnet50, resnet101, vgg16"));
}

TEST(KnownModels, ABrokenTableIsOurBug) {
  EXPECT_THAT(parse_model_table("m", "layer,elements\n", 1).status().message(), HasSubstr("X001"));
  EXPECT_THAT(parse_model_table("m", "layer,elements,mflop\na,1x,2\n", 1).status().message(),
              HasSubstr("holds \"a,1x,2\""));
}

constexpr char kProfile[] = R"({"name": "mine", "layers": [
  {"name": "a", "elements": 10, "dtype": "bf16", "forward_us": 1.5, "backward_us": 3},
  {"name": "b", "elements": 7, "forward_us": 2, "backward_us": 4}]})";

TEST(Profile, IsRead) {
  const Workload workload = parse_workload(kProfile, "p.json").value();
  EXPECT_EQ(workload.name, "mine");
  EXPECT_EQ(workload.bytes(), 10 * 2 + 7 * 4);
  EXPECT_EQ(workload.compute_us(), 10.5);
  EXPECT_THAT(workload.backward_order, ElementsAre(1, 0));
  EXPECT_THAT(ready_us(workload), ElementsAre(7, 4));
}

TEST(Profile, MayNameTheOrderOfTheBackwardPass) {
  std::string text = kProfile;
  text.replace(text.rfind('}'), 1, R"(, "backward_order": [0, 1]})");
  EXPECT_THAT(ready_us(parse_workload(text, "p").value()), ElementsAre(3, 7));
}

TEST(Profile, EveryTruncationIsAnError) {
  const std::string text = kProfile;
  for (size_t length = 0; length < text.size(); ++length) {
    const Result<Workload> cut = parse_workload(text.substr(0, length), "cut.json");
    ASSERT_FALSE(cut.ok()) << length;
    ASSERT_THAT(cut.status().message(), HasSubstr("GB-F102 BAD_FILE: cut.json: "));
  }
}

struct Wrong {
  const char* text;
  const char* what;
};

constexpr Wrong kWrong[] = {
    {"[]", "no JSON object"},
    {"{}", "no list \"layers\""},
    {R"({"layers": []})", "no list \"layers\""},
    {R"({"layers": [1]})", "layer 0 is no object"},
    {R"({"layers": [{"elements": -1}]})", "no whole number \"elements\""},
    {R"({"layers": [{"elements": 1, "dtype": "f31"}]})", "unknown \"dtype\""},
    {R"({"layers": [{"elements": 1, "dtype": 4}]})", "unknown \"dtype\""},
    {R"({"layers": [{"elements": 18446744073709551615}]})", "larger than 4 TiB"},
    {R"({"layers": [{"elements": 1, "forward_us": -1}]})", "no time \"forward_us\""},
    {R"({"layers": [{"elements": 1, "forward_us": 1, "backward_us": 1e300}]})",
     "no time \"backward_us\""},
    {R"({"layers": [{"elements": 1, "forward_us": 0, "backward_us": 0}]})", "compute nothing"},
    {R"({"layers": [{"elements": 1, "forward_us": 1, "backward_us": 1}], "backward_order": [1]})",
     "each layer's index once"},
    {R"({"layers": [{"elements": 1, "forward_us": 1, "backward_us": 1}], "backward_order": [0, 0]})",
     "each layer's index once"},
};

TEST(Profile, WhatIsWrongIsNamed) {
  for (const Wrong& wrong : kWrong) {
    const Result<Workload> read = parse_workload(wrong.text, "p");
    ASSERT_FALSE(read.ok()) << wrong.text;
    EXPECT_THAT(read.status().message(), HasSubstr(wrong.what));
    EXPECT_THAT(read.status().message(), HasSubstr("| next: "));
  }
}

}  // namespace
}  // namespace gradbus::scheduling
