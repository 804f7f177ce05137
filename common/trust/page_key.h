// The key of the coordinator's web page: whoever has it may read the page, and nothing else.
#pragma once

#include <string>

#include "common/trust/secret.h"

namespace gradbus {

// 32 hexadecimal digits made from the cluster token. The token cannot be found from them.
std::string page_key(const Secret& token);

}  // namespace gradbus
