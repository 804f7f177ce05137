// Lines of `gradbus events`. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gradbus/v1/coordinator.pb.h"

namespace gradbus {

struct EventsView {
  int64_t now_s = 0;   // seconds since 1970, when the answer came
  size_t columns = 0;  // of the terminal: a longer line is folded; 0: none is
};

std::string events_head();
// With a line end. Times are local.
std::string event_line(const v1::Event& event, const EventsView& view);

}  // namespace gradbus
