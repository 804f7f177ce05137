// What reaches the launcher's outputs: labels, whole lines, progress, slow and vanished readers.
#include "cli/terminal/screen.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include "cli/terminal/output_stream.h"
#include "common/fd.h"

namespace gradbus {
namespace {

std::string read_all(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(fd, buffer, sizeof(buffer))) > 0;) text.append(buffer, got);
  return text;
}

class Pipes : public ::testing::Test {
 protected:
  Pipes() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    out_read.reset(ends[0]);
    out_write.reset(ends[1]);
    EXPECT_EQ(pipe(ends), 0);
    err_read.reset(ends[0]);
    err_write.reset(ends[1]);
    signal(SIGPIPE, SIG_IGN);
  }

  Fd out_read, out_write, err_read, err_write;
};

TEST_F(Pipes, LinesHaveLabelsAndNoColourInAPipe) {
  Screen screen(out_write.get(), err_write.get(), {true});
  screen.line(Target::kOut, {"[0] ", 0}, "hello");
  screen.line(Target::kErr, {"[1] ", 1}, "oops");
  screen.line(Target::kOut, {}, "bare");
  screen.flush();
  EXPECT_EQ(read_all(out_read.get()), "[0] hello\nbare\n");
  EXPECT_EQ(read_all(err_read.get()), "[1] oops\n");
  EXPECT_FALSE(screen.shows_progress());
}

TEST_F(Pipes, StreamsOfTwoRanksNeverCutALine) {
  Screen screen(out_write.get(), err_write.get(), {true});
  LineStream zero(screen, Target::kOut, {"[0] ", 0}, false);
  LineStream one(screen, Target::kOut, {"[1] ", 1}, false);
  zero.push("ze");
  one.push("one\non");
  zero.push("ro\nrest");
  one.push("e again\n");
  zero.finish();
  screen.flush();
  EXPECT_EQ(read_all(out_read.get()), "[1] one\n[0] zero\n[1] one again\n[0] rest\n");
}

TEST_F(Pipes, AProgressBarInALogIsItsLastState) {
  Screen screen(out_write.get(), err_write.get(), {true});
  LineStream stream(screen, Target::kErr, {"[0] ", 0}, false);
  stream.push("\r10 %\r50 %");
  stream.push("\r100 %\nnext\n");
  screen.flush();
  EXPECT_EQ(read_all(err_read.get()), "[0] 100 %\n[0] next\n");
}

TEST_F(Pipes, StandardOutputKeepsEveryByte) {
  Screen screen(out_write.get(), err_write.get(), {true});
  LineStream stream(screen, Target::kOut, {}, false);
  stream.push("a\rb\r\n");
  screen.flush();
  EXPECT_EQ(read_all(out_read.get()), "a\rb\r\n");
}

TEST_F(Pipes, ASlowReaderIsNotWaitedForAndLosesNothing) {
  Screen screen(out_write.get(), err_write.get(), {true});
  const std::string line(999, 'x');
  size_t lines = 0;
  for (; !screen.is_full(); ++lines) screen.line(Target::kOut, {}, line);
  screen.flush();  // fills the pipe and returns
  EXPECT_FALSE(screen.is_empty());
  size_t received = 0;
  for (int turn = 0; turn < 1000 && !screen.is_empty(); ++turn) {
    received += read_all(out_read.get()).size();
    screen.flush();
  }
  received += read_all(out_read.get()).size();
  EXPECT_EQ(received, lines * 1000);
}

TEST_F(Pipes, AVanishedReaderIsNoticed) {
  Screen screen(out_write.get(), err_write.get(), {true});
  out_read.reset();
  screen.line(Target::kOut, {}, "x");
  screen.flush();
  EXPECT_TRUE(screen.out().broken());
  EXPECT_TRUE(screen.is_empty());
}

class Terminal : public ::testing::Test {
 protected:
  Terminal() {
    setenv("TERM", "xterm", 1);
    int master = -1;
    int slave = -1;
    const winsize size{24, 20, 0, 0};
    EXPECT_EQ(openpty(&master, &slave, nullptr, nullptr, &size), 0);
    termios mode{};
    tcgetattr(slave, &mode);
    cfmakeraw(&mode);
    tcsetattr(slave, TCSANOW, &mode);
    reader.reset(master);
    tty.reset(slave);
    other.reset(dup(slave));
  }

  Fd reader, tty, other;
};

TEST_F(Terminal, ColourUnlessTurnedOff) {
  Screen coloured(tty.get(), other.get(), {true});
  coloured.line(Target::kOut, {"[0] ", 0}, "x");
  coloured.flush();
  EXPECT_EQ(read_all(reader.get()), "\x1b[36m[0] \x1b[0mx\n");
  Screen plain(tty.get(), other.get(), {false});
  plain.line(Target::kOut, {"[0] ", 0}, "x");
  plain.flush();
  EXPECT_EQ(read_all(reader.get()), "[0] x\n");
}

TEST_F(Terminal, OtherLinesGoAboveTheProgressLine) {
  Screen screen(tty.get(), other.get(), {false});
  ASSERT_TRUE(screen.shows_progress());
  LineStream live(screen, Target::kErr, {"[0] ", 0}, true);
  LineStream stdout_of_one(screen, Target::kOut, {"[1] ", 1}, false);
  live.push("\r50 %");
  screen.flush();
  EXPECT_EQ(read_all(reader.get()), "\r\x1b[K[0] 50 %\x1b[0m");
  stdout_of_one.push("line\n");
  screen.flush();
  EXPECT_EQ(read_all(reader.get()), "\r\x1b[K[1] line\n[0] 50 %\x1b[0m");
  live.push("\r100 %\n");
  screen.flush();
  EXPECT_EQ(read_all(reader.get()), "\r\x1b[K[0] 100 %\n");
  stdout_of_one.push("end\n");
  screen.flush();
  EXPECT_EQ(read_all(reader.get()), "[1] end\n");
}

TEST_F(Terminal, AProgressLineNeverWraps) {
  Screen screen(tty.get(), other.get(), {false});
  screen.progress({"[0] ", 0}, std::string(100, '#'));
  screen.flush();
  EXPECT_EQ(read_all(reader.get()), "\r\x1b[K[0] " + std::string(15, '#') + "\x1b[0m");
}

TEST(LongWait, IsTheLineOfAnAgentThatSaysWhoIsLate) {
  const std::string job =
      "job \"a\" waits: rank 1 (agent-0) has not started \"x\" round 2; waiting: "
      "rank 0 for ";
  const std::string head = "2026-01-02 03:04:05.678 W gradbus-agent: ";
  EXPECT_EQ(long_wait(head + job + "10.0 s"), job + "10.0 s");
  EXPECT_EQ(long_wait(head + job + "30.0 s; ended: rank 7"), job + "30.0 s; ended: rank 7");
  EXPECT_EQ(long_wait(head + job + "5.0 s"), "");
  EXPECT_EQ(long_wait(head + job), "");
  EXPECT_EQ(long_wait(head + "job \"a\" started: 1 of 2 ranks here for 12 s"), "");
  EXPECT_EQ(long_wait(" waits: "), "");
  EXPECT_EQ(long_wait(""), "");
}

}  // namespace
}  // namespace gradbus
