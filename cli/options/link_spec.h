// --link RATE[,DELAY]: what the simulated network between embedded agents is like, and the queues
// that make it so, as commands of tc. Pure; any thread.
//
//   agent 0 [ link0: tbf ] --- port0: tbf, netem [ bridge ] port1: tbf, netem --- [ link0: tbf ] 1
//
// Each cable is limited in both directions, as full-duplex Ethernet is: a frame pays for the
// sender's cable at its link0 and for the receiver's at the bridge's port, so that two senders
// share one receiver's rate. The delay is paid once, on the port.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/status.h"

namespace gradbus {

struct LinkSpec {
  uint64_t bits_per_second = 0;  // of frames, their headers counted; 100 kbit to 100 Gbit
  Nanos delay = 0;               // one way; 0: none
};

// Rates as tc writes them (1gbit, 2.5Gbit, 100mbit, 500kbit), delays in us, ms or s up to 1 s.
// GB-H200 names the part that is wrong.
Result<LinkSpec> parse_link(std::string_view text);

// Cluster networks carry jumbo frames (AWS: 9001, InfiniBand and most Ethernet fabrics: 9000), so
// headers cost 0.7 %. With the 1500 bytes of an office network they cost 4.4 %.
inline constexpr uint64_t kLinkMtu = 9000;

// What may pass at once after silence: a millisecond's worth, so that a late timer on a loaded
// machine loses no rate, and yet a small message is not faster than the link. Without
// high-resolution timers a queue wakes once per tick, so then a tick's worth (rate / HZ).
uint64_t link_burst_bytes(const LinkSpec& link, Nanos timer_resolution);

// The largest packet a sender hands to its queue. Above the burst the queue would have to cut it
// up; measured at 1gbit with a burst of 64 KiB: half the rate is lost.
uint64_t link_packet_bytes_max(uint64_t burst_bytes);

// One line for `tc -batch` each.
std::string rate_command(const std::string& device, const LinkSpec& link, uint64_t burst_bytes);
// Below the rate_command() of the same device.
std::string delay_command(const std::string& device, const LinkSpec& link);

}  // namespace gradbus
