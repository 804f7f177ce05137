// SIGHUP: a daemon reads its options again. The log level and the cluster token apply at once;
// other options that differ are logged, because they need a restart. A configuration that cannot be
// read changes nothing. One thread at a time.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/status.h"
#include "common/trust/secret.h"

namespace gradbus {

using OptionValues = std::map<std::string, std::string>;  // name -> value as TOML

struct ReloadedOptions {
  OptionValues values;
  std::string log_level;
  std::optional<Secret> token;
};

class Reloader {
 public:
  // `read`: reads everything again. `use_token`: the token is another one now.
  Reloader(OptionValues used, const std::optional<Secret>& token,
           std::function<Result<ReloadedOptions>()> read,
           std::function<void(const Secret&)> use_token)
      : used_(std::move(used)),
        token_(token),
        read_(std::move(read)),
        use_token_(std::move(use_token)) {}

  // Logs what has changed. An error: everything stays as it was.
  Status reload();

 private:
  Status apply();
  void log_changes(const OptionValues& wanted, bool new_token);
  bool renew_token(const std::optional<Secret>& wanted);

  OptionValues used_;
  std::optional<Secret> token_;
  const std::function<Result<ReloadedOptions>()> read_;
  const std::function<void(const Secret&)> use_token_;
};

}  // namespace gradbus
