// The environment variables of this project: one table. docs/reference/environment.md is made from
// it, and unknown_variables.h tells users about others. Pure.
#pragma once

#include <span>

namespace gradbus {

struct Variable {
  const char* name;
  const char* readers;
  const char* meaning;
  const char* otherwise;  // the default
};

struct ToolVariable {
  const char* name;
  const char* meaning;
};

std::span<const Variable> variables();
std::span<const ToolVariable> tool_variables();

// Names of options, such as "state-dir". Its variable is GRADBUS_AGENT_... or GRADBUS_SERVER_...
std::span<const char* const> agent_options();
std::span<const char* const> server_options();

}  // namespace gradbus
