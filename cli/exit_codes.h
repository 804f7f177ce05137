// What the exit codes of the `gradbus` command mean: one table for `gradbus explain --exit-codes`
// and docs/reference/exit-codes.md. A meaning is never changed, only added.
#pragma once

#include <string_view>

namespace gradbus {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoCoordinator = 2;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitSignal = 128;  // plus the signal's number

struct ExitCodeInfo {
  std::string_view code;
  std::string_view commands;
  std::string_view meaning;  // a sentence
};

inline constexpr ExitCodeInfo kExitCodes[] = {
    {"0", "all", "The command did what it was asked to do."},
    {"0", "status", "The cluster is healthy, or the job of --job has not failed."},
    {"0", "doctor", "Everything is there that Gradbus needs."},
    {"1", "all", "An error, which is one line on stderr."},
    {"1", "status", "The cluster is not healthy, or the job of --job has failed."},
    {"1", "doctor", "Something is missing that Gradbus needs."},
    {"2", "all", "The command line has a mistake, which is one line on stderr."},
    {"2", "status, top, jobs, events, page", "No coordinator answers."},
    {"126", "run", "The program may not be executed."},
    {"127", "run", "The program does not exist."},
    {"128 + signal", "run", "A signal has ended a rank or the command: 130 after Ctrl-C."},
    {"141", "all", "The reader of its output has gone, as with | head -1."},
    {"others", "run", "The first rank that failed has ended with this code."},
};

}  // namespace gradbus
