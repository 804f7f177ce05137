// `gradbus doctor`: what this machine has, what is missing, what to do. Exit 1 only when something
// is missing that Gradbus cannot work without.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/doctor/doctor_findings.h"
#include "cli/terminal/terminal.h"
#include "common/text/help_text.h"

namespace gradbus {
namespace {

constexpr Check kChecks[] = {
    check_kernel,     check_cores,         check_memory,   check_shared_memory, check_memfd,
    check_open_files, check_locked_memory, check_network,  check_rdma,          check_gpu,
    check_cuda,       check_libraries,     check_programs, check_agent,         check_coordinator,
};

constexpr size_t kNameColumns = 16;
constexpr size_t kValueColumn = 8 + 1 + kNameColumns + 1;  // behind the level and the name

const char* level_name(Level level) {
  switch (level) {
    case Level::kOk: return "ok";
    case Level::kWarn: return "warn";
    case Level::kMissing: return "missing";
  }
  return "?";
}

std::string paint(const Finding& finding) {
  char word[16];
  std::snprintf(word, sizeof(word), "%-8s", level_name(finding.level));
  if (!shows_colour(STDOUT_FILENO)) return word;
  const char* colour = finding.level == Level::kOk     ? "32"
                       : finding.needed                ? "31"
                       : finding.level == Level::kWarn ? "33"
                                                       : "90";
  return std::string("\x1b[") + colour + "m" + word + "\x1b[0m";
}

void print_text(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    std::string head = finding.name + std::string(kNameColumns, ' ');
    head.resize(std::max(finding.name.size(), kNameColumns));
    const std::string blanks(kValueColumn, ' ');
    std::string lines = wrap_lines(blanks + finding.value + "\n");
    lines.replace(0, kValueColumn, paint(finding) + " " + head + " ");
    if (!finding.next.empty()) lines += wrap_lines(blanks + "next: " + finding.next + "\n");
    std::fputs(lines.c_str(), stdout);
  }
}

void print_json(const std::vector<Finding>& findings, bool usable) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings)
    list.push_back({{"level", level_name(finding.level)},
                    {"name", finding.name},
                    {"value", finding.value},
                    {"next", finding.next},
                    {"needed", finding.needed}});
  const nlohmann::ordered_json object = {{"usable", usable}, {"findings", list}};
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  std::printf("%s\n", object.dump(-1, ' ', false, replace).c_str());
}

int doctor(bool as_json) {
  std::vector<Finding> findings;
  for (const Check check : kChecks)
    for (Finding& finding : check()) findings.push_back(std::move(finding));
  const bool usable = std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.needed && finding.level == Level::kMissing;
  });
  if (as_json)
    print_json(findings, usable);
  else
    print_text(findings);
  return usable ? kExitOk : kExitFailed;
}

}  // namespace

Action declare_doctor(CLI::App& app) {
  auto as_json = std::make_shared<bool>(false);
  app.add_flag("--json", *as_json, "one JSON object");
  app.footer("Exit code: 0, or 1 if something is missing that Gradbus needs.");
  return [as_json] { return doctor(*as_json); };
}

}  // namespace gradbus
