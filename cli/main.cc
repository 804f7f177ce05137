// The `gradbus` command: one table of subcommands, the parse, and the words for a wrong one.
//
// Single-threaded until an action starts (gRPC makes threads in status and stop). The standard
// descriptors are open before anything else, so no pipe can take the place of one.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/terminal/standard_output.h"
#include "common/edit_distance.h"
#include "common/environment/unknown_variables.h"
#include "common/errors.h"
#include "common/text/help_text.h"

namespace gradbus {
namespace {

struct Command {
  const char* name;
  const char* summary;
  Action (*declare)(CLI::App&);
};

constexpr Command kCommands[] = {
    {"run", "start the ranks of a job and wait for them", declare_run},
    {"bench", "time collectives between real processes, and the machine", declare_bench},
    {"status", "show agents, jobs and ranks, and their problems", declare_status},
    {"top", "show ranks and nodes live, on one screen", declare_top},
    {"jobs", "list running and ended jobs, a line each", declare_jobs},
    {"events", "list what has happened: nodes, jobs, modes, stalls", declare_events},
    {"page", "print the address of the coordinator's web page", declare_page},
    {"stop", "end a job; its ranks get an error that says why", declare_stop},
    {"mode", "change the mode of a group of tensors in a running job", declare_mode},
    {"drain", "give a node no new jobs; those that run go on", declare_drain},
    {"trace", "record what the ranks and agents of a running job do", declare_trace},
    {"timeline", "sum up and draw a recorded trace", declare_timeline},
    {"plan", "predict a training step with each schedule on a modelled cluster", declare_plan},
    {"doctor", "show what this machine has, what is missing, and what to do", declare_doctor},
    {"explain", "explain an error, or list all errors", declare_explain},
    {"env", "show which launcher's variables decide rank and size here", declare_env},
};

constexpr size_t kCommandColumns = 14;

std::vector<std::string> trailing;

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  return names;
}

bool is_command(const std::string& word) {
  for (const Command& command : kCommands)
    if (word == command.name) return true;
  return false;
}

Status unknown_command(const std::string& word) {
  const std::string nearest = closest_name(word, command_names());
  return error("F101", "gradbus has no command \"" + word + "\"",
               nearest.empty() ? "gradbus --help" : "did you mean: gradbus " + nearest);
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

Status unknown_option(const CLI::App& app, const std::string& word) {
  const std::string nearest = closest_name(word.substr(0, word.find('=')), option_names(app));
  const std::string name = app.get_parent() == nullptr ? "gradbus" : "gradbus " + app.get_name();
  return error("F101", name + " has no option \"" + word + "\"",
               nearest.empty() ? name + " --help" : "did you mean: " + nearest);
}

// Of the command itself, as "--help" or "-h".
bool is_option(const CLI::App& app, const std::string& word) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames())
      if (word == "--" + name) return true;
    for (const std::string& name : option->get_snames())
      if (word == "-" + name) return true;
  }
  return false;
}

// CLI11 knows one-letter short options only. mpirun's spelling is -np, and horovodrun has some
// more.
std::string long_form(const std::string& word) {
  if (word == "-np") return "--np";
  if (word == "-hostfile") return "--hostfile";
  if (word == "-cb") return "--check-build";
  if (word == "-prefix-timestamp") return "--prefix-output-with-timestamp";
  return word.starts_with("-np=") ? "--np" + word.substr(3) : word;
}

// The words CLI11 shall see, last first, as its parse() wants them. Those behind "--" never reach
// it: they are the user's program and its options.
std::vector<std::string> words_to_parse(int argc, char** argv) {
  std::vector<std::string> words;
  int index = 1;
  for (; index < argc && std::string_view(argv[index]) != "--"; ++index)
    words.insert(words.begin(), long_form(argv[index]));
  for (++index; index < argc; ++index) trailing.emplace_back(argv[index]);
  return words;
}

// Words CLI11 left over begin the program's, so a "--" behind them is the program's as well. As the
// user spelled them.
void take_leftovers(int argc, char** argv, size_t count, bool had_separator) {
  if (count == 0) return;
  const size_t behind = had_separator ? trailing.size() + 1 : 0;
  trailing.assign(argv + argc - behind - count, argv + argc);
}

int parse_and_act(CLI::App& app, const std::vector<Action>& actions, int argc, char** argv) {
  std::vector<std::string> words = words_to_parse(argc, argv);
  const bool had_separator = static_cast<int>(words.size()) + 1 < argc;
  try {
    app.parse(words);
  } catch (const CLI::Success& asked) {
    std::ostringstream text;  // std::cout would lose an error of writing
    const int code = app.exit(asked, text, text);
    std::fputs(wrap_lines(text.str()).c_str(), stdout);
    return code;
  } catch (const CLI::ParseError& problem) {
    const auto begun = app.get_subcommands();
    const std::string command = begun.empty() ? "" : " " + begun.front()->get_name();
    return fail(error("F100", problem.what(), "gradbus" + command + " --help"), kExitUsage);
  }
  const CLI::App* chosen = app.get_subcommands().front();
  const std::vector<std::string> left = chosen->remaining();
  if (!left.empty() && (left.front().starts_with("-") || !chosen->get_prefix_command()))
    return fail(unknown_option(*chosen, left.front()), kExitUsage);
  take_leftovers(argc, argv, left.size(), had_separator);
  for (size_t i = 0; i < actions.size(); ++i)
    if (chosen->get_name() == kCommands[i].name) return actions[i]();
  return kExitUsage;
}

void open_standard_descriptors() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) close(fd);
}

int run_main(int argc, char** argv) {
  open_standard_descriptors();
  for (const std::string& line : take_unknown_variables())
    std::fprintf(stderr, "warning: %s\n", line.c_str());
  CLI::App app("Gradbus: a gradient bus for distributed deep learning.", "gradbus");
  app.set_version_flag("--version", "gradbus " GRADBUS_VERSION);
  app.require_subcommand(1);
  app.footer("gradbus COMMAND --help shows the options of a command.");
  std::vector<Action> actions;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    sub->allow_extras();
    actions.push_back(command.declare(*sub));
  }
  app.formatter(std::make_shared<CLI::Formatter>());  // of the list of commands alone
  app.get_formatter()->column_width(kCommandColumns);
  const std::string first = argc < 2 ? "help" : argv[1];
  if (first == "help") {
    std::fputs(wrap_lines(app.help()).c_str(), stdout);
    return argc < 2 ? kExitUsage : kExitOk;
  }
  if (first.starts_with("-") && !is_option(app, first))
    return fail(unknown_option(app, first), kExitUsage);
  if (!first.starts_with("-") && !is_command(first))
    return fail(unknown_command(first), kExitUsage);
  return parse_and_act(app, actions, argc, argv);
}

}  // namespace

int fail(const Status& status, int exit_code) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return exit_code;
}

const std::vector<std::string>& trailing_words() { return trailing; }

}  // namespace gradbus

int main(int argc, char** argv) { return gradbus::finish_output(gradbus::run_main(argc, argv)); }
