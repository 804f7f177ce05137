// A program's options: each is one declaration with name, default, range and sentence. The TOML
// file, the environment, the flags, --help and --print-config all come from it.
//
// Precedence: default < file < environment < flag. For program section "agent" and name
// "shm-bytes-max": TOML key shm_bytes_max in table [agent], variable GRADBUS_AGENT_SHM_BYTES_MAX,
// flag --shm-bytes-max. An unknown key or flag is an error with a did-you-mean. Start-up only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"

namespace gradbus {

class OptionTable {
 public:
  // `section` is the TOML table and the variable prefix; `summary` opens --help.
  OptionTable(std::string section, std::string summary);
  ~OptionTable();

  // `*value` holds the default now and the chosen value after parse(). It must outlive the table.
  void add(std::string name, std::string* value, std::string sentence);
  void add(std::string name, bool* value, std::string sentence);
  void add(std::string name, int64_t* value, int64_t min, int64_t max, std::string sentence);

  // false: --help, --version or --print-config was asked for and printed; exit 0.
  // Errors are GB-F1xx and name the file and key, the variable or the flag.
  Result<bool> parse(int argc, const char* const* argv);

  // Every value as TOML, by name.
  std::map<std::string, std::string> values() const;

  // The whole configuration as TOML, one comment per line telling its origin.
  std::string print_config() const;

 private:
  struct Option;
  Status apply(const std::string& config_path);  // file, then variables, then flags

  std::string section_;
  std::string summary_;
  std::vector<std::unique_ptr<Option>> options_;
};

}  // namespace gradbus
