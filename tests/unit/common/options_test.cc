// Tests of OptionTable: precedence, every error, and the output of --help, --version and
// --print-config.
#include "common/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace gradbus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class OptionsTest : public ::testing::Test {
 protected:
  OptionsTest() {
    table_.add("shm-bytes-max", &shm_bytes_max_, 4096, int64_t{1} << 40,
               "Shared memory of all jobs");
    table_.add("offset", &offset_, -10, 10, "May be negative");
    table_.add("socket", &socket_, "Path of the socket");
    table_.add("verbose", &verbose_, "Say more");
  }

  ~OptionsTest() override {
    for (const std::string& name : variables_) unsetenv(name.c_str());
    if (!file_.empty()) std::filesystem::remove(file_);
  }

  void set_variable(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    variables_.push_back(name);
  }

  const std::string& write_file(const std::string& text) {
    file_ = ::testing::TempDir() + "gradbus_options_" + std::to_string(getpid()) + ".toml";
    std::ofstream(file_) << text;
    return file_;
  }

  Result<bool> parse(const std::vector<std::string>& arguments) {
    std::vector<const char*> argv = {"gradbus-agent"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    return table_.parse(static_cast<int>(argv.size()), argv.data());
  }

  void expect_error(const Result<bool>& result, const std::string& id, const std::string& what) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), Code::kInvalid);
    EXPECT_THAT(result.status().message(), AllOf(HasSubstr("GB-" + id + " "), HasSubstr(what)));
    EXPECT_THAT(result.status().message(), Not(HasSubstr("\n")));
  }

  // The text on stdout of a call that must return false.
  std::string printed(const std::vector<std::string>& arguments) {
    testing::internal::CaptureStdout();
    const Result<bool> result = parse(arguments);
    std::string text = testing::internal::GetCapturedStdout();
    EXPECT_TRUE(result.ok() && !result.value());
    return text;
  }

  int64_t shm_bytes_max_ = 65536;
  int64_t offset_ = 0;
  std::string socket_ = "/run/gradbus/agent.sock";
  bool verbose_ = false;
  OptionTable table_{"agent", "One per node."};
  std::vector<std::string> variables_;
  std::string file_;
};

TEST_F(OptionsTest, DefaultsStayWhenNothingIsSaid) {
  const Result<bool> result = parse({});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.value());
  EXPECT_EQ(shm_bytes_max_, 65536);
  EXPECT_EQ(socket_, "/run/gradbus/agent.sock");
  EXPECT_FALSE(verbose_);
}

TEST_F(OptionsTest, FileBeatsDefaultVariableBeatsFileFlagBeatsVariable) {
  const std::string& file =
      write_file("[agent]\nshm_bytes_max = 5000\noffset = 1\nsocket = \"/file\"\nverbose = true\n");
  set_variable("GRADBUS_AGENT_OFFSET", "2");
  set_variable("GRADBUS_AGENT_SOCKET", "/variable");
  ASSERT_TRUE(parse({"--config", file, "--socket", "/flag"}).ok());
  EXPECT_EQ(shm_bytes_max_, 5000);
  EXPECT_TRUE(verbose_);
  EXPECT_EQ(offset_, 2);
  EXPECT_EQ(socket_, "/flag");
  EXPECT_EQ(table_.print_config(), "[agent]\nshm_bytes_max = 5000  # " + file +
                                       ":2\noffset = 2  # GRADBUS_AGENT_OFFSET\n"
                                       "socket = \"/flag\"  # --socket\nverbose = true  # " +
                                       file + ":5\n");
}

TEST_F(OptionsTest, FlagsTakeEveryForm) {
  ASSERT_TRUE(parse({"--shm-bytes-max=8192", "--offset", "-3", "--socket=", "--verbose"}).ok());
  EXPECT_EQ(shm_bytes_max_, 8192);
  EXPECT_EQ(offset_, -3);
  EXPECT_EQ(socket_, "");
  EXPECT_TRUE(verbose_);
}

TEST_F(OptionsTest, AFlagCanTakeBackWhatTheFileSet) {
  const std::string& file = write_file("[agent]\nverbose = true\n");
  ASSERT_TRUE(parse({"--config", file, "--verbose=false"}).ok());
  EXPECT_FALSE(verbose_);
}

