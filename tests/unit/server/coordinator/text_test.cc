#include "server/coordinator/members/text.h"

#include <gtest/gtest.h>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

RankSet range(uint32_t first, uint32_t last) {
  RankSet set;
  for (uint32_t rank = first; rank <= last; ++rank) set.insert(rank);
  return set;
}

TEST(Text, RankLists) {
  EXPECT_EQ(rank_list({}), "none");
  EXPECT_EQ(rank_phrase({3}), "rank 3");
  EXPECT_EQ(rank_phrase({0, 1, 2}), "ranks 0, 1, 2");
  EXPECT_EQ(rank_list(range(0, 4095)), "0-4095");
  RankSet mixed = range(0, 6);
  mixed.insert({8, 9, 12});
  EXPECT_EQ(rank_list(mixed), "0-6, 8, 9, 12");
  RankSet even;
  for (uint32_t rank = 0; rank < 100; rank += 2) even.insert(rank);
  EXPECT_EQ(rank_list(even), "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, ...");
}

TEST(Text, CleanTextIsOneLineAndCutsAtACharacter) {
  EXPECT_EQ(clean_text("a\nb\x1b[0m\x7f"), "a?b?[0m?");
  EXPECT_EQ(clean_text("abcdef", 3), "abc...");
  EXPECT_EQ(clean_text("ab\xc3\xa9z", 3), "ab...");  // not half of the e with an accent
  EXPECT_EQ(clean_text("ab\xc3\xa9z", 4), "ab\xc3\xa9...");
}

TEST(Text, NamesOfTensorsAreThoseOfTheUser) {
  EXPECT_EQ(tensor_in_quotes("loss"), "\"loss\"");
  EXPECT_EQ(tensor_in_quotes("loss#len"), "\"loss\"");
  EXPECT_EQ(tensor_in_quotes("loss#blocks4096"), "\"loss\"");
  for (const char* const own : {"loss#2", "loss#blocks", "loss#blocks4a", "#lens"})
    EXPECT_EQ(tensor_in_quotes(own), in_quotes(own));
}

TEST(Text, Durations) {
  EXPECT_EQ(seconds_text(1500 * kMillisecond), "1.5 s");
  EXPECT_EQ(seconds_text(10 * kSecond), "10.0 s");
  EXPECT_EQ(seconds_text(3600 * kSecond), "3600 s");
}

TEST(Text, Specs) {
  using test::make_spec;
  EXPECT_EQ(spec_text(make_spec("t", 100)), "f32[100] all_reduce sum");
  EXPECT_EQ(
      spec_text(make_spec("t", 2, DType::kI64, CollectiveKind::kBroadcast, ReduceOp::kNone, 3)),
      "i64[2] broadcast root 3");
  EXPECT_EQ(spec_text(make_spec("t", 0, DType::kU8, CollectiveKind::kAllGather)),
            "u8[0] all_gather");
}

TEST(Text, ErrorsFitAnAttachPacket) {
  const Status status = short_error("O903", std::string(100'000, 'x'));
  EXPECT_LT(status.message().size(), 1024u);
  EXPECT_TRUE(status.message().starts_with("GB-O903"));
}

}  // namespace
}  // namespace gradbus
