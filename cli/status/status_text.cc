#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>

#include "cli/status/status_view.h"
#include "cli/terminal/text_table.h"
#include "common/dtype.h"
#include "common/text/help_text.h"
#include "common/units.h"
#include "proto/numbers.h"

namespace gradbus {
namespace {

std::string joined(const google::protobuf::RepeatedPtrField<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text.empty() ? "-" : text;
}

std::string nodes_text(const v1::StatusReply& reply, bool shards) {
  TextTable table({{"NAME", 14},
                   {"ADDRESS", 21},
                   {"CORES", 5, true},
                   {"PID", 7, true},
                   {"SILENT", 9, true},
                   {"JOBS", 12}});
  size_t rows = 0;
  for (const v1::AgentStatus& agent : reply.agents()) {
    if (agent.shard() != shards) continue;
    table.add({agent.name(), agent.address(), std::to_string(agent.cores()),
               std::to_string(agent.pid()), milliseconds_text(agent.silent_ms()),
               joined(agent.jobs())});
    ++rows;
  }
  if (rows == 0) return shards ? "" : "agents: none\n";
  return (shards ? "shards: " : "agents: ") + std::to_string(rows) + "\n" + table.text();
}

std::string drained_text(const v1::StatusReply& reply) {
  std::string text;
  for (const v1::DrainedNode& node : reply.drained_nodes())
    text += wrapped("drained: " + node.name() + " takes no new jobs for " +
                        milliseconds_text(node.drained_ms()) + ", " + node.reason(),
                    0);
  return text;
}

// Of nodes that have several: which path how many links are on.
std::string link_paths_text(const v1::StatusReply& reply) {
  TextTable table({{"NODE", 14}, {"PATH", 40}, {"LINKS", 6, true}, {"SWITCHES", 9, true}});
  size_t rows = 0;
  for (const v1::AgentStatus& agent : reply.agents()) {
    bool first = true;
    for (const v1::LinkPath& path : agent.transport().paths()) {
      table.add({first ? agent.name() : "", path.name(), std::to_string(path.links()),
                 first ? std::to_string(agent.transport().switches()) : ""});
      first = false;
      ++rows;
    }
  }
  return rows == 0 ? "" : table.text();
}

std::string rate_text(double per_second) {
  char text[32];
  std::snprintf(text, sizeof(text), per_second < 100 ? "%.1f/s" : "%.0f/s", per_second);
  return text;
}

std::string state_text(const v1::RankStatus& rank) { return rank.slow() ? "slow" : rank.state(); }

// Ranks that need attention come first where not all can be shown.
std::vector<const v1::RankStatus*> ranks_of(const v1::JobStatus& job, bool important_first) {
  std::vector<const v1::RankStatus*> ranks;
  for (const v1::RankStatus& rank : job.ranks()) ranks.push_back(&rank);
  const auto importance = [](const v1::RankStatus* rank) {
    return rank->state() == "lost" ? 0 : rank->slow() ? 1 : rank->state() == "joined" ? 3 : 2;
  };
  if (important_first)
    std::stable_sort(ranks.begin(), ranks.end(), [&](const auto* one, const auto* other) {
      return importance(one) < importance(other);
    });
  return ranks;
}

std::string ranks_text(const v1::JobStatus& job, bool important_first) {
  TextTable table({{"RANK", 4, true},
                   {"AGENT", 12},
                   {"PID", 7, true},
                   {"STATE", 6},
                   {"OPS", 9, true},
                   {"OPS/S", 8, true},
                   {"BYTES", 8, true},
                   {"WAITS", 5, true}});
  for (const v1::RankStatus* rank : ranks_of(job, important_first)) {
    const bool works = rank->state() == "joined";
    table.add({std::to_string(rank->rank()), rank->agent(), std::to_string(rank->pid()),
               state_text(*rank), std::to_string(rank->counters().operations()),
               works ? rate_text(rank->operations_per_s()) : "-",
               bytes_text(rank->counters().bytes()), works ? share_text(rank->waiting()) : "-"});
  }
  return job.ranks().empty() ? "" : table.text();
}

std::string fidelity_text(const v1::JobStatus& job) {
  TextTable table({{"COMPRESSED TENSOR", 36},
                   {"ROUND", 9, true},
                   {"COSINE", 8, true},
                   {"ERROR", 8, true},
                   {"RESIDUAL", 9, true}});
  const auto number = [](double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.4f", value);
    return std::string(text);
  };
  for (const v1::Fidelity& of : job.fidelity())
    table.add({of.tensor(), std::to_string(of.round()), number(of.cosine()),
               number(of.relative_error()), number(of.residual_ratio())});
  return job.fidelity().empty() ? "" : table.text();
}

std::string budget_text(const v1::TensorSpec& tensor) {
  if (tensor.budget_bytes() == 0) return "";
  return "; starts while at most " + bytes_text(tensor.budget_bytes()) + " are in flight";
}

// In the order of their names: buckets of one exchange are numbered.
std::string tensors_text(const v1::JobStatus& job) {
  TextTable table({{"TENSOR", 26},
                   {"BYTES", 8, true},
                   {"CHUNK", 8, true},
                   {"PRIORITY", 9, true},
                   {"CODEC", 17}});
  std::vector<int> order(static_cast<size_t>(std::min(job.tensors_size(), job.plans_size())));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](int one, int other) {
    return strverscmp(job.tensors(one).name().c_str(), job.tensors(other).name().c_str()) < 0;
  });
  std::string reasons;
  for (const int number : order) {
    const v1::TensorSpec& tensor = job.tensors(number);
    const v1::TensorPlan& plan = job.plans(number);
    const uint64_t element = dtype_bytes(static_cast<DType>(tensor.dtype()));
    table.add({tensor.name(), bytes_text(tensor.count() * element),
               bytes_text(plan.chunk_elements() * element),
               std::to_string(tensor.priority()) + "/" + std::to_string(tensor.result_priority()),
               plan.communicator().empty() ? "dense" : tensor.compression()});
    const std::string by = plan.communicator().empty() ? "" : " by " + plan.communicator();
    reasons += wrapped(tensor.name() + ": " +
                           std::string(algorithm_name(static_cast<Algorithm>(plan.algorithm()))) +
                           by + ": " + plan.why() + budget_text(tensor),
                       2);
  }
  return order.empty() ? "" : table.text() + reasons;
}

