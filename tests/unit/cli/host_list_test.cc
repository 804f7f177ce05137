// Host lists and hostfiles: what is accepted, and that every bad entry is named.
#include "cli/options/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace gradbus {
namespace {

using ::testing::HasSubstr;

TEST(HostList, NamesAndSlots) {
  const auto hosts = parse_host_list("node-a:2, node-b ,user@node-c:16");
  ASSERT_TRUE(hosts.ok()) << hosts.status().message();
  EXPECT_EQ(
      hosts.value(),
      (std::vector<Host>{{"node-a", 2, false}, {"node-b", 1, false}, {"user@node-c", 16, false}}));
}

TEST(HostList, OneNameTwiceStaysTwoEntries) {
  const auto hosts = parse_host_list("localhost:2,localhost:2");
  ASSERT_TRUE(hosts.ok());
  EXPECT_EQ(hosts.value().size(), 2u);
  EXPECT_TRUE(hosts.value()[1].local);
}

TEST(HostList, BracketsHoldAnAddress) {
  const auto hosts = parse_host_list("[::1]:4,[fe80::2]");
  ASSERT_TRUE(hosts.ok()) << hosts.status().message();
  EXPECT_EQ(hosts.value()[0], (Host{"::1", 4, true}));
  EXPECT_EQ(hosts.value()[1], (Host{"fe80::2", 1, false}));
}

TEST(HostList, BadEntriesAreNamed) {
  for (const char* text : {"", "a,,b", ":2", "a:", "a:0", "a:-1", "a:nan", "a:4097", "a:2x",
                           "a b:1", "-oProxyCommand=x:1", "$(reboot):1", "fe80::2", "a;b"}) {
    const auto hosts = parse_host_list(text);
    ASSERT_FALSE(hosts.ok()) << text;
    EXPECT_THAT(hosts.status().message(), HasSubstr("GB-H200 BAD_LAUNCH: host entry")) << text;
  }
  EXPECT_THAT(parse_host_list("ok:1,bad:0").status().message(), HasSubstr("\"bad:0\""));
}

TEST(Hostfile, LinesCommentsAndSlots) {
  const auto hosts =
      parse_hostfile("# cluster\n\nn1 slots=4\n  n2:2  # two\nn3\nn4 slots=3 max-slots=5\n");
  ASSERT_TRUE(hosts.ok()) << hosts.status().message();
  EXPECT_EQ(hosts.value(), (std::vector<Host>{{"n1", 4}, {"n2", 2}, {"n3", 1}, {"n4", 3}}));
}

TEST(Hostfile, BadLinesAreNamed) {
  for (const char* text : {"n1 slots=0", "n1 slots=", "n1 cores=3", "n1 slots=nan\n"}) {
    const auto hosts = parse_hostfile(text);
    ASSERT_FALSE(hosts.ok()) << text;
    EXPECT_THAT(hosts.status().message(), HasSubstr("n1 ")) << text;
  }
}

TEST(Hostfile, MissingFileIsNamed) {
  EXPECT_THAT(read_hostfile("/nowhere/hosts").status().message(), HasSubstr("/nowhere/hosts"));
}

TEST(ThisMachine, IsKnownByItsNames) {
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  for (const std::string& local :
       {std::string("localhost"), std::string("127.0.0.1"), std::string("127.3.2.1"),
        std::string("::1"), std::string(name), std::string(name) + ".example.org"})
    EXPECT_TRUE(is_this_machine(local)) << local;
  for (const char* other : {"localhost.example.org.evil", "192.0.2.1", "node-elsewhere"})
    EXPECT_FALSE(is_this_machine(other)) << other;
}

TEST(RankCount, WholeNumbersInRange) {
  EXPECT_EQ(parse_rank_count("1", "-np").value(), 1);
  EXPECT_EQ(parse_rank_count("4096", "-np").value(), 4096);
  for (const char* text : {"", "0", "-1", "+4", "nan", "inf", "4097", "99999999999999999999", "1e3",
                           "4.0", " 4", "4 ", "four"}) {
    const auto count = parse_rank_count(text, "-np");
    ASSERT_FALSE(count.ok()) << text;
    EXPECT_THAT(count.status().message(), HasSubstr("GB-J401 BAD_RANK: -np is \"")) << text;
  }
}

}  // namespace
}  // namespace gradbus
