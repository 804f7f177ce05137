// Which cluster token a command uses, and how one finds that of a `gradbus run`.
//
// An embedded cluster has a token of its own, in the run's private directory, beside a file with
// the coordinator's address. So `gradbus status --coordinator ADDRESS` works for the run's user.
#pragma once

#include <string>

#include "common/status.h"

namespace gradbus {

// The token file of a new embedded cluster in `directory`, which this user alone may enter.
Result<std::string> create_embedded_token(const std::string& directory);

// From now on token_file_for() finds it.
Status announce_embedded(const std::string& directory, const std::string& coordinator);

// `given`, else that of this user's embedded cluster whose coordinator is at `coordinator`, else
// GRADBUS_TOKEN_FILE, else that of this machine's daemons (node_settings.h), else "".
std::string token_file_for(const std::string& given, const std::string& coordinator);

}  // namespace gradbus
