// The options of every command that calls the coordinator. A command's options derive from them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace gradbus {

struct CoordinatorOptions {
  std::string coordinator;  // as for coordinator_address()
  std::string token_file;
};

void add_coordinator_options(CLI::App& app, CoordinatorOptions& options);

}  // namespace gradbus
