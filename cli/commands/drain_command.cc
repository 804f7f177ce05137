// `gradbus drain NODE`: the node gets no new jobs; those that run go on.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/cluster/admin_call.h"
#include "cli/cluster/coordinator_client.h"
#include "cli/cluster/coordinator_options.h"
#include "cli/command.h"
#include "cli/terminal/json_line.h"

namespace gradbus {
namespace {

struct DrainOptions : CoordinatorOptions {
  std::string node;
  std::string reason;
  bool undo = false;
  bool json = false;
};

int drain(const DrainOptions& options) {
  const std::string reason = asker("drain") + (options.reason.empty() ? "" : ": " + options.reason);
  const AdminWish wish = options.undo ? AdminWish::kUndoDrain : AdminWish::kDrain;
  const Status done =
      administer({wish, options.node, "", "", reason}, options.coordinator, options.token_file);
  if (!done.ok()) return fail(done, kExitFailed);
  if (options.json)
    print_json_line({{"node", options.node}, {"drained", !options.undo}});
  else
    std::printf(options.undo ? "node %s takes jobs again\n" : "node %s takes no new jobs\n",
                options.node.c_str());
  return kExitOk;
}

}  // namespace

Action declare_drain(CLI::App& app) {
  auto options = std::make_shared<DrainOptions>();
  app.add_option("node", options->node, "the node's name, as in gradbus status")->required();
  app.add_flag("--undo", options->undo, "the node takes jobs again");
  app.add_option("--reason", options->reason, "a text for gradbus status and for refused ranks");
  app.add_flag("--json", options->json, "one JSON object");
  add_coordinator_options(app, *options);
  app.footer(
      "Running jobs go on. Ranks that begin a job on the node get GB-C507, and new jobs "
      "do not use a drained shard. The node stays drained when its agent or the "
      "coordinator is restarted. Whoever has the cluster token may do this. Without it, "
      "root and the agent's user may drain their own node.");
  return [options] { return drain(*options); };
}

}  // namespace gradbus
