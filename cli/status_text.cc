#include <cstdio>
#include <map>

#include "cli/status_view.h"
#include "cli/text_table.h"
#include "cli/units.h"

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

std::string ranks_text(const v1::JobStatus& job) {
  TextTable table({{"RANK", 4, true},
                   {"AGENT", 12},
                   {"PID", 7, true},
                   {"STATE", 6},
                   {"OPS", 9, true},
                   {"OPS/S", 8, true},
                   {"BYTES", 8, true},
                   {"LATE", 9, true}});
  for (const v1::RankStatus& rank : job.ranks())
    table.add({std::to_string(rank.rank()), rank.agent(), std::to_string(rank.pid()), rank.state(),
               std::to_string(rank.counters().operations()), rate_text(rank.operations_per_s()),
               bytes_text(rank.counters().bytes()), nanoseconds_text(rank.late_ns())});
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

std::string percent_text(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %%", share * 100);
  return text;
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

std::string job_text(const v1::JobStatus& job) {
  uint64_t bytes_per_s = 0;
  for (const v1::RankStatus& rank : job.ranks()) bytes_per_s += rank.bytes_per_s();
  std::string text = wrapped(
      "job " + job.job() + ": " + job.state() + " for " + milliseconds_text(job.age_ms()) + ", " +
          std::to_string(job.world_size()) + " ranks, epoch " + std::to_string(job.epoch()) + ", " +
          std::to_string(job.tensors_size()) + " tensors",
      0);
  text +=
      wrapped("transport " + (job.transport().empty() ? "-" : job.transport()) + ", sent " +
                  bytes_text(job.sent_bytes()) + ", received " + bytes_text(job.received_bytes()) +
                  ", ranks' rate " + bytes_text(bytes_per_s) + "/s",
              2);
  text += modes_text(job) + ranks_text(job) + staleness_text(job) + shards_text(job) +
          fidelity_text(job);
  if (job.nccl_tensors() > 0)
    text += wrapped(std::to_string(job.nccl_tensors()) + " tensors go between nodes by NCCL", 2);
  if (!job.no_nccl().empty()) text += wrapped("not by NCCL: " + job.no_nccl(), 2);
  if (!job.stall().empty()) text += wrapped("stalled: " + job.stall(), 2);
  if (!job.error().message().empty()) text += wrapped(job.error().message(), 2);
  return text;
}

}  // namespace

std::string status_text(const v1::StatusReply& reply, const std::string& address) {
  std::string text = wrapped("coordinator " + address + ": version " + reply.version() + ", up " +
                                 milliseconds_text(reply.uptime_ms()) +
                                 (is_healthy(reply) ? "" : ", SOMETHING IS WRONG (see below)"),
                             0);
  text += nodes_text(reply, false) + nodes_text(reply, true) + link_paths_text(reply);
  for (const v1::JobStatus& job : reply.jobs()) text += "\n" + job_text(job);
  if (reply.jobs().empty()) text += "jobs: none\n";
  return text;
}

bool is_healthy(const v1::StatusReply& reply) {
  for (const v1::AgentStatus& agent : reply.agents())
    if (agent.silent_ms() > kSilentMsMax) return false;
  for (const v1::JobStatus& job : reply.jobs()) {
    if (job.state() == "failed" || !job.stall().empty()) return false;
    for (const v1::RankStatus& rank : job.ranks())
      if (rank.state() == "lost") return false;
  }
  return true;
}

}  // namespace gradbus
