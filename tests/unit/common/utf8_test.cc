// Tests of RFC 3629's table, its limits, and values just beyond them.
#include "common/utf8.h"

#include <gtest/gtest.h>

namespace gradbus {
namespace {

TEST(Utf8, AcceptsTheEdgesOfEveryLength) {
  for (const char* text :
       {"", "plain", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf",
        "gr\xc3\xb6\xc3\x9f"
        "e"})
    EXPECT_TRUE(is_utf8(text)) << text;
}

TEST(Utf8, RefusesEverythingElse) {
  for (const char* text : {"\x80", "\xff\xfe", "\xc0\xaf", "\xc1\xbf", "\xc2", "\xc2\x41",
                           "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82", "\xf0\x8f\xbf\xbf",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "ok\xe9"})
    EXPECT_FALSE(is_utf8(text));
}

TEST(Utf8, RepairsOnlyWhatIsWrong) {
  EXPECT_EQ(as_utf8("gr\xc3\xb6\xc3\x9f"
                    "e"),
            "gr\xc3\xb6\xc3\x9f"
            "e");
  EXPECT_EQ(as_utf8("cut \xe2\x82"), "cut ??");
  EXPECT_EQ(as_utf8("\xff\xed\xa0\x80ok\xc3"), "????ok?");
  EXPECT_EQ(as_utf8(""), "");
}

}  // namespace
}  // namespace gradbus
