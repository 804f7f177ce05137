// Options of `gradbus bench`: sizes, contradictions, and the words that each rank's program reads.
#include "cli/bench/work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

namespace gradbus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BenchOptions options_of(const std::string& collective) {
  BenchOptions options;
  options.collective = collective;
  return options;
}

std::string refusal(const BenchOptions& options, int ranks = 4) {
  const Result<BenchWork> work = make_work(options, ranks);
  return work.ok() ? "accepted" : work.status().message();
}

TEST(BenchBytes, UnitsAre1024Based) {
  EXPECT_EQ(parse_bytes("0", "-b").value(), 0u);
  EXPECT_EQ(parse_bytes("4", "-b").value(), 4u);
  EXPECT_EQ(parse_bytes("64K", "-b").value(), 65536u);
  EXPECT_EQ(parse_bytes("3MiB", "-b").value(), 3u * 1024 * 1024);
  EXPECT_EQ(parse_bytes("1gb", "-b").value(), 1073741824u);
  EXPECT_EQ(parse_bytes("1T", "-b").value(), 1099511627776u);
}

TEST(BenchBytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", "K", "-1", "1.5M", "4X", "4 K", "nan", "2T", "99999999999999999999",
                           "1KK", "16777216T", "KB"}) {
    const Result<uint64_t> bytes = parse_bytes(text, "--fuse");
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_THAT(bytes.status().message(), HasSubstr("--fuse is \"" + std::string(text)));
  }
}

TEST(BenchSizes, MultiplyUpToTheLast) {
  EXPECT_THAT(sizes_between(4, 256, 4), ElementsAre(4, 16, 64, 256));
  EXPECT_THAT(sizes_between(4, 255, 4), ElementsAre(4, 16, 64));
  EXPECT_THAT(sizes_between(100, 100, 2), ElementsAre(100));
  EXPECT_THAT(sizes_between(0, 4, 2), ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(sizes_between(0, 0, 2), ElementsAre(0));
}

TEST(BenchWork, TakesRegisteredTensorsUnlessPrivate) {
  BenchOptions options = options_of("all_reduce");
  EXPECT_TRUE(make_work(options, 2).value().registered);
  options.private_buffers = true;
  EXPECT_FALSE(make_work(options, 2).value().registered);
  EXPECT_FALSE(make_work(options_of("all_gather"), 2).value().registered);
}

TEST(BenchWork, CollectivesThatMoveBytesHaveNoOperation) {
  EXPECT_EQ(make_work(options_of("broadcast"), 2).value().op, ReduceOp::kNone);
  EXPECT_EQ(make_work(options_of("reduce"), 2).value().op, ReduceOp::kSum);
  EXPECT_THAT(make_work(options_of("barrier"), 2).value().sizes, ElementsAre(0));
}

TEST(BenchWork, ContradictionsAreNamed) {
  BenchOptions options = options_of("all_redvce");
  EXPECT_THAT(refusal(options), HasSubstr("no collective \"all_redvce\""));
  options = options_of("all_reduce");
  options.dtype = "f31";
  EXPECT_THAT(refusal(options), HasSubstr("--dtype is \"f31\" | next: take one of: f32, f64"));
  options = options_of("all_reduce");
  options.op = "bit_and";
  EXPECT_THAT(refusal(options), HasSubstr("bit_and is not defined for f32"));
  options.op = "adasum";
  EXPECT_THAT(refusal(options), HasSubstr("adasum is an all_reduce of private buffers"));
  options = options_of("broadcast");
  options.op = "max";
  EXPECT_THAT(refusal(options), HasSubstr("broadcast combines nothing"));
  options.op = "sum";
  options.root = 4;
  EXPECT_THAT(refusal(options), HasSubstr("--root is 4 | next: choose one of the ranks 0..3"));
  options.root = -1;
  EXPECT_THAT(refusal(options), HasSubstr("--root is -1"));
  options = options_of("all_gather");
  options.root = 1;
  EXPECT_THAT(refusal(options), HasSubstr("all_gather has no root"));
  options = options_of("all_reduce");
  options.bytes_min = "1M";
  options.bytes_max = "64K";
  EXPECT_THAT(refusal(options), HasSubstr("-b 1M is more than -e 64K"));
  options = options_of("all_reduce");
  options.fuse = "1M";
  EXPECT_THAT(refusal(options), HasSubstr("--fuse groups the tensors of a model"));
  options.model = "resnet51";
  EXPECT_THAT(refusal(options), HasSubstr("no model \"resnet51\""));
  options = options_of("all_reduce");
  options.memory = "tape";
  EXPECT_THAT(refusal(options), HasSubstr("--memory is \"tape\" | next: take one of: host, cuda"));
  options.memory = "cuda";
  options.mode = "ps:sync";
  EXPECT_THAT(refusal(options), HasSubstr("--memory cuda is for an all_reduce"));
  options.mode = "";
  options.private_buffers = true;
  EXPECT_THAT(refusal(options), HasSubstr("--memory cuda is for an all_reduce"));
  options = options_of("broadcast");
  options.memory = "cuda";
  EXPECT_THAT(refusal(options), HasSubstr("--memory cuda is for an all_reduce"));
  options = options_of("broadcast");
  options.model = "resnet50";
  EXPECT_THAT(refusal(options), HasSubstr("--model exchanges gradients"));
}

// Expect: the rank's program, which reads the words with the same declarations, has the options.
TEST(BenchWork, WordsGiveTheSameOptions) {
  BenchOptions given = options_of("all_reduce");
  given.bytes_min = "8";
  given.bytes_max = "32M";
  given.factor = 2;
  given.iterations = 7;
  given.warmup = 3;
  given.check = given.private_buffers = true;
  given.dtype = "bf16";
  given.op = "max";
  given.model = "gpt2";
  given.fuse = "25M";
  given.json = "out file.json";
  given.seed = 99;
  given.memory = "cuda";
  CLI::App app;
  BenchOptions read;
  app.add_option("collective", read.collective)->required();
  declare_bench_options(app, read);
  std::vector<std::string> words = bench_words(given);
  std::reverse(words.begin(), words.end());
  app.parse(words);
  EXPECT_EQ(bench_words(read), bench_words(given));
  EXPECT_EQ(read.json, "out file.json");
  EXPECT_TRUE(read.check && read.private_buffers);
  EXPECT_EQ(read.seed, 99u);
  EXPECT_EQ(read.memory, "cuda");
}

}  // namespace
}  // namespace gradbus