std::string shards_text(const v1::JobStatus& job) {
  TextTable table({{"SHARD", 14},
                   {"SHARE", 7, true},
                   {"RECEIVED", 9, true},
                   {"SENT", 9, true},
                   {"BESIDE", 14}});
  uint64_t moved = 0;
  for (const v1::ShardStatus& shard : job.shards()) {
    const std::string name = shard.name() + (shard.lost()    ? " (lost)"
                                             : shard.waits() ? " (waits for a fence)"
                                                             : "");
    table.add({name, percent_text(shard.share()), bytes_text(shard.received_bytes()),
               bytes_text(shard.sent_bytes()), shard.beside().empty() ? "-" : shard.beside()});
    moved += shard.received_bytes() + shard.sent_bytes();
  }
  return moved == 0 ? "" : table.text();
}

// How many tensors are exchanged in which mode, and what administrators have asked for.
std::string modes_text(const v1::JobStatus& job) {
  std::map<std::string, int> tensors;
  for (const v1::TensorSpec& tensor : job.tensors())
    ++tensors[tensor.mode().empty() ? "sync" : tensor.mode()];
  std::string counted;
  for (const auto& [mode, count] : tensors)
    counted += (counted.empty() ? "" : ", ") + mode + " (" + std::to_string(count) + ")";
  std::string text;
  if (tensors.size() > 1 || (tensors.size() == 1 && !tensors.contains("sync")))
    text = wrapped("tensors by mode: " + counted, 2);
  for (const v1::ModeChangeStatus& change : job.mode_changes())
    text += wrapped("asked " + milliseconds_text(change.age_ms()) + " ago: \"" + change.group() +
                        "\" in mode " + change.mode() + " (" + change.reason() + ")",
                    2);
  return text;
}

