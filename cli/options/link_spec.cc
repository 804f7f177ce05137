#include "cli/options/link_spec.h"

#include <algorithm>
#include <cmath>

#include "common/bit_rate.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr uint64_t kFrameBytes = kLinkMtu + 14;  // with the Ethernet header, which tbf counts
constexpr Nanos kBurst = kMillisecond;
constexpr Nanos kQueue = 50 * kMillisecond;  // a deep switch buffer; beyond it packets are dropped
constexpr double kBitsMin = 1e5;             // a frame would take 0.7 s
constexpr double kBitsMax = 1e11;
constexpr double kLinkDelayMax = kSecond;
constexpr char kExample[] = "for example: --link 1gbit or --link 100mbit,200us";

constexpr QuantityUnit kDelays[] = {{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}};

Status bad_part(std::string_view what, std::string_view text, std::string_view wanted) {
  return error("H200",
               "--link's " + std::string(what) + " is \"" + std::string(text.substr(0, 40)) +
                   "\", not " + std::string(wanted),
               kExample);
}

uint64_t bytes_in(const LinkSpec& link, Nanos time) {
  return static_cast<uint64_t>(static_cast<double>(link.bits_per_second) / 8 *
                               static_cast<double>(time) / kSecond);
}

}  // namespace

Result<LinkSpec> parse_link(std::string_view text) {
  const size_t comma = text.find(',');
  const std::string_view rate = text.substr(0, comma);
  const double bits = parse_bit_rate(rate);
  if (!(bits >= kBitsMin && bits <= kBitsMax))
    return bad_part("rate", rate, "100kbit to 100gbit, in kbit, mbit or gbit");
  LinkSpec link{static_cast<uint64_t>(bits), 0};
  if (comma == std::string_view::npos) return link;
  const std::string_view delay = text.substr(comma + 1);
  const double nanos = parse_quantity(delay, kDelays);
  if (!(nanos >= 1e3 && nanos <= kLinkDelayMax))
    return bad_part("delay", delay, "1us to 1s, in us, ms or s");
  link.delay = static_cast<Nanos>(nanos) / 1000 * 1000;  // tc takes whole microseconds
  return link;
}

// Never less than two frames: a bucket that cannot hold one passes nothing.
uint64_t link_burst_bytes(const LinkSpec& link, Nanos timer_resolution) {
  return std::max(bytes_in(link, std::max(kBurst, timer_resolution)), 2 * kFrameBytes);
}

uint64_t link_packet_bytes_max(uint64_t burst_bytes) {
  return std::clamp(burst_bytes / 2, kFrameBytes, uint64_t{65536});
}

std::string rate_command(const std::string& device, const LinkSpec& link, uint64_t burst_bytes) {
  return "qdisc add dev " + device + " root handle 1: tbf rate " +
         std::to_string(link.bits_per_second) + "bit burst " + std::to_string(burst_bytes) +
         "b latency " + std::to_string(kQueue / kMillisecond) + "ms\n";
}

// netem takes the place of tbf's own queue, so it must hold as much, and what is on its way. It
// counts packets: full frames at most, but many small ones (acknowledgements) may be among them.
std::string delay_command(const std::string& device, const LinkSpec& link) {
  const uint64_t packets = 1000 + bytes_in(link, kQueue + link.delay) / 1500;
  return "qdisc add dev " + device + " parent 1:1 handle 10: netem delay " +
         std::to_string(link.delay / 1000) + "us limit " + std::to_string(packets) + "\n";
}

}  // namespace gradbus
