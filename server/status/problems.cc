#include "server/status/problems.h"

#include "common/units.h"

namespace gradbus {

std::vector<std::string> problems(const v1::StatusReply& reply) {
  std::vector<std::string> found;
  for (const v1::LostNode& node : reply.lost_nodes())
    found.push_back(std::string(node.shard() ? "shard " : "node ") + node.name() + " is lost for " +
                    milliseconds_text(node.lost_ms()) + ": " + node.why() +
                    " | next: start it again, or gradbus status --forget " + node.name());
  for (const v1::AgentStatus& agent : reply.agents())
    if (agent.silent_ms() > kSilentMsMax)
      found.push_back((agent.shard() ? "shard " : "node ") + agent.name() + " is silent for " +
                      milliseconds_text(agent.silent_ms()) + " | next: look at its process " +
                      std::to_string(agent.pid()) + " and its network");
  for (const v1::JobStatus& job : reply.jobs()) {
    if (!job.outcome().empty()) continue;
    if (!job.stall().empty()) found.push_back("job " + job.job() + ": " + job.stall());
    for (const v1::ShardStatus& shard : job.shards())
      if (shard.lost()) found.push_back("job " + job.job() + " has lost its shard " + shard.name());
    for (const v1::RankStatus& rank : job.ranks())
      if (rank.state() == "lost")
        found.push_back("job " + job.job() + " has lost rank " + std::to_string(rank.rank()) +
                        " on " + rank.agent());
  }
  return found;
}

}  // namespace gradbus
