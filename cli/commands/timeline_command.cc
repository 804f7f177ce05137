// `gradbus timeline FILE`: says where the time of a traced job went, and draws it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

#include "cli/command.h"
#include "cli/options/number_range.h"
#include "cli/timeline/trace_summary.h"
#include "common/errors.h"

namespace gradbus {
namespace {

struct TimelineOptions {
  std::string file;
  std::string svg;
  size_t steps = 3;
  size_t ranks = 8;
  size_t tensors = 10;
  bool json = false;
};

Result<std::string> read_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file.is_open() && file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file.is_open() || file.bad())
    return error("F115", path + " cannot be read", "check the path");
  return text.str();
}

int timeline(const TimelineOptions& options) {
  const Result<std::string> text = read_trace(options.file);
  if (!text.ok()) return fail(text.status(), kExitUsage);
  const Result<Trace> trace = parse_trace(text.value(), options.file);
  if (!trace.ok()) return fail(trace.status(), kExitUsage);
  const TraceSummary summary = summarize(trace.value());
  const std::string shown = options.json ? summary_json(trace.value(), summary)
                                         : summary_text(trace.value(), summary, options.tensors);
  std::fputs(shown.c_str(), stdout);
  if (options.svg.empty()) return kExitOk;
  std::ofstream picture(options.svg);
  picture << summary_svg(trace.value(), summary, options.steps, options.ranks);
  picture.close();
  if (picture.fail())
    return fail(error("F114", "the picture " + options.svg + " cannot be written"), kExitFailed);
  return kExitOk;
}

}  // namespace

Action declare_timeline(CLI::App& app) {
  auto options = std::make_shared<TimelineOptions>();
  app.add_option("file", options->file, "a trace: gradbus run --timeline FILE, gradbus trace JOB")
      ->required();
  app.add_option("--svg", options->svg, "draws compute against communication into this file");
  app.add_option("--steps", options->steps, "steps in the picture; default 3")
      ->check(whole_range(1, 1000));
  app.add_option("--ranks", options->ranks, "ranks in the picture; default 8")
      ->check(whole_range(1, 256));
  app.add_option("--tensors", options->tensors, "tensors in the table; default 10")
      ->check(whole_range(0, 1'000'000));
  app.add_flag("--json", options->json, "prints one JSON object; times are microseconds");
  app.footer(
      "Exposed communication is the time in which a rank only waits for others. Hidden "
      "communication runs beside the rank's computation.");
  return [options] { return timeline(*options); };
}

}  // namespace gradbus
