// --link's syntax, and the commands that make such a link. Numbers worked out by hand.
#include "cli/options/link_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradbus {
namespace {

using ::testing::HasSubstr;

LinkSpec parsed(std::string_view text) {
  Result<LinkSpec> link = parse_link(text);
  EXPECT_TRUE(link.ok()) << link.status().message();
  return link.ok() ? link.value() : LinkSpec{};
}

TEST(LinkSpec, RatesAsTcWritesThem) {
  const struct {
    const char* text;
    uint64_t bits;
  } kRows[] = {{"1gbit", 1'000'000'000},    {"2.5gbit", 2'500'000'000}, {"100mbit", 100'000'000},
               {"0.1Gbit", 100'000'000},    {"512kbit", 512'000},       {"100000bit", 100'000},
               {"100GBIT", 100'000'000'000}};
  for (const auto& row : kRows) {
    EXPECT_EQ(parsed(row.text).bits_per_second, row.bits) << row.text;
    EXPECT_EQ(parsed(row.text).delay, 0) << row.text;
  }
}

TEST(LinkSpec, Delays) {
  EXPECT_EQ(parsed("1gbit,200us").delay, 200'000);
  EXPECT_EQ(parsed("1gbit,5ms").delay, 5'000'000);
  EXPECT_EQ(parsed("1gbit,0.5ms").delay, 500'000);
  EXPECT_EQ(parsed("1gbit,1s").delay, 1'000'000'000);
  EXPECT_EQ(parsed("1gbit,1.5us").delay, 1'000) << "tc takes whole microseconds";
}

TEST(LinkSpec, BadRates) {
  // "mbps" is megabytes for tc and megabits for everybody else, so it is nobody's here.
  for (const char* rate : {"", "1", "gbit", "1gbps", "100mbps", "-1gbit", "nangbit", "infgbit",
                           "1e9bit", "1 gbit", "1gbits", "99kbit", "0gbit", "101gbit", "0x1gbit"})
    EXPECT_THAT(
        parse_link(rate).status().message(),
        HasSubstr("GB-H200 BAD_LAUNCH: --link's rate is \"" + std::string(rate) + "\", not "));
}

TEST(LinkSpec, BadDelays) {
  for (const char* delay : {"", "5", "0us", "0.9us", "-1ms", "2s", "nanms", "5ns", "1ms,1ms"})
    EXPECT_THAT(parse_link("1gbit," + std::string(delay)).status().message(),
                HasSubstr("--link's delay is \"" + std::string(delay) + "\", not "));
}

TEST(LinkSpec, TheBurstIsAMillisecondOrATickButTwoFramesAtLeast) {
  EXPECT_EQ(link_burst_bytes(parsed("1gbit"), 1), 125'000u);
  EXPECT_EQ(link_burst_bytes(parsed("1gbit"), 4'000'000), 500'000u);  // HZ=250: rate / HZ
  EXPECT_EQ(link_burst_bytes(parsed("100gbit"), 10'000'000), 125'000'000u);
  EXPECT_EQ(link_burst_bytes(parsed("1mbit"), 1), 2u * 9014);
}

TEST(LinkSpec, APacketIsNeverMoreThanTheBurst) {
  EXPECT_EQ(link_packet_bytes_max(125'000), 62'500u);
  EXPECT_EQ(link_packet_bytes_max(1'250'000), 65'536u);  // the most a kernel makes by default
  EXPECT_EQ(link_packet_bytes_max(2 * 9014), 9014u);
}

TEST(LinkSpec, Commands) {
  const LinkSpec link = parsed("1gbit,200us");
  EXPECT_EQ(
      rate_command("link0", link, 125'000),
      "qdisc add dev link0 root handle 1: tbf rate 1000000000bit burst 125000b latency 50ms\n");
  // 50.2 ms of a gigabit are 6,275,000 bytes: 4183 packets of 1500, and 1000 to spare.
  EXPECT_EQ(delay_command("port3", link),
            "qdisc add dev port3 parent 1:1 handle 10: netem delay 200us limit 5183\n");
}

}  // namespace
}  // namespace gradbus
