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

std::vector<std::string> names_of(std::string_view text) {
  const auto hosts = parse_host_list(text);
  EXPECT_TRUE(hosts.ok()) << text << ": " << hosts.status().message();
  std::vector<std::string> names;
  if (hosts.ok())
    for (const Host& host : hosts.value())
      names.push_back(host.name + ":" + std::to_string(host.slots));
  return names;
}

TEST(HostList, RangesAsSlurmWritesThem) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_of("node[01-03,07]:2,x"),
            (Names{"node01:2", "node02:2", "node03:2", "node07:2", "x:1"}));
  EXPECT_EQ(names_of("n[9-11]"), (Names{"n9:1", "n10:1", "n11:1"}));
  EXPECT_EQ(names_of("n[098-101].example.org"),
            (Names{"n098.example.org:1", "n099.example.org:1", "n100.example.org:1",
                   "n101.example.org:1"}));
  EXPECT_EQ(names_of("r[1-2]n[1,3]:4"), (Names{"r1n1:4", "r1n3:4", "r2n1:4", "r2n3:4"}));
  EXPECT_EQ(names_of("[::1]:4,a[5]"), (Names{"::1:4", "a5:1"}));
  EXPECT_EQ(names_of("[1-2]x"), (Names{"1x:1", "2x:1"}));
  EXPECT_EQ(names_of("n[1-4096]").size(), 4096u);
  EXPECT_EQ(names_of("n[1-64]m[1-64]").size(), 4096u);
}

TEST(HostList, BadRangesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"n[4-1]", "whose first number is the larger one"},
      {"n[1-]", "is not NUMBER or NUMBER-NUMBER"},
      {"n[]", "is not NUMBER or NUMBER-NUMBER"},
      {"n[1,,2]", "is not NUMBER or NUMBER-NUMBER"},
      {"n[a-c]", "is not NUMBER or NUMBER-NUMBER"},
      {"n[-3]", "is not NUMBER or NUMBER-NUMBER"},
      {"n[1-2-3]", "is not NUMBER or NUMBER-NUMBER"},
      {"n[1-4", "has a [ without its ]"},
      {"n1-4]", "has a ] without its ["},
      {"n[1-4097]", "names more than 4096 hosts"},
      {"n[1-4000,1-97]", "names more than 4096 hosts"},
      {"n[1-65]m[1-64]", "names more than 4096 hosts"},
      {"n[0-999999999]", "names more than 4096 hosts"},
      {"n[0-99999999999999999999]", "has a number of more than 9 digits"},
      {"-o[1-2]", "is not a host name"},
      {"n[1-2]:0", "has slots that are not in 1..4096"},
  };
  for (const auto& [text, why] : cases) {
    const auto hosts = parse_host_list(text);
    ASSERT_FALSE(hosts.ok()) << text;
    EXPECT_THAT(hosts.status().message(),
                HasSubstr("GB-H200 BAD_LAUNCH: host entry \"" + std::string(text).substr(0, 6)))
        << text;
    EXPECT_THAT(hosts.status().message(), HasSubstr(why)) << text;
  }
  EXPECT_THAT(parse_host_list("a[1-4000],b[1-4000]").status().message(),
              HasSubstr("more than 4096 hosts"));
}

TEST(Hostfile, FilesThatPeopleHave) {
  const auto hosts = parse_hostfile(
      "\xef\xbb\xbfn1 slots = 4\r\n\r\n# two racks\r\nr[1-2] slots =2 max_slots= 3 # "
      "both\r\nn[07-08]:3\r\n"
      "[fe80::2] slots= 5\r\nn9\tslots=1\t");
  ASSERT_TRUE(hosts.ok()) << hosts.status().message();
  EXPECT_EQ(
      hosts.value(),
      (std::vector<Host>{
          {"n1", 4}, {"r1", 2}, {"r2", 2}, {"n07", 3}, {"n08", 3}, {"fe80::2", 5}, {"n9", 1}}));
  EXPECT_EQ(parse_hostfile("\xef\xbb\xbf").value().size(), 0u);
  EXPECT_THAT(parse_hostfile(std::string_view("\xff\xfen\0", 4)).status().message(),
              HasSubstr("is UTF-16"));
}

TEST(Hostfile, LinesCommentsAndSlots) {
  const auto hosts =
      parse_hostfile("# cluster\n\nn1 slots=4\n  n2:2  # two\nn3\nn4 slots=3 max-slots=5\n");
  ASSERT_TRUE(hosts.ok()) << hosts.status().message();
  EXPECT_EQ(hosts.value(), (std::vector<Host>{{"n1", 4}, {"n2", 2}, {"n3", 1}, {"n4", 3}}));
}

TEST(Hostfile, BadLinesAreNamed) {
  for (const char* text : {"n1 slots=0", "n1 slots=", "n1 cores=3", "n1 slots=nan\n", "n1 slots",
                           "n1 4", "n1 slots=2 slots=3", "n1 slots==2"}) {
    const auto hosts = parse_hostfile(text);
    ASSERT_FALSE(hosts.ok()) << text;
    EXPECT_THAT(hosts.status().message(), HasSubstr("n1 ")) << text;
  }
}

TEST(Hostfile, SlotsTwiceAreNamed) {
  EXPECT_THAT(parse_hostfile("n1:2 slots=2").status().message(),
              HasSubstr("\"n1:2 slots=2\" has slots twice"));
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
