// Is a text valid UTF-8? Names travel in protobuf strings, which refuse anything else on arrival:
// so they are checked where they come in. A message that is refused ends its stream, with all jobs
// of that node. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace gradbus {

// Also false for overlong forms, surrogates and code points above U+10FFFF (RFC 3629).
bool is_utf8(std::string_view text);

// The text with a question mark for each byte that is_utf8() refuses, for example of a character
// that was cut.
std::string as_utf8(std::string text);

}  // namespace gradbus
