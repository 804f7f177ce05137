// Bad input to `gradbus run` that is seen before anything starts.
#include "cli/options/run_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradbus {
namespace {

using ::testing::HasSubstr;

RunOptions good() {
  RunOptions options;
  options.ranks = "2";
  options.command = {"true"};
  return options;
}

std::string problem(const RunOptions& options) { return check_run_options(options).message(); }

TEST(RunOptions, GoodOnesPass) {
  RunOptions options = good();
  EXPECT_EQ(problem(options), "");
  options.ranks.clear();
  options.hosts = "localhost:2";
  options.start_timeout = "0.5";
  options.op_timeout = "1e3";
  EXPECT_EQ(problem(options), "");
}

TEST(RunOptions, Commands) {
  RunOptions options = good();
  options.command.clear();
  EXPECT_THAT(problem(options), HasSubstr("GB-H200 BAD_LAUNCH: there is no program"));
  options.command = {""};
  EXPECT_THAT(problem(options), HasSubstr("there is no program"));
}

TEST(RunOptions, RankNumbers) {
  for (const char* ranks : {"0", "-1", "nan", "4097", "1e9", "two", "4 "}) {
    RunOptions options = good();
    options.ranks = ranks;
    EXPECT_THAT(problem(options), HasSubstr("GB-J401 BAD_RANK: -np is \"" + std::string(ranks)));
  }
  RunOptions options = good();
  options.ranks.clear();
  EXPECT_THAT(problem(options), HasSubstr("number of ranks is missing"));
}

TEST(RunOptions, Timeouts) {
  for (const char* seconds : {"0", "-3", "nan", "inf", "soon", "5s", "1e99"}) {
    RunOptions options = good();
    options.start_timeout = seconds;
    EXPECT_THAT(problem(options), HasSubstr("--start-timeout is \"" + std::string(seconds)));
    options.start_timeout.clear();
    options.op_timeout = seconds;
    EXPECT_THAT(problem(options), HasSubstr("--op-timeout is \"" + std::string(seconds)));
    options.op_timeout.clear();
    options.elastic_timeout = seconds;
    EXPECT_THAT(problem(options), HasSubstr("--elastic-timeout is \"" + std::string(seconds)));
  }
}

TEST(RunOptions, Contradictions) {
  RunOptions options = good();
  options.agents = "0";
  EXPECT_THAT(problem(options), HasSubstr("--agents is \"0\""));
  options.agents = "2";
  options.hosts = "localhost:2";
  EXPECT_THAT(problem(options), HasSubstr("leave out --agents"));
  options.agents.clear();
  options.hostfile = "/hosts";
  EXPECT_THAT(problem(options), HasSubstr("-H and --hostfile"));
  options = good();
  options.variables = {"1BAD=x"};
  EXPECT_THAT(problem(options), HasSubstr("1BAD"));
}

TEST(RunOptions, Links) {
  RunOptions options = good();
  options.link = "1gbit,200us";
  options.agents = "2";
  EXPECT_EQ(problem(options), "");
  options.agents = "1";
  EXPECT_THAT(problem(options), HasSubstr("--link needs at least two agents"));
  options.agents.clear();
  EXPECT_THAT(problem(options), HasSubstr("gradbus run --agents 2 --link 1gbit,200us"));
  options.agents = "2";
  options.link = "fast";
  EXPECT_THAT(problem(options), HasSubstr("GB-H200 BAD_LAUNCH: --link's rate is \"fast\""));
}

TEST(FindProgram, OnPathAndByName) {
  EXPECT_EQ(find_program("sh", "/nowhere:/bin").value(), "/bin/sh");
  EXPECT_EQ(find_program("/bin/sh", "").value(), "/bin/sh");
  EXPECT_THAT(find_program("no-such-program", "/bin").status().message(),
              HasSubstr("not a program"));
  EXPECT_THAT(find_program("/no/such", "").status().message(), HasSubstr("does not exist"));
  EXPECT_THAT(find_program("/etc/passwd", "").status().message(), HasSubstr("not an executable"));
  EXPECT_FALSE(find_program("/bin", "").ok());
}

}  // namespace
}  // namespace gradbus
