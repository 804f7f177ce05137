// Turns exceptions into statuses where work begins whose size a client, a peer, an RPC or a file
// decides: of one packet, record, frame or message. The caller ends the job that asked for it.
// After a failed allocation that job's state may be half made: only its destructor may follow.
#pragma once

#include <type_traits>
#include <utility>

#include "common/status.h"

namespace gradbus {

// In a catch block only. S202, with this process's memory, when an allocation failed or was too
// large for its container; else X001 with what the exception says.
Status status_of_exception() noexcept;

// Runs `work`, which returns a Status or nothing.
template <typename Work>
Status guarded(Work&& work) {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Work>>) {
      std::forward<Work>(work)();
      return {};
    } else {
      return std::forward<Work>(work)();
    }
  } catch (...) {
    return status_of_exception();
  }
}

}  // namespace gradbus