TEST_F(OptionsTest, RangeEndsBelong) {
  ASSERT_TRUE(parse({"--offset=10", "--shm-bytes-max=4096"}).ok());
  EXPECT_EQ(offset_, 10);
  EXPECT_EQ(shm_bytes_max_, 4096);
}

TEST_F(OptionsTest, AnEmptyVariableIsNotSet) {
  set_variable("GRADBUS_AGENT_OFFSET", "");
  set_variable("GRADBUS_AGENT_SOCKET", "");
  ASSERT_TRUE(parse({}).ok());
  EXPECT_EQ(offset_, 0);
  EXPECT_EQ(socket_, "/run/gradbus/agent.sock");
}

TEST_F(OptionsTest, WrongFlagsAreNamed) {
  expect_error(parse({"--offset=11"}), "F100", "flag --offset: 11 is outside -10 to 10");
  expect_error(parse({"--offset=-11"}), "F100", "flag --offset: -11 is outside -10 to 10");
  expect_error(parse({"--offset=two"}), "F100", "flag --offset: \"two\" is not an integer");
  expect_error(parse({"--offset=2x"}), "F100", "flag --offset: \"2x\" is not an integer");
  expect_error(parse({"--offset="}), "F100", "flag --offset: \"\" is not an integer");
  expect_error(parse({"--offset=9223372036854775808"}), "F100", "is not an integer of 64 bits");
  expect_error(parse({"--verbose=maybe"}), "F100",
               "flag --verbose: \"maybe\" is not true or false");
  expect_error(parse({"--offset=1\n2"}), "F100", "\"1\\u000A2\"");
  EXPECT_EQ(offset_, 0);
}

TEST_F(OptionsTest, WrongUseOfFlagsIsNamed) {
  expect_error(parse({"--socket"}), "F100", "--socket");
  expect_error(parse({"--offset", "1", "--offset", "2"}), "F100", "--offset");
}

TEST_F(OptionsTest, UnknownFlagsGetADidYouMean) {
  expect_error(parse({"--shm-byte-max=1"}), "F101",
               "no flag \"--shm-byte-max\"; did you mean --shm-bytes-max?");
  expect_error(parse({"--verison"}), "F101", "did you mean --version?");
  const Result<bool> far = parse({"--colour"});
  expect_error(far, "F101", "no flag \"--colour\"");
  EXPECT_THAT(far.status().message(), Not(HasSubstr("did you mean")));
  expect_error(parse({"-q"}), "F101", "no flag \"-q\"");
  expect_error(parse({"start"}), "F101", "unexpected argument \"start\"");
}

TEST_F(OptionsTest, WrongVariablesAreNamed) {
  set_variable("GRADBUS_AGENT_OFFSET", "many");
  expect_error(parse({}), "F100", "variable GRADBUS_AGENT_OFFSET: \"many\" is not an integer");
  set_variable("GRADBUS_AGENT_OFFSET", "99");
  expect_error(parse({}), "F100", "variable GRADBUS_AGENT_OFFSET: 99 is outside");
}

TEST_F(OptionsTest, WrongValuesInTheFileAreNamedWithTheirLine) {
  const std::string& file = write_file("[agent]\n\noffset = 11\n");
  expect_error(parse({"--config", file}), "F100", file + ":3, key offset: 11 is outside -10 to 10");
  write_file("[agent]\noffset = \"1\"\n");
  expect_error(parse({"--config", file}), "F100",
               file + ":2, key offset: the value must be of type INTEGER");
  write_file("[agent]\noffset = 1.0\n");
  expect_error(parse({"--config", file}), "F100", "of type INTEGER");
  write_file("[agent]\nsocket = 7\n");
  expect_error(parse({"--config", file}), "F100", "of type TEXT");
  write_file("[agent]\nverbose = 1\n");
  expect_error(parse({"--config", file}), "F100", "of type BOOL");
  write_file("[agent.socket]\npath = 1\n");
  expect_error(parse({"--config", file}), "F100", "of type TEXT");
}

