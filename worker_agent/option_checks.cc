#include "worker_agent/option_checks.h"

#include <algorithm>
#include <charconv>

#include "common/bit_rate.h"
#include "common/errors.h"
#include "common/utf8.h"
#include "proto/control.h"

namespace gradbus {

Status check_node_name(const std::string& name) {
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (!name.empty() && name.size() <= kNodeNameBytesMax && is_utf8(name) &&
      std::ranges::none_of(name, is_control))
    return {};
  return error("F100", "--name must have 1 to " + std::to_string(kNodeNameBytesMax) +
                           " printable bytes of UTF-8, not " + std::to_string(name.size()) +
                           " bytes that the coordinator refuses");
}

Result<mode_t> parse_socket_mode(const std::string& text) {
  mode_t mode = 0;
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, mode, 8);
  if (text.empty() || problem != std::errc() || stop != end || mode > 0777)
    return error("F100", "--socket-mode \"" + text + "\" is not an octal number up to 0777");
  return mode;
}

Result<HugePages> parse_huge_pages(const std::string& text) {
  if (text == "transparent") return HugePages::kTransparent;
  if (text == "reserved") return HugePages::kReserved;
  if (text == "never") return HugePages::kNever;
  return error("F100", "--huge-pages \"" + text + "\" is not transparent, reserved or never");
}

Result<uint64_t> parse_bandwidth(const std::string& text) {
  if (text.empty()) return uint64_t{0};
  const double bits = parse_bit_rate(text);
  if (bits >= 1e5 && bits <= 1e13) return static_cast<uint64_t>(bits);
  return error("F100",
               "--bandwidth \"" + text.substr(0, 40) +
                   "\" is not 100kbit to 10000gbit, in kbit, mbit or gbit",
               "for example: --bandwidth 10gbit");
}

}  // namespace gradbus
