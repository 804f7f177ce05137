// The hosts of `gradbus run -H a:2,b:2` and of a hostfile. Pure but for is_this_machine() and the
// reading of the file; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace gradbus {

struct Host {
  std::string name;
  int slots = 1;  // ranks it takes, 1..4096
  bool local = false;

  bool operator==(const Host&) const = default;
};

// "a:2,b,[::1]:4,node[01-04,07]:2": a host without a number has one slot, and a range gives its
// slots to each host. Two entries of one name stay two entries. At most 4096 hosts. Errors: GB-H200
// names the entry.
Result<std::vector<Host>> parse_host_list(std::string_view text);

// One entry a line: "name", "name:2" or "name slots = 2", also with ranges; '#' begins a comment. A
// byte order mark, CRLF and mpirun's max-slots are skipped. GB-H200 names the line.
Result<std::vector<Host>> parse_hostfile(std::string_view text);
Result<std::vector<Host>> read_hostfile(const std::string& path);

// localhost, 127.*, ::1, or this machine's host name with or without its domain.
bool is_this_machine(std::string_view name);

// A whole number of ranks in 1..4096 from a person; GB-J401 with `what` in front otherwise.
Result<int> parse_rank_count(std::string_view text, const std::string& what,
                             std::string_view next = "for example: gradbus run -np 4 -- COMMAND");

}  // namespace gradbus
