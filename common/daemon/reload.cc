#include "common/daemon/reload.h"

#include "common/daemon/service_manager.h"
#include "common/guarded.h"
#include "common/log.h"

namespace gradbus {
namespace {

constexpr const char* kLogLevelOption = "log-level";
constexpr const char* kTokenFileOption = "token-file";

}  // namespace

Status Reloader::reload() {
  tell_reloading();
  const Status done = guarded([this] { return apply(); });
  if (!done.ok()) spdlog::error("reload: nothing has changed: {}", done.message());
  return done;
}

Status Reloader::apply() {
  const Result<ReloadedOptions> wanted = read_();
  if (!wanted.ok()) return wanted.status();
  GRADBUS_RETURN_IF_ERROR(set_log_level(wanted.value().log_level));
  const bool new_token = renew_token(wanted.value().token);
  log_changes(wanted.value().values, new_token);
  return {};
}

// Options that need a restart keep their old value, so each reload names them again.
void Reloader::log_changes(const OptionValues& wanted, bool new_token) {
  size_t changed = 0;
  for (const auto& [name, value] : wanted) {
    std::string& used = used_[name];
    if (used == value) continue;
    ++changed;
    if (name == kLogLevelOption || name == kTokenFileOption) {
      spdlog::info("reload: --{} is now {}, it was {}", name, value, used);
      used = value;
    } else {
      spdlog::warn("reload: --{} {} needs a restart; {} is still used", name, value, used);
    }
  }
  if (new_token) spdlog::info("reload: new connections use the new cluster token");
  if (changed == 0 && !new_token) spdlog::info("reload: no option has changed");
}

bool Reloader::renew_token(const std::optional<Secret>& wanted) {
  if (wanted == token_) return false;
  if (!wanted || !token_) {
    spdlog::warn("reload: a cluster {} a token needs a restart",
                 wanted ? "that gets" : "that gives up");
    return false;
  }
  token_ = wanted;
  use_token_(*wanted);
  return true;
}

}  // namespace gradbus