// In steps: how old gradients are that are used, or parameters that gradients were computed on.
std::string staleness_text(const v1::JobStatus& job) {
  TextTable table({{"MODE", 40}, {"AGENT", 12}, {"STALE", 6, true}, {"MOST", 5, true}});
  for (const v1::StalenessStatus& of : job.staleness()) {
    char mean[32];
    std::snprintf(mean, sizeof(mean), "%.1f", of.mean());
    table.add(
        {of.mode(), of.agent().empty() ? "all" : of.agent(), mean, std::to_string(of.most())});
  }
  return job.staleness().empty() ? "" : table.text();
}

std::string slow_text(const v1::JobStatus& job) {
  std::string ranks;
  double waiting = 0;
  for (const v1::RankStatus& rank : job.ranks()) {
    waiting = std::max(waiting, rank.waiting());
    if (rank.slow())
      ranks += (ranks.empty() ? "rank " : ", rank ") + std::to_string(rank.rank()) + " (" +
               rank.agent() + ", pid " + std::to_string(rank.pid()) + ")";
  }
  return ranks.empty() ? ""
                       : wrapped("slow: " + ranks + "; others wait up to " + share_text(waiting) +
                                     " of the time",
                                 2);
}

// "running for 3 s", "stopped 12 s ago".
std::string state_text(const v1::JobStatus& job) {
  return job.outcome().empty() ? job.state() + " for " + milliseconds_text(job.age_ms())
                               : job.outcome() + " " + milliseconds_text(job.ended_ms()) + " ago";
}

std::string job_head(const v1::JobStatus& job) {
  uint64_t bytes_per_s = 0;
  for (const v1::RankStatus& rank : job.ranks()) bytes_per_s += rank.bytes_per_s();
  std::string text = wrapped(
      "job " + job.job() + ": " + state_text(job) + ", " + counted(job.world_size(), "rank") +
          ", epoch " + std::to_string(job.epoch()) + ", " + counted(job.tensors_size(), "tensor"),
      0);
  const std::string rate =
      job.outcome().empty() ? ", ranks' rate " + bytes_text(bytes_per_s) + "/s" : "";
  text += wrapped("transport " + (job.transport().empty() ? "-" : job.transport()) + ", sent " +
                      bytes_text(job.sent_bytes()) + ", received " +
                      bytes_text(job.received_bytes()) + rate,
                  2);
  if (!job.stall().empty()) text += wrapped("stalled: " + job.stall(), 2);
  if (!job.error().message().empty()) text += wrapped(job.error().message(), 2);
  return text + slow_text(job);
}

std::string job_details(const v1::JobStatus& job) {
  std::string text = modes_text(job) + staleness_text(job) + shards_text(job) + fidelity_text(job);
  if (job.nccl_tensors() > 0)
    text += wrapped(std::to_string(job.nccl_tensors()) + " tensors go between nodes by NCCL", 2);
  if (!job.no_nccl().empty()) text += wrapped("not by NCCL: " + job.no_nccl(), 2);
  return text;
}

std::string ended_job_text(const v1::JobStatus& job) {
  std::string text =
      "  " + job.job() + ": " + state_text(job) + ", " + counted(job.world_size(), "rank");
  return wrapped(text.substr(2), 2) +
         (job.error().message().empty() ? "" : wrapped(job.error().message(), 4));
}

// ---- the page

// Lines that belong together. `keep` of them are shown even on a small screen.
struct Section {
  std::vector<std::string> lines;
  size_t keep = 1;
  std::string of;  // what the lines that were cut show: "ranks"
};

size_t height(const std::vector<Section>& page) {
  size_t rows = 0;
  for (const Section& section : page) rows += section.lines.size();
  return rows;
}

