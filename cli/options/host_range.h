// Ranges of host names, as Slurm writes them: node[01-04,07] is node01, node02, node03, node04 and
// node07. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace gradbus {

// The names of one entry without its slots; an entry without brackets is one name. Several pairs of
// brackets are allowed, and the last one counts fastest. Numbers keep the zeros of the range's
// first number. Errors: GB-H200 names the entry and the range. At most `names_max` names.
Result<std::vector<std::string>> expand_host_ranges(std::string_view entry, size_t names_max);

// Whether text begins with an IPv6 address in brackets, such as [::1] or [fe80::2]:4.
bool begins_with_address(std::string_view text);

}  // namespace gradbus
