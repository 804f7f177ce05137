// The TOML file of a program's options. Start-up only.
#pragma once

#include <string>
#include <vector>

#include "common/option_value.h"
#include "common/status.h"

namespace gradbus {

// Sets the options named in table [section] of the file. Tables of other programs are left alone,
// but one whose name looks like a slip of `section` is refused, as is any key outside a table.
Status apply_option_file(const std::string& path, const std::string& section,
                         const std::vector<OptionValue*>& options);

}  // namespace gradbus
