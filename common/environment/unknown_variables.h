// Warnings about variables GRADBUS_... that nothing reads: mostly typing errors.
//
// A process and its children report a name once. A program that starts others calls
// take_unknown_variables(), which notes the names in GRADBUS_VARIABLES_REPORTED.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradbus {

// "NAME=VALUE" of each variable of this process.
std::vector<std::string> environment_words();

// A line GB-F105 for each unknown variable that is not yet reported. Pure.
std::vector<std::string> unknown_variables(const std::vector<std::string>& environment);

// The lines for this process's environment. Later calls, here and in children, omit the same names.
// Changes the environment, so call it before there are threads.
std::vector<std::string> take_unknown_variables();

}  // namespace gradbus
