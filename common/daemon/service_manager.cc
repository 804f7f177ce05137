#include "common/daemon/service_manager.h"

#include <systemd/sd-daemon.h>

namespace gradbus {

void tell_ready(const std::string& status) { sd_notify(0, ("READY=1\nSTATUS=" + status).c_str()); }

void tell_status(const std::string& status) { sd_notify(0, ("STATUS=" + status).c_str()); }

// The time is what `Type=notify-reload` of newer versions expects.
void tell_reloading() {
  sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%lld", static_cast<long long>(monotonic_now() / 1000));
}

void tell_stopping() { sd_notify(0, "STOPPING=1\nSTATUS=stopping"); }

void tell_alive() { sd_notify(0, "WATCHDOG=1"); }

Nanos watchdog_time() {
  uint64_t microseconds = 0;
  if (sd_watchdog_enabled(0, &microseconds) <= 0) return 0;
  return static_cast<Nanos>(microseconds) * 1000;
}

}  // namespace gradbus
