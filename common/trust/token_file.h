// The cluster token: a file of 256 random bits that the cluster's daemons and administrators share.
#pragma once

#include <optional>
#include <string>

#include "common/status.h"
#include "common/trust/secret.h"

namespace gradbus {

// `given` (an option's value), else the variable GRADBUS_TOKEN_FILE, else "".
std::string token_file_path(const std::string& given);

// 64 hexadecimal digits (`openssl rand -hex 32`) or 32 raw bytes. GB-F104 for a file that group or
// others may read or write, that belongs to neither this user nor root (root may use that of any
// user), or that holds anything else. The file is opened once and judged by its descriptor.
Result<Secret> read_token_file(const std::string& path);

// As above; none for the path "".
Result<std::optional<Secret>> read_optional_token(const std::string& path);

// Makes a new file of mode 0600 with a random token, as hexadecimal digits. GB-F104 when it exists.
Status create_token_file(const std::string& path);

}  // namespace gradbus
