// Warnings about the environment of a process, printed once by init().
//
// A process may find a world of one rank although a launcher started it. Each process then trains
// alone and no error follows. Only variables that hold a rank or a number of ranks count: images
// and allocations set many others for processes that are rightly alone.
#pragma once

#include <string>

#include "client_lib/src/launch_env.h"

namespace gradbus {

// The warning's one line (GB-J407), or "" when nothing contradicts a world of one. Explicit
// arguments and GRADBUS_SIZE=1 are never contradicted.
std::string alone_warning(const LaunchIdentity& identity, const ReadVariable& read);

// Prints it on stderr, at most once in a process. Any thread.
void warn_if_alone(const LaunchIdentity& identity);

// On stderr, once per process: GB-F105 for variables GRADBUS_... that nothing reads.
void warn_of_unknown_variables();

}  // namespace gradbus
