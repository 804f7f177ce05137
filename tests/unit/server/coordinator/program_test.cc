// The program gradbus-server itself: ready line, signals, errors, its parent's death.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/fd.h"

namespace gradbus {
namespace {

using testing::HasSubstr;

constexpr int kDeadlineMs = 30'000;

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, 0), 0);
    reader.reset(ends[0]);
    writer.reset(ends[1]);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  }
  Fd reader, writer;
};

// Up to the end of file or the first newline; "" when nothing comes in time.
std::string read_line(int fd) {
  std::string text;
  char c = 0;
  for (;;) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kDeadlineMs) != 1 || read(fd, &c, 1) != 1) return text;
    text.push_back(c);
    if (c == '\n') return text;
  }
}

// Runs in the child.
[[noreturn]] void exec_server(const std::vector<std::string>& arguments, const Fd& error_writer) {
  dup2(error_writer.get(), STDERR_FILENO);
  std::vector<char*> argv = {const_cast<char*>("gradbus-server")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(GRADBUS_SERVER_PROGRAM, argv.data());
  _exit(127);
}

struct Server {
  explicit Server(std::vector<std::string> arguments) {
    Pipe ready, errors;
    arguments.push_back("--ready-fd=" + std::to_string(ready.writer.get()));
    pid = fork();
    if (pid == 0) exec_server(arguments, errors.writer);
    ready.writer.reset();
    errors.writer.reset();
    ready_line = read_line(ready.reader.get());
    error_reader = std::move(errors.reader);
  }
  ~Server() {
    if (pid > 0) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
  }

  // Waits for the end: the exit code, or minus the signal.
  int wait() {
    int status = 0;
    const Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
    if (poll(&ended, 1, kDeadlineMs) != 1) return -1000;
    waitpid(pid, &status, 0);
    pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::string address() const { return nlohmann::json::parse(ready_line).at("address"); }

  pid_t pid = -1;
  std::string ready_line;
  Fd error_reader;
};

TEST(Program, SaysWhereItListensAndStopsOnSignals) {
  for (const int signal_number : {SIGTERM, SIGINT}) {
    Server server({"--role=coordinator", "--listen=127.0.0.1:0", "--insecure-i-understand"});
    const auto line = nlohmann::json::parse(server.ready_line);
    EXPECT_EQ(line.at("pid"), server.pid);
    EXPECT_THAT(server.address(), testing::MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
    kill(server.pid, signal_number);
    EXPECT_EQ(server.wait(), 0);
  }
}

TEST(Program, BadOptionsAreOneLineAndExitOne) {
  Server first({"--listen=127.0.0.1:0", "--insecure-i-understand"});
  struct Row {
    std::vector<std::string> arguments;
    std::string expected;
  };
  const Row rows[] = {{{"--listen=" + first.address(), "--insecure-i-understand"},
                       "GB-D603 CANNOT_LISTEN: 127.0.0.1:"},
                      {{"--listen=0.0.0.0:0"}, "--insecure-i-understand"},
                      {{"--listen=nonsense"}, "GB-F100 BAD_OPTION: --listen \"nonsense\""},
                      {{"--role=leader"}, "GB-F100 BAD_OPTION: --role \"leader\""},
                      {{"--lease-ms=600", "--heartbeat-ms=500"}, "GB-F100 BAD_OPTION: --lease-ms"},
                      {{"--chunk-kib=2000"}, "GB-F100"},
                      {{"--log-level=loud"}, "GB-F100"}};
  for (const Row& row : rows) {
    Server server(row.arguments);
    EXPECT_EQ(server.ready_line, "");
    EXPECT_EQ(server.wait(), 1);
    EXPECT_THAT(read_line(server.error_reader.get()), HasSubstr(row.expected));
    EXPECT_EQ(read_line(server.error_reader.get()), "");
  }
}

// A parent that dies takes the server with it; the test adopts the orphan to see it end.
TEST(Program, EndsWithItsParentWhenAsked) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  Pipe ready, errors;
  const pid_t parent = fork();
  if (parent == 0) {
    if (fork() == 0) {
      exec_server({"--listen=127.0.0.1:0", "--insecure-i-understand", "--exit-with-parent",
                   "--ready-fd=" + std::to_string(ready.writer.get())},
                  errors.writer);
    }
    for (;;) pause();
  }
  ready.writer.reset();
  const auto line = nlohmann::json::parse(read_line(ready.reader.get()));
  const pid_t server = line.at("pid");
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, server, 0)));
  ASSERT_TRUE(process.valid());
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&ended, 1, kDeadlineMs), 1);
  int status = 0;
  EXPECT_EQ(waitpid(server, &status, 0), server);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace gradbus
