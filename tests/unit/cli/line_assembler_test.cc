// Line assembly: however the bytes are cut into chunks, the lines are the same.
#include "cli/terminal/line_assembler.h"

#include <gtest/gtest.h>

#include <vector>

namespace gradbus {
namespace {

struct Lines {
  LineAssembler assembler;
  std::vector<std::string> seen;

  void push(std::string_view bytes) {
    assembler.push(bytes, [this](std::string_view line) { seen.emplace_back(line); });
  }
  void finish() {
    assembler.finish([this](std::string_view line) { seen.emplace_back(line); });
  }
};

TEST(LineAssembler, AnyCutGivesTheSameLines) {
  const std::string text = "one\n\ntwo\r\nthree \xc3\xa4\nrest";
  const std::vector<std::string> expected = {"one", "", "two\r", "three \xc3\xa4", "rest"};
  for (size_t step = 1; step <= text.size(); ++step) {
    Lines lines;
    for (size_t i = 0; i < text.size(); i += step) lines.push(text.substr(i, step));
    lines.finish();
    EXPECT_EQ(lines.seen, expected) << "chunks of " << step;
  }
}

TEST(LineAssembler, NothingIsLeftAfterFinish) {
  Lines lines;
  lines.push("x");
  lines.finish();
  lines.finish();
  EXPECT_EQ(lines.seen, (std::vector<std::string>{"x"}));
}

TEST(LineAssembler, ALineWithoutEndComesInPieces) {
  Lines lines;
  const std::string flood(kLineBytesMax * 2 + 5, 'y');
  lines.push(flood);
  EXPECT_EQ(lines.seen.size(), 2u);
  EXPECT_EQ(lines.assembler.partial().size(), 5u);
  lines.push("\n");
  ASSERT_EQ(lines.seen.size(), 3u);
  EXPECT_EQ(lines.seen[0] + lines.seen[1] + lines.seen[2], flood);
}

TEST(LineAssembler, ALineOfExactlyTheMaximumIsOneLine) {
  Lines lines;
  lines.push(std::string(kLineBytesMax - 1, 'z') + "\nnext\n");
  EXPECT_EQ(lines.seen.size(), 2u);
}

TEST(LineAssembler, OverwrittenTextIsDropped) {
  Lines lines;
  for (int percent = 0; percent <= 100; ++percent) {
    lines.push("\r " + std::to_string(percent) + " %");
    lines.assembler.drop_overwritten();
    EXPECT_LE(lines.assembler.partial().size(), 8u);
    EXPECT_EQ(visible_text(lines.assembler.partial()), " " + std::to_string(percent) + " %");
  }
  lines.push("\n");
  ASSERT_EQ(lines.seen.size(), 1u);
  EXPECT_EQ(visible_text(lines.seen[0]), " 100 %");
}

TEST(LineAssembler, TrailingCarriageReturnsCountAsWell) {
  Lines lines;
  for (const char* part : {"10 %\r", "20", " %\r", "done"}) {
    lines.push(part);
    lines.assembler.drop_overwritten();
  }
  EXPECT_EQ(visible_text(lines.assembler.partial()), "done");
}

TEST(VisibleText, LastPieceThatHasText) {
  EXPECT_EQ(visible_text(""), "");
  EXPECT_EQ(visible_text("plain"), "plain");
  EXPECT_EQ(visible_text("windows\r"), "windows");
  EXPECT_EQ(visible_text("\ra\rb"), "b");
  EXPECT_EQ(visible_text("a\rb\r\r"), "b");
  EXPECT_EQ(visible_text("\r\r"), "");
}

TEST(ClipToColumns, CountsCharactersNotBytesOrEscapes) {
  EXPECT_EQ(clip_to_columns("abcdef", 4), "abcd");
  EXPECT_EQ(clip_to_columns("abc", 3), "abc");
  EXPECT_EQ(clip_to_columns("\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88", 2), "\xe2\x96\x88\xe2\x96\x88");
  EXPECT_EQ(clip_to_columns("\x1b[32mok\x1b[0m!", 2), "\x1b[32mok\x1b[0m");
  EXPECT_EQ(clip_to_columns("\x1b[", 5), "\x1b[");
}

}  // namespace
}  // namespace gradbus
