// The models' tables, against the published numbers of parameters.
#include "cli/bench/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace gradbus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Published {
  const char* name;
  size_t tensors;
  uint64_t elements;
  const char* largest;
  uint64_t largest_count;
};

// torchvision's and Hugging Face's model cards; the largest by hand.
constexpr Published kPublished[] = {
    {"resnet50", 161, 25'557'032, "layer4.0.conv2.weight", 9 * 512 * 512},
    {"vgg16", 32, 138'357'544, "classifier.0.weight", 25'088 * 4096},
    {"bert-base", 199, 109'482'240, "embeddings.word_embeddings.weight", 30'522 * 768},
    {"bert-large", 391, 335'141'888, "embeddings.word_embeddings.weight", 30'522 * 1024},
    {"gpt2", 148, 124'439'808, "wte.weight", 50'257 * 768},
};

TEST(BenchModels, HaveThePublishedNumbersOfParameters) {
  for (const Published& published : kPublished) {
    const Model model = load_model(published.name).value();
    EXPECT_EQ(model.tensors.size(), published.tensors) << published.name;
    EXPECT_EQ(model.elements(), published.elements) << published.name;
    const auto largest = std::max_element(
        model.tensors.begin(), model.tensors.end(),
        [](const ModelTensor& a, const ModelTensor& b) { return a.count < b.count; });
    EXPECT_EQ(largest->name, published.largest) << published.name;
    EXPECT_EQ(largest->count, published.largest_count) << published.name;
  }
  EXPECT_EQ(model_names().size(), std::size(kPublished));
}

TEST(BenchModels, BackwardBeginsWithTheLastTensor) {
  const Model model{"m", {{"a", 3}, {"b", 5}, {"c", 2}}};
  EXPECT_THAT(backward_order(model, 0), ElementsAre(2, 5, 3));
}

TEST(BenchModels, NeighboursAreFusedUpToTheLimit) {
  const Model model{"m", {{"a", 3}, {"b", 5}, {"c", 2}, {"d", 2}, {"e", 20}}};
  EXPECT_THAT(backward_order(model, 4), ElementsAre(20, 4, 5, 3));
  EXPECT_THAT(backward_order(model, 9), ElementsAre(20, 9, 3));
  EXPECT_THAT(backward_order(model, 1000), ElementsAre(32));
}

TEST(BenchModels, FusingKeepsEveryElement) {
  const Model model = load_model("gpt2").value();
  const auto counts = backward_order(model, 25 << 18);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), uint64_t{0}), model.elements());
  EXPECT_LT(counts.size(), 60u);
}

TEST(BenchModels, DamagedTablesAreRefused) {
  EXPECT_THAT(parse_model("m", "count,name\n").status().message(), HasSubstr("GB-X001"));
  for (const char* line : {"a", "a,", "a,x", "a,1x", "a,-1", ",1", "", "a,99999999999999999999"}) {
    const Result<Model> model = parse_model("m", "name,count\n" + std::string(line) + "\nb,1\n");
    ASSERT_FALSE(model.ok()) << line;
    EXPECT_THAT(model.status().message(), HasSubstr("\"" + std::string(line) + "\"")) << line;
  }
}

}  // namespace
}  // namespace gradbus
