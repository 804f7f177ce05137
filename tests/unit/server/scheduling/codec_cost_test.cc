// What codecs cost, and how their costs are written down.
#include "server/scheduling/codec_cost.h"

#include <gmock/gmock.h>

namespace gradbus::scheduling {
namespace {

using ::testing::HasSubstr;

CodecCost codec_of(Carrier carrier) {
  return {.name = "test",
          .ratio = 0.1,
          .encode = {100, 1},
          .decode = {50, 2},
          .carrier = carrier,
          .on_compute = false};
}

// 4 nodes, a = 10 us, b = 2 ns, 10,000 bytes: payloads of 1,000 bytes. In a ring.
constexpr Network kRing{
    .nodes = 4, .alpha_us = 10, .beta_ns = 2, .gamma_ns = 0, .algorithm = Algorithm::kRing};

TEST(CodecCosts, AnAllReducedPayloadIsCodedOnce) {
  const CodecCost codec = codec_of(Carrier::kAllReduce);
  EXPECT_DOUBLE_EQ(encode_us(codec, 10'000, 4), 110);
  EXPECT_DOUBLE_EQ(decode_us(codec, 10'000, 4), 70);
  // 2 (3 a + 3/4 * 1,000 b) = 2 (30 + 1.5)
  EXPECT_DOUBLE_EQ(exchange_us(CollectiveKind::kAllReduce, codec, 10'000, kRing), 63);
  EXPECT_DOUBLE_EQ(exchange_us(CollectiveKind::kReduceScatter, codec, 10'000, kRing), 31.5);
}

TEST(CodecCosts, GatheredPayloadsAreDecodedByEveryNode) {
  const CodecCost codec = codec_of(Carrier::kAllGather);
  EXPECT_DOUBLE_EQ(encode_us(codec, 10'000, 4), 110);
  EXPECT_DOUBLE_EQ(decode_us(codec, 10'000, 4), 50 + 80);
  // 3 a + 3 payloads
  EXPECT_DOUBLE_EQ(exchange_us(CollectiveKind::kAllReduce, codec, 10'000, kRing), 36);
}

TEST(CodecCosts, OwnersCodeTheirShareAgain) {
  const CodecCost codec = codec_of(Carrier::kOwners);
  EXPECT_DOUBLE_EQ(encode_us(codec, 10'000, 4), 112.5);
  EXPECT_DOUBLE_EQ(decode_us(codec, 10'000, 4), 90);
  EXPECT_DOUBLE_EQ(exchange_us(CollectiveKind::kAllReduce, codec, 10'000, kRing), 63);
}

TEST(CodecCosts, ARowMayBeChanged) {
  const CodecCost codec =
      parse_codec_cost("topk:ratio=0.002,encode_us=70,carrier=owners,runs_on=compute").value();
  EXPECT_EQ(codec.name, "topk");
  EXPECT_DOUBLE_EQ(codec.ratio, 0.002);
  EXPECT_DOUBLE_EQ(codec.encode.startup_us, 70);
  EXPECT_DOUBLE_EQ(codec.encode.byte_ns, 0.18);
  EXPECT_EQ(codec.carrier, Carrier::kOwners);
  EXPECT_TRUE(codec.on_compute);
  EXPECT_TRUE(parse_codec_cost("none").value().is_dense());
}

TEST(CodecCosts, MistakesAreNamed) {
  EXPECT_THAT(parse_codec_cost("topq").status().message(), HasSubstr("did you mean \"topk\"?"));
  EXPECT_THAT(parse_codec_cost("topk:ratio=7").status().message(), HasSubstr("GB-O910"));
  EXPECT_THAT(parse_codec_cost("topk:carrier=pigeon").status().message(), HasSubstr("all_gather"));
  EXPECT_THAT(parse_codec_cost("none:ratio=1").status().message(), HasSubstr("has no options"));
}

}  // namespace
}  // namespace gradbus::scheduling
