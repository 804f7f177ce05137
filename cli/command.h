// A subcommand of `gradbus`: one row of the table in main.cc, one file each.
//
// `declare_*` adds the options to `app` and returns what runs after the parse; that returns the
// exit code. Everything here runs on the main thread, once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/status.h"

namespace CLI {
class App;
}

namespace gradbus {

// Shared by all commands; `run` adds 126/127 (the command) and 128+signal, `status` has its own.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

using Action = std::function<int()>;

Action declare_run(CLI::App& app);
Action declare_bench(CLI::App& app);
Action declare_status(CLI::App& app);
Action declare_top(CLI::App& app);
Action declare_jobs(CLI::App& app);
Action declare_stop(CLI::App& app);
Action declare_mode(CLI::App& app);
Action declare_trace(CLI::App& app);
Action declare_timeline(CLI::App& app);
Action declare_plan(CLI::App& app);
Action declare_doctor(CLI::App& app);
Action declare_explain(CLI::App& app);
Action declare_env(CLI::App& app);

// Prints the one-line error on stderr and gives back `exit_code`.
int fail(const Status& status, int exit_code);

// What follows `run`'s options on this command line: everything after "--", else the tail that
// starts with the first word that is no option. Set by main() before the action runs.
const std::vector<std::string>& trailing_words();

}  // namespace gradbus