TEST_F(OptionsTest, UnknownKeysAndTablesAreNamedWithTheirLine) {
  const std::string& file = write_file("[agent]\nsocekt = \"/x\"\n");
  expect_error(parse({"--config", file}), "F101",
               file + ":2: no key \"socekt\" in table [agent]; did you mean socket?");
  write_file("socket = \"/x\"\n");
  expect_error(parse({"--config", file}), "F101", ":1: key \"socket\" is outside a table");
  write_file("[agnet]\nsocket = \"/x\"\n");
  expect_error(parse({"--config", file}), "F101", ":1: no table \"agnet\"; did you mean agent?");
  write_file("agent = 1\n");
  expect_error(parse({"--config", file}), "F101", "key \"agent\" is outside a table");
}

TEST_F(OptionsTest, TablesOfOtherProgramsAreLeftAlone) {
  const std::string& file = write_file("[server]\nanything = 1\n[agent]\noffset = 4\n");
  ASSERT_TRUE(parse({"--config", file}).ok());
  EXPECT_EQ(offset_, 4);
}

TEST_F(OptionsTest, UnreadableFilesAreNamed) {
  expect_error(parse({"--config", "/nonexistent/agent.toml"}), "F102", "/nonexistent/agent.toml");
  expect_error(parse({"--config", ::testing::TempDir()}), "F102", ::testing::TempDir());
  const std::string& file = write_file("[agent]\noffset = = 1\n");
  expect_error(parse({"--config", file}), "F102", file + ":2: ");
  write_file("[agent]\noffset = 1\noffset = 2\n");
  expect_error(parse({"--config", file}), "F102", file + ":3: ");
}

TEST_F(OptionsTest, PrintConfigIsTomlThatGivesTheSameValues) {
  socket_ = "a \"quoted\" \\ path\n# with a \x01 line";
  ASSERT_TRUE(parse({"--offset=-7", "--verbose"}).ok());
  const std::string text = table_.print_config();
  EXPECT_THAT(text, HasSubstr("offset = -7  # --offset\n"));
  EXPECT_THAT(text, HasSubstr("shm_bytes_max = 65536  # default\n"));

  int64_t shm_bytes_max = 4096, offset = 0;
  std::string socket;
  bool verbose = false;
  OptionTable copy("agent", "");
  copy.add("shm-bytes-max", &shm_bytes_max, 4096, int64_t{1} << 40, "");
  copy.add("offset", &offset, -10, 10, "");
  copy.add("socket", &socket, "");
  copy.add("verbose", &verbose, "");
  const char* const argv[] = {"gradbus-agent", "--config", write_file(text).c_str()};
  const Result<bool> result = copy.parse(3, argv);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(shm_bytes_max, shm_bytes_max_);
  EXPECT_EQ(offset, offset_);
  EXPECT_EQ(socket, socket_);
  EXPECT_EQ(verbose, verbose_);
}

TEST_F(OptionsTest, PrintConfigFlagPrintsTheChosenValues) {
  EXPECT_EQ(printed({"--print-config", "--offset=3"}),
            "[agent]\nshm_bytes_max = 65536  # default\noffset = 3  # --offset\n"
            "socket = \"/run/gradbus/agent.sock\"  # default\nverbose = false  # default\n");
  expect_error(parse({"--print-config", "--offset=33"}), "F100", "outside");
}

TEST_F(OptionsTest, VersionNamesTheProgram) {
  EXPECT_EQ(printed({"--version"}), "gradbus-agent " GRADBUS_VERSION "\n");
}

TEST_F(OptionsTest, HelpShowsEveryOptionWithDefaultRangeAndSentence) {
  const std::string help = printed({"--help"});
  for (const char* part : {"One per node.", "--shm-bytes-max INTEGER=65536", "(-10 to 10)",
                           "Shared memory of all jobs", "--socket", "/run/gradbus/agent.sock",
                           "--verbose", "Say more", "--config", "--print-config", "--version"}) {
    EXPECT_THAT(help, HasSubstr(part));
  }
  EXPECT_EQ(printed({"-h"}), help);
}

TEST_F(OptionsTest, ASecondParseStartsFromTheFlagsOfItsOwn) {
  ASSERT_TRUE(parse({"--verbose"}).ok());
  verbose_ = false;
  ASSERT_TRUE(parse({}).ok());
  EXPECT_FALSE(verbose_);
}

}  // namespace
}  // namespace gradbus
