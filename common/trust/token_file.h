// The cluster token: a file of 256 random bits that the cluster's daemons and administrators share.
#pragma once

#include <optional>
#include <string>

#include "common/status.h"
#include "common/trust/secret.h"

namespace gradbus {

// `given` (an option's value), else the variable GRADBUS_TOKEN_FILE, else "".
std::string token_file_path(const std::string& given);

// Whoever owns the file of a daemon knows its token and may change it. Root's tools act for the
// daemons' user, so they may read the file of any user.
enum class TokenReader { kDaemon, kTool };

// 64 hexadecimal digits (`openssl rand -hex 32`) or 32 raw bytes. GB-F104 for a file that group or
// others may read or write, that belongs to neither this user nor root, or that holds anything
// else. The file is opened once and judged by its descriptor.
Result<Secret> read_token_file(const std::string& path, TokenReader reader = TokenReader::kTool);

// As above; none for the path "".
Result<std::optional<Secret>> read_optional_token(const std::string& path, TokenReader reader);

// Makes a new file of mode 0600 with a random token, as hexadecimal digits. GB-F104 when it exists.
Status create_token_file(const std::string& path);

}  // namespace gradbus
