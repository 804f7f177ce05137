#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/status/status_view.h"
#include "cli/status/top_view.h"
#include "cli/terminal/text_table.h"
#include "common/units.h"

namespace gradbus {
namespace {

constexpr size_t kHeadRows = 2;  // summary and problem
constexpr size_t kFootRows = 1;  // keys
constexpr size_t kNameMin = 10;  // columns of a name when others need theirs

std::string text_of(const char* format, double number) {
  char text[32];
  std::snprintf(text, sizeof(text), format, number);
  return text;
}

std::string rate_number(double per_second) {
  return text_of(per_second < 100 ? "%.1f" : "%.0f", per_second);
}

struct Row {
  const v1::JobStatus* job;
  const v1::RankStatus* rank;
};

bool works(const Row& row) { return row.rank->state() == "joined"; }

// Lost ranks first in every order but that of numbers: they need attention.
bool before(const Row& one, const Row& other, TopOrder order) {
  if (order != TopOrder::kRank && works(one) != works(other)) return !works(one);
  switch (order) {
    case TopOrder::kWaits: return one.rank->waiting() < other.rank->waiting();
    case TopOrder::kBytes: return one.rank->bytes_per_s() > other.rank->bytes_per_s();
    case TopOrder::kOperations:
      return one.rank->operations_per_s() > other.rank->operations_per_s();
    case TopOrder::kRank: return false;  // as they come: by job and rank
  }
  return false;
}

std::vector<Row> rows_of(const v1::StatusReply& reply, TopOrder order) {
  std::vector<Row> rows;
  for (const v1::JobStatus& job : reply.jobs()) {
    if (!job.outcome().empty()) continue;
    for (const v1::RankStatus& rank : job.ranks()) rows.push_back({&job, &rank});
  }
  std::ranges::stable_sort(
      rows, [order](const Row& one, const Row& other) { return before(one, other, order); });
  return rows;
}

TextTable ranks_table(const v1::StatusReply& reply, const TopView& view) {
  TextTable table({{"JOB", kNameMin, false, true},
                   {"RANK", 4, true},
                   {"NODE", kNameMin, false, true},
                   {"STATE", 6},
                   {"STEP", 8, true},
                   {"OPS/S", 6, true},
                   {"BYTES/S", 7, true},
                   {"WAITS", 5, true}});
  for (const Row& row : rows_of(reply, view.order)) {
    const v1::RankStatus& rank = *row.rank;
    table.add({row.job->job(), std::to_string(rank.rank()), rank.agent(),
               rank.slow() ? "slow" : rank.state(), std::to_string(rank.counters().step()),
               works(row) ? rate_number(rank.operations_per_s()) : "-",
               works(row) ? bytes_text(rank.bytes_per_s()) : "-",
               works(row) ? share_text(rank.waiting()) : "-"});
  }
  return table;
}

TextTable nodes_table(const v1::StatusReply& reply) {
  TextTable table({{"NODE", kNameMin, false, true},
                   {"ROLE", 7},
                   {"CORES", 5, true},
                   {"SILENT", 8, true},
                   {"SENT", 8, true},
                   {"RECEIVED", 8, true},
                   {"JOBS", kNameMin + 4, false, true}});
  for (const v1::AgentStatus& agent : reply.agents()) {
    std::string jobs;
    for (const std::string& job : agent.jobs()) jobs += (jobs.empty() ? "" : ",") + job;
    table.add({agent.name(),
               agent.drained() ? "drained"
               : agent.shard() ? "shard"
                               : "agent",
               std::to_string(agent.cores()), milliseconds_text(agent.silent_ms()),
               bytes_text(agent.transport().sent_bytes()),
               bytes_text(agent.transport().received_bytes()), jobs.empty() ? "-" : jobs});
  }
  return table;
}

std::string summary(const v1::StatusReply& reply, const TopView& view) {
  const auto live =
      std::ranges::count_if(reply.jobs(), [](const auto& job) { return job.outcome().empty(); });
  const auto shards =
      std::ranges::count_if(reply.agents(), [](const auto& agent) { return agent.shard(); });
  const int drained = reply.drained_nodes_size();
  return "gradbus " + view.address + "  up " + milliseconds_text(reply.uptime_ms()) + "  agents " +
         std::to_string(reply.agents_size() - shards) + "  shards " + std::to_string(shards) +
         "  jobs " + std::to_string(live) +
         (drained == 0 ? "" : "  drained " + std::to_string(drained));
}

std::string problem(const v1::StatusReply& reply) {
  const std::vector<std::string> found = problems(reply);
  if (found.empty()) return "no problems";
  const std::string more =
      found.size() == 1 ? "" : " (and " + std::to_string(found.size() - 1) + " more)";
  return "! " + found.front() + more;
}

std::string keys(const TopView& view, size_t rows_below) {
  return std::string("q quit  sort: w waits, b bytes, o ops, r rank  n ") +
         (view.nodes ? "ranks" : "nodes") +
         (rows_below == 0 ? "" : "  j/k scroll, " + std::to_string(rows_below) + " below");
}

std::string bold(const std::string& line, bool on) {
  return on ? "\x1b[1m" + line + "\x1b[0m" : line;
}

std::string outcome_text(const v1::JobStatus& job) {
  if (job.outcome().empty()) return job.stall().empty() ? job.state() : "stalled";
  return job.outcome();
}

std::vector<const v1::JobStatus*> newest_first(const v1::StatusReply& reply) {
  std::vector<const v1::JobStatus*> jobs;
  for (const v1::JobStatus& job : reply.jobs()) jobs.push_back(&job);
  std::ranges::stable_sort(
      jobs, [](const auto* one, const auto* other) { return one->age_ms() < other->age_ms(); });
  return jobs;
}

struct JobRates {
  double operations = 0;  // of the busiest rank: all ranks take part in an operation
  uint64_t bytes = 0;     // of all ranks
  double waits = 0;       // mean
  uint64_t step = 0;
};

JobRates rates_of(const v1::JobStatus& job) {
  JobRates rates;
  for (const v1::RankStatus& rank : job.ranks()) {
    rates.operations = std::max(rates.operations, rank.operations_per_s());
    rates.bytes += rank.bytes_per_s();
    rates.waits += rank.waiting() / job.ranks_size();
    rates.step = std::max<uint64_t>(rates.step, rank.counters().step());
  }
  return rates;
}

}  // namespace

bool set_order(char key, TopOrder& order) {
  for (const TopOrder known :
       {TopOrder::kWaits, TopOrder::kBytes, TopOrder::kOperations, TopOrder::kRank}) {
    if (key != static_cast<char>(known)) continue;
    order = known;
    return true;
  }
  return false;
}

std::string top_text(const v1::StatusReply& reply, const TopView& view) {
  const std::vector<std::string> table =
      lines_of((view.nodes ? nodes_table(reply) : ranks_table(reply, view)).text(view.columns));
  std::vector<std::string> screen{summary(reply, view), problem(reply)};
  const size_t rows = table.size() - 1;
  constexpr size_t kOtherRows = kHeadRows + 1 + kFootRows;
  const size_t room = view.rows == 0 ? rows : view.rows > kOtherRows ? view.rows - kOtherRows : 1;
  const size_t first = rows > room ? std::min(view.first, rows - room) : 0;
  screen.push_back(table.front());
  for (size_t row = first; row < std::min(rows, first + room); ++row)
    screen.push_back(table[row + 1]);
  screen.resize(kHeadRows + 1 + room);
  if (view.rows > 0) screen.push_back(keys(view, rows - std::min(rows, first + room)));
  std::string text;
  for (size_t i = 0; i < screen.size(); ++i) {
    const bool attention =
        screen[i].starts_with("! ") || screen[i].find("  slow  ") != std::string::npos;
    text += bold(cut(screen[i], view.columns), view.bold && (i == kHeadRows || attention));
    if (i + 1 < screen.size()) text += "\n";
  }
  return text;
}

std::string jobs_text(const v1::StatusReply& reply, size_t columns) {
  if (reply.jobs().empty()) return "no jobs\n";
  constexpr size_t kJobMin = 18;
  TextTable table({{"JOB", kJobMin, false, true},
                   {"STATE", 8},
                   {"RANKS", 5, true},
                   {"USER", 8},
                   {"AGE", 9, true},
                   {"STEP", 7, true},
                   {"OPS/S", 6, true},
                   {"BYTES/S", 7, true}});
  for (const v1::JobStatus* job : newest_first(reply)) {
    const JobRates rates = rates_of(*job);
    const bool lives = job->outcome().empty();
    table.add({job->job(), outcome_text(*job), std::to_string(job->world_size()),
               job->user().empty() ? std::to_string(job->uid()) : job->user(),
               milliseconds_text(job->age_ms()), std::to_string(rates.step),
               lives ? rate_number(rates.operations) : "-", lives ? bytes_text(rates.bytes) : "-"});
  }
  return table.text(columns);
}

std::string jobs_json(const v1::StatusReply& reply) {
  nlohmann::ordered_json jobs = nlohmann::ordered_json::array();
  for (const v1::JobStatus* job : newest_first(reply)) {
    const JobRates rates = rates_of(*job);
    jobs.push_back({{"job", job->job()},
                    {"job_id", job->job_id()},
                    {"state", job->state()},
                    {"outcome", job->outcome()},
                    {"stall", job->stall()},
                    {"error", job->error().message()},
                    {"world_size", job->world_size()},
                    {"uid", job->uid()},
                    {"user", job->user()},
                    {"age_ms", job->age_ms()},
                    {"step", rates.step},
                    {"operations_per_s", rates.operations},
                    {"bytes_per_s", rates.bytes},
                    {"waiting", rates.waits}});
  }
  return jobs.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace gradbus
