#include "cli/launch/remote_command.h"

namespace gradbus {

std::string shell_quote(std::string_view word) {
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

std::string remote_script(const std::string& directory, const Variables& variables,
                          const std::vector<std::string>& command, int local_size) {
  std::string script = "cd " + shell_quote(directory) + " || exit 126; ";
  for (const auto& [name, value] : variables)
    script += "export " + name + "=" + shell_quote(value) + "; ";
  script += "threads=$(( $(nproc) / " + std::to_string(local_size) + " )); ";
  script += "[ \"$threads\" -ge 1 ] || threads=1; ";
  script += "export OMP_NUM_THREADS=\"${OMP_NUM_THREADS:-$threads}\"; exec 3<&0; setsid";
  for (const std::string& word : command) script += " " + shell_quote(word);
  script += " </dev/null 3<&- & rank=$!; ";
  // "kill -TERM -- -N" is no valid form in dash. cat ends with the input. The watcher holds none of
  // the rank's outputs open.
  script +=
      "{ cat <&3; kill -s TERM -- -$rank; sleep 2; kill -s KILL -- -$rank; } >/dev/null 2>&1 & "
      "watcher=$!; exec 3<&-; wait $rank; status=$?; kill -s KILL -- -$rank 2>/dev/null; "
      "kill $watcher 2>/dev/null; exit $status";
  // The login shell that ssh hands this to may be any; only one quoted word is left to it.
  return "exec sh -c " + shell_quote(script);
}

}  // namespace gradbus
