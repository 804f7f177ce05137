// Is a text valid UTF-8? Names travel in protobuf strings, which refuse anything else on arrival:
// so they are checked where they come in. Pure; any thread.
#pragma once

#include <string_view>

namespace gradbus {

// Also false for overlong forms, surrogates and code points above U+10FFFF (RFC 3629).
bool is_utf8(std::string_view text);

}  // namespace gradbus
