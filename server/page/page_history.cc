#include "server/page/page_history.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

namespace gradbus {
namespace {

using Json = nlohmann::ordered_json;

// Four digits are more than a chart shows.
Json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return 0;
  const double digits = std::pow(10.0, 3 - std::floor(std::log10(std::abs(value))));
  if (!std::isfinite(digits) || digits == 0) return value;
  return std::round(value * digits) / digits;
}

Json rounded(const std::optional<double>& value) { return value ? rounded(*value) : Json(nullptr); }

std::vector<const v1::JobStatus*> newest_running(const v1::StatusReply& reply) {
  std::vector<const v1::JobStatus*> jobs;
  for (const v1::JobStatus& job : reply.jobs())
    if (job.state() == "running") jobs.push_back(&job);
  std::ranges::stable_sort(
      jobs, [](const auto* one, const auto* other) { return one->age_ms() < other->age_ms(); });
  if (jobs.size() > kJobsCharted) jobs.resize(kJobsCharted);
  return jobs;
}

}  // namespace

void PageHistory::add_jobs(const v1::StatusReply& reply, Sample& sample,
                           TotalsByName& totals) const {
  for (const v1::JobStatus* job : newest_running(reply)) {
    const std::string id = std::to_string(job->job_id());
    JobSample& of = sample.jobs[id];
    for (const v1::RankStatus& rank : job->ranks()) {
      of.operations_per_s = std::max(of.operations_per_s, rank.operations_per_s());
      of.bytes_per_s += static_cast<double>(rank.bytes_per_s());
      of.waiting += rank.waiting() / job->ranks_size();
      of.late_s = std::max(of.late_s, static_cast<double>(rank.late_ns()) * 1e-9);
    }
    for (const v1::Fidelity& fidelity : job->fidelity())
      of.cosine = std::min(of.cosine.value_or(1), fidelity.cosine());
    totals[id] = {0, job->uncompressed_bytes(), job->compressed_bytes()};
    const auto before = job_totals_.find(id);
    const Totals start = before == job_totals_.end() ? Totals() : before->second;
    if (job->compressed_bytes() > start.other && job->uncompressed_bytes() > start.one)
      of.ratio = static_cast<double>(job->uncompressed_bytes() - start.one) /
                 static_cast<double>(job->compressed_bytes() - start.other);
  }
}

void PageHistory::add_nodes(const v1::StatusReply& reply, double seconds, Sample& sample,
                            TotalsByName& totals) const {
  for (const v1::AgentStatus& agent : reply.agents()) {
    if (totals.size() == kNodesCharted) return;
    const v1::TransportCounters& counters = agent.transport();
    totals[agent.name()] = {agent.pid(), counters.sent_bytes(), counters.received_bytes()};
    const auto before = node_totals_.find(agent.name());
    NodeSample& of = sample.nodes[agent.name()];
    if (before == node_totals_.end() || before->second.pid != agent.pid()) continue;
    const auto rate = [&](uint64_t total, uint64_t start) {
      return total > start ? static_cast<double>(total - start) / seconds : 0;
    };
    of.sent_per_s = rate(counters.sent_bytes(), before->second.one);
    of.received_per_s = rate(counters.received_bytes(), before->second.other);
  }
}

bool PageHistory::add(const v1::StatusReply& reply, Nanos now) {
  if (last_ != 0 && now - last_ < kSampleEvery) return false;
  Sample sample;
  sample.number = ++number_;
  TotalsByName jobs;
  TotalsByName nodes;
  add_jobs(reply, sample, jobs);
  add_nodes(reply, static_cast<double>(now - last_) * 1e-9, sample, nodes);
  job_totals_.swap(jobs);
  node_totals_.swap(nodes);
  last_ = now;
  if (samples_.size() == kSamplesKept) samples_.pop_front();
  samples_.push_back(sample_json(sample));
  return true;
}

std::string PageHistory::sample_json(const Sample& sample) {
  Json jobs = Json::object();
  for (const auto& [id, of] : sample.jobs)
    jobs[id] = {{"operations_per_s", rounded(of.operations_per_s)},
                {"bytes_per_s", rounded(of.bytes_per_s)},
                {"waiting", rounded(of.waiting)},
                {"late_s", rounded(of.late_s)},
                {"ratio", rounded(of.ratio)},
                {"cosine", rounded(of.cosine)}};
  Json nodes = Json::object();
  for (const auto& [name, of] : sample.nodes)
    nodes[name] = {rounded(of.sent_per_s), rounded(of.received_per_s)};
  const Json json = {{"number", sample.number}, {"jobs", jobs}, {"nodes", nodes}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string PageHistory::newest_json() const { return samples_.empty() ? "null" : samples_.back(); }

std::string PageHistory::all_json() const {
  std::string text;
  for (const std::string& sample : samples_) text += (text.empty() ? "" : ",") + sample;
  return "{\"every_ms\":" + std::to_string(kSampleEvery / kMillisecond) + ",\"samples\":[" + text +
         "]}";
}

}  // namespace gradbus
