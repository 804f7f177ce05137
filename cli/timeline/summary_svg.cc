// The summary of a trace as a picture: two bars for each rank, compute above communication.
#include <algorithm>
#include <cstdio>

#include "cli/timeline/trace_summary.h"
#include "common/units.h"

namespace gradbus {
namespace {

constexpr double kLeft = 150;  // pixels for names
constexpr double kWidth = 900;
constexpr double kBar = 16;
constexpr double kRow = 52;
constexpr double kTop = 56;
constexpr const char* kCompute = "#4c78a8";
constexpr const char* kHidden = "#72b7b2";
constexpr const char* kExposed = "#e45756";

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", value);
  return text;
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      default: safe += c;
    }
  }
  return safe;
}

std::string label(double x, double y, const std::string& text) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\">" + escaped(text) + "</text>\n";
}

struct Window {
  double begin = 0;
  double end = 1;
  double x(double us) const {
    return kLeft + kWidth * (std::clamp(us, begin, end) - begin) / std::max(end - begin, 1e-9);
  }
};

std::string bars(const Window& window, const Intervals& intervals, double y, const char* colour) {
  std::string text;
  for (const auto& [begin, end] : intervals) {
    if (end <= window.begin || begin >= window.end) continue;
    text += "<rect x=\"" + number(window.x(begin)) + "\" y=\"" + number(y) + "\" width=\"" +
            number(std::max(window.x(end) - window.x(begin), 0.3)) + "\" height=\"" + number(kBar) +
            "\" fill=\"" + colour + "\"/>\n";
  }
  return text;
}

// What is left of `all` without `taken`. Both sorted, without overlap.
Intervals without(const Intervals& all, const Intervals& taken) {
  Intervals left;
  for (auto [begin, end] : all) {
    for (const auto& [from, to] : taken) {
      if (to <= begin || from >= end) continue;
      if (from > begin) left.emplace_back(begin, from);
      begin = to;
    }
    if (begin < end) left.emplace_back(begin, end);
  }
  return left;
}

// The last `steps` steps of the first rank that has any; else the last tenth of the trace.
Window window_of(const Trace& trace, const TraceSummary& summary, size_t steps) {
  std::vector<double> ends;
  for (const TraceEvent& event : trace.events)
    if (!summary.ranks.empty() && event.pid == summary.ranks.front().pid && event.is_phase &&
        event.name == "step")
      ends.push_back(event.end_us);
  std::sort(ends.begin(), ends.end());
  if (ends.size() > 1) {
    const size_t first = ends.size() > steps ? ends.size() - 1 - steps : 0;
    return {ends[first], ends.back()};
  }
  double begin = 0;
  double end = 0;
  for (const TraceEvent& event : trace.events) {
    begin = std::min(begin, event.begin_us);
    end = std::max(end, event.end_us);
  }
  return {end - (end - begin) / 10, end};
}

}  // namespace

std::string summary_svg(const Trace& trace, const TraceSummary& summary, size_t steps,
                        size_t ranks_max) {
  const Window window = window_of(trace, summary, steps);
  const size_t ranks = std::min(ranks_max, summary.ranks.size());
  const double height = kTop + kRow * static_cast<double>(ranks) + 24;
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" +
                    number(kLeft + kWidth + 20) + "\" height=\"" + number(height) +
                    "\" font-family=\"sans-serif\" font-size=\"12\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  svg += label(10, 20, "job " + trace.job + ": compute against communication");
  double x = kLeft;
  for (const auto& [colour, text] :
       {std::pair(kCompute, "compute"), std::pair(kHidden, "communication, hidden"),
        std::pair(kExposed, "communication, exposed (the rank waits)")}) {
    svg += "<rect x=\"" + number(x) + "\" y=\"30\" width=\"12\" height=\"12\" fill=\"" + colour +
           "\"/>\n" + label(x + 16, 40, text);
    x += 190;
  }
  for (size_t i = 0; i < ranks; ++i) {
    const RankSummary& rank = summary.ranks[i];
    const double y = kTop + kRow * static_cast<double>(i);
    svg += label(10, y + kBar + 4, rank.name);
    svg += bars(window, without({{window.begin, window.end}}, rank.waits), y, kCompute);
    svg += bars(window, rank.flights, y + kBar + 2, kHidden);
    svg += bars(window, rank.waits, y + kBar + 2, kExposed);
  }
  const auto length = static_cast<uint64_t>((window.end - window.begin) * 1000);
  return svg + label(kLeft, height - 8, "0") +
         label(kLeft + kWidth - 60, height - 8, nanoseconds_text(length)) + "</svg>\n";
}

}  // namespace gradbus
