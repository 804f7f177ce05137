// Every error a person can meet: its number, its name, what it means and what to do next.
//
// One table, append-only; `gradbus explain GB-P101` prints a row. `error()` builds the one-line
// message of a row, so the number, the name and the code can never disagree.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/status.h"

namespace gradbus {

struct ErrorInfo {
  std::string_view id;    // "P101"
  std::string_view name;  // "PEER_LOST"
  Code code;
  std::string_view meaning;  // a sentence or two for the page
  std::string_view next;     // what to do, printed after "| next: "
};

std::span<const ErrorInfo> all_errors();

// The row of `id` ("P101" or "GB-P101"), or nullptr.
const ErrorInfo* find_error(std::string_view id);

// "GB-P101 PEER_LOST: <what> | next: <next>". An unknown id is our bug. `next` overrides the row's.
Status error(std::string_view id, std::string_view what, std::string_view next = {});

}  // namespace gradbus