// Takes a line from the longest section until all fit; then says how many are missing.
void fit(std::vector<Section>& page, size_t rows_max) {
  std::vector<size_t> cut(page.size(), 0);
  const auto spare = [&](size_t i) {
    const Section& section = page[i];
    return section.lines.size() > section.keep ? section.lines.size() - section.keep : 0;
  };
  for (size_t rows = height(page); rows > rows_max;) {
    size_t longest = 0;
    for (size_t i = 1; i < page.size(); ++i)
      if (spare(i) >= spare(longest)) longest = i;
    if (spare(longest) == 0) break;
    page[longest].lines.pop_back();
    // The line that says so takes the place of one more.
    rows -= cut[longest]++ == 0 ? 0 : 1;
  }
  for (size_t i = 0; i < page.size(); ++i)
    if (cut[i] > 0)
      page[i].lines.push_back("  ... " + std::to_string(cut[i]) + " more lines of " + page[i].of);
}

std::vector<Section> job_sections(const v1::StatusReply& reply, const StatusView& view) {
  std::vector<Section> page;
  for (const v1::JobStatus& job : reply.jobs()) {
    if (!job.outcome().empty() && !view.one_job) continue;
    const std::vector<std::string> head = lines_of("\n" + job_head(job));
    page.push_back({head, std::min<size_t>(head.size(), 2), "job " + job.job()});
    page.push_back({lines_of(ranks_text(job, view.rows_max > 0)), 2, "ranks"});
    page.push_back({lines_of(job_details(job)), 0, "details"});
    if (view.tensors) page.push_back({lines_of(tensors_text(job)), 1, "tensors"});
  }
  return page;
}

// The newest end first.
std::string ended_jobs_text(const v1::StatusReply& reply) {
  std::vector<const v1::JobStatus*> ended;
  for (const v1::JobStatus& job : reply.jobs())
    if (!job.outcome().empty()) ended.push_back(&job);
  std::stable_sort(ended.begin(), ended.end(), [](const auto* one, const auto* other) {
    return one->ended_ms() < other->ended_ms();
  });
  std::string text;
  for (const v1::JobStatus* job : ended) text += ended_job_text(*job);
  return ended.empty() ? ""
                       : "\njobs that have ended: " + std::to_string(ended.size()) + "\n" + text;
}

std::string head_text(const v1::StatusReply& reply, const StatusView& view) {
  const std::vector<std::string> wrong = problems(reply);
  const std::string health = wrong.empty()       ? "healthy"
                             : wrong.size() == 1 ? "1 PROBLEM"
                                                 : std::to_string(wrong.size()) + " PROBLEMS";
  std::string text = wrapped("coordinator " + view.address + ": " + health + ", version " +
                                 reply.version() + ", up " + milliseconds_text(reply.uptime_ms()),
                             0);
  for (const std::string& problem : wrong) text += wrapped("! " + problem, 2);
  return text;
}

}  // namespace

std::string status_text(const v1::StatusReply& reply, const StatusView& view) {
  std::vector<Section> page;
  page.push_back({lines_of(head_text(reply, view)), 4, "problems"});
  page.push_back({lines_of(nodes_text(reply, false)), 2, "agents"});
  page.push_back({lines_of(nodes_text(reply, true)), 1, "shards"});
  page.push_back({lines_of(drained_text(reply)), 3, "drained nodes"});
  page.push_back({lines_of(link_paths_text(reply)), 0, "paths"});
  for (Section& section : job_sections(reply, view)) page.push_back(std::move(section));
  if (!view.one_job) page.push_back({lines_of(ended_jobs_text(reply)), 3, "ended jobs"});
  if (reply.jobs().empty()) page.push_back({{"jobs: none"}, 1, "jobs"});
  if (view.rows_max > 0) fit(page, view.rows_max);
  std::string text;
  size_t rows = 0;
  for (const Section& section : page)
    for (const std::string& line : section.lines)
      if (view.rows_max == 0 || rows++ < view.rows_max) text += line + "\n";
  return text;
}

}  // namespace gradbus
