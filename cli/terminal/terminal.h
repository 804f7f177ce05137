// What may be written to a descriptor that is a terminal. Any thread.
#pragma once

#include <cstddef>

namespace gradbus {

// Whether it is a terminal that obeys escape sequences: TERM names its kind, and not "dumb".
bool moves_cursor(int fd);

// Whether it also may show colours: NO_COLOR is not set.
bool shows_colour(int fd);

// Columns of the terminal; 80 where there is none, or where its size is not known.
size_t terminal_columns(int fd);

}  // namespace gradbus
