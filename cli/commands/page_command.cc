// `gradbus page`: prints the address of the coordinator's web page, with the page's key.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/cluster/cluster_token.h"
#include "cli/cluster/coordinator_client.h"
#include "cli/cluster/coordinator_options.h"
#include "cli/command.h"
#include "cli/terminal/json_line.h"
#include "common/errors.h"
#include "common/trust/page_key.h"
#include "common/trust/token_file.h"

namespace gradbus {
namespace {

struct PageOptions : CoordinatorOptions {
  bool json = false;
};

// A coordinator that listens on all its addresses is reached as the command reaches it.
std::string reachable(const std::string& page, const std::string& coordinator) {
  const size_t colon = page.rfind(':');
  const std::string host = page.substr(0, colon);
  const size_t end = coordinator.rfind(':');
  const bool everywhere = host == "0.0.0.0" || host == "[::]";
  if (!everywhere || coordinator.starts_with("unix:")) return page;
  return coordinator.substr(0, end) + page.substr(colon);
}

int page(const PageOptions& options) {
  const std::string address = coordinator_address(options.coordinator);
  CoordinatorClient client(address, options.token_file);
  const Result<v1::StatusReply> reply = client.status("");
  if (!reply.ok()) return fail(reply.status(), kExitNoCoordinator);
  if (reply.value().page().empty())
    return fail(error("C508", "the coordinator at " + address + " serves no web page"),
                kExitFailed);
  const Result<std::optional<Secret>> token =
      read_optional_token(token_file_for(options.token_file, address), TokenReader::kTool);
  if (!token.ok()) return fail(token.status(), kExitFailed);
  const std::string key = token.value() ? page_key(*token.value()) : "";
  const std::string url = "http://" + reachable(reply.value().page(), address) + "/";
  if (options.json) {
    print_json_line({{"url", url}, {"key", key}});
  } else {
    std::printf("%s%s%s\n", url.c_str(), key.empty() ? "" : "#", key.c_str());
  }
  return kExitOk;
}

}  // namespace

Action declare_page(CLI::App& app) {
  auto options = std::make_shared<PageOptions>();
  app.footer(
      "The key after # lets its holder read the page and nothing else. It is made from "
      "the cluster token and changes with it.\n"
      "Exit code: 0; 1 if there is no page; 2 if no coordinator answers.");
  app.add_flag("--json", options->json, "one JSON object with url and key");
  add_coordinator_options(app, *options);
  return [options] { return page(*options); };
}

}  // namespace gradbus
