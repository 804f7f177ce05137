#include "cli/process/rank_env.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "common/errors.h"

namespace gradbus {
namespace {

constexpr std::string_view kForwardedPrefixes[] = {
    "GRADBUS_",         "PYTHON",          "OMP_",          "CUDA_", "NCCL_", "TORCH_",
    "CONDA_",           "KERAS_",          "TF_",           "JAX_",  "XLA_",  "MXNET_",
    "HOROVOD_AUTOTUNE", "HOROVOD_FUSION_", "HOROVOD_STALL_"};
constexpr std::string_view kForwardedNames[] = {"PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "LANG",
                                                "LC_ALL"};

std::string_view name_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

std::pair<std::string, std::string> split_variable(std::string_view variable) {
  const size_t equals = variable.find('=');
  if (equals == std::string_view::npos) return {std::string(variable), ""};
  return {std::string(variable.substr(0, equals)), std::string(variable.substr(equals + 1))};
}

bool is_shell_name(std::string_view name) {
  const auto letter = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name.front())) &&
         std::all_of(name.begin(), name.end(), letter);
}

bool is_forwarded(std::string_view name, const std::vector<std::string>& extra) {
  // The token is the daemons' and the administrators': ranks have no use for it.
  if (name == "GRADBUS_SOCKET" || name == "GRADBUS_TOKEN_FILE" || !is_shell_name(name))
    return false;
  return std::any_of(std::begin(kForwardedPrefixes), std::end(kForwardedPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); }) ||
         std::find(std::begin(kForwardedNames), std::end(kForwardedNames), name) !=
             std::end(kForwardedNames) ||
         std::find(extra.begin(), extra.end(), name) != extra.end();
}

void add_given(Variables& variables, const char* name, const std::string& value) {
  if (!value.empty()) variables.emplace_back(name, value);
}

}  // namespace

Variables rank_variables(const RankIdentity& identity) {
  Variables variables = {{"GRADBUS_RANK", std::to_string(identity.rank)},
                         {"GRADBUS_SIZE", std::to_string(identity.size)},
                         {"GRADBUS_LOCAL_RANK", std::to_string(identity.local_rank)},
                         {"GRADBUS_LOCAL_SIZE", std::to_string(identity.local_size)},
                         {"GRADBUS_JOB", identity.job},
                         {"RANK", std::to_string(identity.rank)},
                         {"WORLD_SIZE", std::to_string(identity.size)},
                         {"LOCAL_RANK", std::to_string(identity.local_rank)},
                         {"LOCAL_WORLD_SIZE", std::to_string(identity.local_size)},
                         {"HOROVOD_RANK", std::to_string(identity.rank)},
                         {"HOROVOD_SIZE", std::to_string(identity.size)},
                         {"HOROVOD_LOCAL_RANK", std::to_string(identity.local_rank)},
                         {"HOROVOD_LOCAL_SIZE", std::to_string(identity.local_size)},
                         {"PYTHONUNBUFFERED", "1"}};
  add_given(variables, "GRADBUS_SOCKET", identity.socket);
  add_given(variables, "GRADBUS_COORDINATOR", identity.coordinator);
  add_given(variables, "GRADBUS_START_TIMEOUT", identity.start_timeout_s);
  add_given(variables, "GRADBUS_OP_TIMEOUT", identity.op_timeout_s);
  add_given(variables, "GRADBUS_ELASTIC_TIMEOUT", identity.elastic_timeout_s);
  if (identity.fence_every > 0)
    variables.emplace_back("GRADBUS_FENCE_EVERY", std::to_string(identity.fence_every));
  return variables;
}

std::vector<std::string> merge_environment(const std::vector<std::string>& base,
                                           const Variables& changes) {
  std::vector<std::string> merged;
  for (const std::string& variable : base) {
    const auto replaced = [&](const auto& change) { return change.first == name_of(variable); };
    if (std::none_of(changes.begin(), changes.end(), replaced)) merged.push_back(variable);
  }
  for (const auto& [name, value] : changes) merged.push_back(name + "=" + value);
  return merged;
}

Variables forwarded_variables(const std::vector<std::string>& base,
                              const std::vector<std::string>& extra) {
  Variables variables;
  for (const std::string& variable : base)
    if (is_forwarded(name_of(variable), extra)) variables.push_back(split_variable(variable));
  for (const std::string& word : extra)
    if (word.find('=') != std::string::npos) variables.push_back(split_variable(word));
  return variables;
}

Status check_variable(std::string_view word) {
  if (is_shell_name(name_of(word))) return {};
  return error("H200", "-x \"" + std::string(word.substr(0, 80)) + "\" is not NAME or NAME=VALUE");
}

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  return variables;
}

}  // namespace gradbus
