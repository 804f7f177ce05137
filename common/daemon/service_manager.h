// Messages to systemd (sd_notify(3)). Without systemd they do nothing. Any thread.
#pragma once

#include <string>

#include "common/clock.h"

namespace gradbus {

void tell_ready(const std::string& status);  // also when a reload has ended
void tell_status(const std::string& status);
void tell_reloading();
void tell_stopping();
void tell_alive();  // for the watchdog

// WatchdogSec of the unit; 0: there is no watchdog.
Nanos watchdog_time();

}  // namespace gradbus
