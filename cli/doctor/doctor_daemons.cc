#include <unistd.h>

#include "cli/cluster/agent_socket.h"
#include "cli/cluster/coordinator_client.h"
#include "cli/cluster/embedded_cluster.h"
#include "cli/doctor/doctor_findings.h"
#include "common/units.h"

namespace gradbus {
namespace {

constexpr char kRunAnyway[] = "nothing for one machine: gradbus run starts its own; else start ";

Finding agent_finding(const std::string& path) {
  const SocketAnswer answer = probe_socket(path);
  if (answer == SocketAnswer::kAnswers) return {Level::kOk, "agent", "answers at " + path, ""};
  if (answer == SocketAnswer::kNoPermission)
    return {Level::kWarn, "agent", "no permission for " + path,
            "join the group that owns the socket"};
  return {Level::kMissing, "agent", "none at " + path, std::string(kRunAnyway) + "gradbus-agent"};
}

}  // namespace

std::vector<Finding> check_programs() {
  std::vector<Finding> findings;
  for (const char* name : {"gradbus-server", "gradbus-agent"}) {
    const std::string path = sibling_program(name);
    if (access(path.c_str(), X_OK) == 0)
      findings.push_back({Level::kOk, name, path, ""});
    else
      findings.push_back({Level::kWarn, name, "not beside this program (" + path + ")",
                          "install all programs into one directory"});
  }
  return findings;
}

// One finding: the first that answers, else what is known of the most likely place.
std::vector<Finding> check_agent() {
  const std::vector<std::string> paths = agent_socket_candidates();
  for (const std::string& path : paths)
    if (probe_socket(path) == SocketAnswer::kAnswers) return {agent_finding(path)};
  return {agent_finding(paths.front())};
}

std::vector<Finding> check_coordinator() {
  const std::string address = coordinator_address("");
  const Result<v1::StatusReply> reply = CoordinatorClient(address, "", kPagePatience).status("");
  if (!reply.ok() && reply.status().code() == Code::kPermission)
    return {{Level::kWarn, "coordinator", "answers at " + address + ", but wants the cluster token",
             "name its file: GRADBUS_TOKEN_FILE (docs/concepts/security.md)"}};
  if (!reply.ok())
    return {{Level::kMissing, "coordinator", "none at " + address,
             std::string(kRunAnyway) + "gradbus-server"}};
  return {{Level::kOk, "coordinator",
           address + ", version " + reply.value().version() + ", up " +
               milliseconds_text(reply.value().uptime_ms()),
           ""}};
}

}  // namespace gradbus
