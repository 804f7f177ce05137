// The script for another host, run by a real shell here.
#include "cli/launch/remote_command.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

namespace gradbus {
namespace {

// What `sh -c script` prints on stdout while its input stays open; its exit status in `*status`.
std::string run_in_shell(const std::string& script, int* status) {
  int input[2];
  int output[2];
  EXPECT_EQ(pipe(input), 0);
  EXPECT_EQ(pipe(output), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(input[0], STDIN_FILENO);
    dup2(output[1], STDOUT_FILENO);
    for (const int fd : {input[0], input[1], output[0], output[1]}) close(fd);
    execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
    _exit(127);
  }
  close(input[0]);
  close(output[1]);
  std::string text;
  char buffer[512];
  for (ssize_t got = 0; (got = read(output[0], buffer, sizeof(buffer))) > 0;)
    text.append(buffer, got);
  close(output[0]);
  close(input[1]);
  int raw = 0;
  waitpid(pid, &raw, 0);
  *status = WEXITSTATUS(raw);
  return text;
}

TEST(ShellQuote, AnyBytesComeThrough) {
  for (const std::string word : {"", "plain", "two words", "it's", "$HOME `id` \\ \" * ~ ;&|<>",
                                 "-n", "line\nend", "''", "\xc3\xa4"}) {
    int status = -1;
    EXPECT_EQ(run_in_shell("printf '[%s]' " + shell_quote(word), &status), "[" + word + "]");
    EXPECT_EQ(status, 0);
  }
}

TEST(RemoteScript, DirectoryVariablesWordsAndExitStatus) {
  char path[] = "/tmp/gradbus remote's XXXXXX";
  ASSERT_NE(mkdtemp(path), nullptr);
  const std::string script = remote_script(
      path, {{"GRADBUS_RANK", "2"}, {"ODD", "a'b $x"}},
      {"sh", "-c", "printf '%s|%s|%s|%s' \"$PWD\" $GRADBUS_RANK \"$ODD\" \"$1\"; exit 7", "sh",
       "last word"},
      1);
  int status = -1;
  EXPECT_EQ(run_in_shell(script, &status), std::string(path) + "|2|a'b $x|last word");
  EXPECT_EQ(status, 7);
  std::filesystem::remove(path);
}

TEST(RemoteScript, NoSuchDirectory) {
  int status = -1;
  EXPECT_EQ(run_in_shell(remote_script("/nowhere/at/all", {}, {"echo", "x"}, 1), &status), "");
  EXPECT_EQ(status, 126);
}

TEST(RemoteScript, ThreadsAreSharedOutUnlessSet) {
  int status = -1;
  const std::vector<std::string> show = {"sh", "-c", "printf %s $OMP_NUM_THREADS"};
  unsetenv("OMP_NUM_THREADS");
  // More ranks than any machine has cores: at least one thread each.
  EXPECT_EQ(run_in_shell(remote_script("/", {}, show, 1'000'000), &status), "1");
  EXPECT_EQ(run_in_shell(remote_script("/", {{"OMP_NUM_THREADS", "5"}}, show, 1), &status), "5");
}

}  // namespace
}  // namespace gradbus
