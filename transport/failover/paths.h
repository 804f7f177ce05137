// The addresses of several paths in one text: "rdma=10.0.0.1:4000,tcp=10.0.0.1:4001", in the order
// of preference of the node that they lead to. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace gradbus {

inline constexpr size_t kPathsMax = 8;

struct PathAddress {
  std::string transport;
  std::string address;
};

std::string format_paths(const std::vector<PathAddress>& paths);
// GB-F100 for anything else, or more than kPathsMax.
Result<std::vector<PathAddress>> parse_paths(std::string_view text);

// "a,b" gives two words; an empty text gives one empty word.
std::vector<std::string> split_list(std::string_view text);

// The peer's paths that a node whose own are of these transports can take, in the order of `own`:
// the first of a transport with the peer's first of it, and so on; what the peer has more goes with
// the node's last of that transport.
struct PathPair {
  size_t own = 0;
  size_t peer = 0;
};
std::vector<PathPair> pair_paths(const std::vector<std::string>& own,
                                 const std::vector<PathAddress>& peer);

}  // namespace gradbus
