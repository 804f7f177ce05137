#include "cli/status/events_text.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "cli/terminal/text_table.h"

namespace gradbus {
namespace {

constexpr int kAboutColumns = 16;   // of a node or a job
constexpr size_t kColumnsMin = 60;  // a narrower terminal breaks lines itself

constexpr int64_t kDay = 24 * 3600;

// The time of the day, or for an older event its date.
std::string clock_text(int64_t seconds, bool old) {
  const auto time = static_cast<time_t>(seconds);
  tm parts{};
  localtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof(text), old ? "%m-%d" : "%H:%M:%S", &parts);
  return text;
}

std::string line(const std::string& time, const std::string& kind, const std::string& about) {
  char text[128];
  std::snprintf(text, sizeof(text), "%-8s  %-12s  %-*s  ", time.c_str(), kind.c_str(),
                kAboutColumns, cut(about, kAboutColumns).c_str());
  return text;
}

// Lines of at most `columns`; those after the first begin with blanks.
std::string folded(const std::string& text, size_t columns) {
  constexpr size_t kIndent = 4;
  std::string lines;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t room = lines.empty() ? columns : columns - kIndent;
    size_t end = std::min(text.size(), begin + room);
    const size_t blank = end < text.size() ? text.rfind(' ', end) : std::string::npos;
    if (blank != std::string::npos && blank > begin) end = blank;
    lines += (lines.empty() ? "" : std::string(kIndent, ' ')) + text.substr(begin, end - begin);
    lines += "\n";
    begin = end + (end < text.size() && text[end] == ' ' ? 1 : 0);
  }
  return lines;
}

}  // namespace

std::string events_head() { return line("TIME", "EVENT", "NODE OR JOB") + "WHAT\n"; }

std::string event_line(const v1::Event& event, const EventsView& view) {
  const auto age_s = static_cast<int64_t>(event.age_ms() / 1000);
  const std::string& about = event.job().empty() ? event.node() : event.job();
  std::string text = line(clock_text(view.now_s - age_s, age_s >= kDay), event.kind(),
                          about.empty() ? "-" : about);
  if (event.times() > 1) text += "(" + std::to_string(event.times()) + " times) ";
  text += event.text();
  return view.columns < kColumnsMin ? text + "\n" : folded(text, view.columns);
}

}  // namespace gradbus
