#include "compression/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "compression/registry.h"

namespace gradbus {
namespace {

using testing::HasSubstr;

TEST(CompressionSpec, NamesACodecAndFillsInTheDefaults) {
  const Result<CompressionSpec> spec = parse_compression("none");
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_TRUE(spec.value().none());
  EXPECT_EQ(spec.value().canonical, "none");
  EXPECT_EQ(spec.value().options.text("ef"), "auto");
  EXPECT_EQ(spec.value().communicator(), Communicator::kAuto);
}

TEST(CompressionSpec, CanonicalTextIsTheSameForTheSameThing) {
  const Result<CompressionSpec> a = parse_compression("none:communicator=ps,decay=0.90,ef=auto");
  const Result<CompressionSpec> b = parse_compression("none:decay=9e-1,communicator=ps");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a.value().canonical, b.value().canonical);
  EXPECT_EQ(a.value().canonical, "none:decay=0.9,communicator=ps");
}

TEST(CompressionSpec, SaysWhatIsWrongAndWhatWasMeant) {
  const auto message = [](std::string_view text) {
    return parse_compression(text).status().message();
  };
  EXPECT_THAT(message("non"), HasSubstr("did you mean \"none\"?"));
  EXPECT_THAT(message("none:decya=1"), HasSubstr("did you mean \"decay\"?"));
  EXPECT_THAT(message("none:decay"), HasSubstr("option decay has no value"));
  EXPECT_THAT(message("none:decay=2"), HasSubstr("expected a number from 0 to 1"));
  EXPECT_THAT(message("none:decay=0.5x"), HasSubstr("expected a number from 0 to 1"));
  EXPECT_THAT(message("none:decay=nan"), HasSubstr("expected a number from 0 to 1"));
  EXPECT_THAT(message("none:ef=yes"), HasSubstr("expected one of auto, none, residual, dgc"));
  EXPECT_THAT(message("none:decay=1,decay=1"), HasSubstr("given twice"));
  EXPECT_THAT(message(""), HasSubstr("GB-O910"));
}

// Expect: no name stands for two options, and a canonical text means what it was made from.
TEST(CompressionSpec, EachOptionOfEachCodecKeepsItsMeaning) {
  for (const CodecRow* row : codec_rows()) {
    std::vector<const CodecOption*> options;
    for (const CodecOption& option : row->options) options.push_back(&option);
    for (const CodecOption& option : common_codec_options()) options.push_back(&option);
    std::set<std::string_view> names;
    for (const CodecOption* option : options) {
      EXPECT_TRUE(names.insert(option->name).second) << row->name << ": " << option->name;
      const std::string value = option->choices.empty() ? std::to_string(std::max(option->min, 1.0))
                                                        : std::string(option->choices.back());
      const std::string text = std::string(row->name) + ":" + std::string(option->name) + "=" +
                               (option->whole && option->choices.empty() ? "1" : value);
      const auto once = parse_compression(text);
      if (!once.ok()) continue;  // 1 is out of its range
      const auto again = parse_compression(once.value().canonical);
      ASSERT_TRUE(again.ok()) << text << ": " << again.status().message();
      EXPECT_EQ(again.value().canonical, once.value().canonical) << text;
    }
  }
}

TEST(CodecRegistry, RowsHaveOneNumberAndOneNameEach) {
  const auto rows = codec_rows();
  for (size_t i = 1; i < rows.size(); ++i) {
    EXPECT_LT(rows[i - 1]->id, rows[i]->id) << rows[i]->name;
    EXPECT_EQ(find_codec(rows[i]->name), rows[i]);
  }
}

}  // namespace
}  // namespace gradbus
