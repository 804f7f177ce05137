// A subcommand of `gradbus`: one row of the table in main.cc, one file each.
//
// `declare_*` adds the options to `app` and returns what runs after the parse; that returns the
// exit code. Everything here runs on the main thread, once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/exit_codes.h"
#include "common/status.h"

namespace CLI {
class App;
}

namespace gradbus {

using Action = std::function<int()>;

Action declare_run(CLI::App& app);
Action declare_bench(CLI::App& app);
Action declare_status(CLI::App& app);
Action declare_top(CLI::App& app);
Action declare_jobs(CLI::App& app);
Action declare_events(CLI::App& app);
Action declare_page(CLI::App& app);
Action declare_stop(CLI::App& app);
Action declare_drain(CLI::App& app);
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
