// The parts of an error's line (common/errors.h). Pure, any thread.
#pragma once

#include <string>
#include <string_view>

namespace gradbus {

// "GB-P101 PEER_LOST: what | next: advice" reduced to "what", to be part of another error. Text in
// front of the number stays. A text of another form is returned as it is.
std::string what_of(std::string_view message);

}  // namespace gradbus
