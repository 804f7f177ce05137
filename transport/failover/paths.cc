#include "transport/failover/paths.h"

#include "common/errors.h"

namespace gradbus {

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> words;
  for (size_t comma = text.find(','); comma != std::string_view::npos; comma = text.find(',')) {
    words.emplace_back(text.substr(0, comma));
    text.remove_prefix(comma + 1);
  }
  words.emplace_back(text);
  return words;
}

std::string format_paths(const std::vector<PathAddress>& paths) {
  std::string text;
  for (const PathAddress& path : paths)
    text += (text.empty() ? "" : ",") + path.transport + "=" + path.address;
  return text;
}

Result<std::vector<PathAddress>> parse_paths(std::string_view text) {
  std::vector<PathAddress> paths;
  for (const std::string& word : split_list(text)) {
    const size_t equals = word.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == word.size())
      return error("F100", "address '" + std::string(text) +
                               "' is not a list of TRANSPORT=ADDRESS with commas between");
    paths.push_back({word.substr(0, equals), word.substr(equals + 1)});
  }
  if (paths.size() <= kPathsMax) return paths;
  return error("F100", "address '" + std::string(text) + "' lists " + std::to_string(paths.size()) +
                           " paths, at most " + std::to_string(kPathsMax) + " are allowed");
}

std::vector<PathPair> pair_paths(const std::vector<std::string>& own,
                                 const std::vector<PathAddress>& peer) {
  std::vector<PathPair> pairs;
  std::vector<bool> used(peer.size());
  const auto last_of = [&](const std::string& transport) {
    size_t last = own.size();
    for (size_t i = 0; i < own.size(); ++i)
      if (own[i] == transport) last = i;
    return last;
  };
  for (size_t i = 0; i < own.size(); ++i) {
    const bool last = last_of(own[i]) == i;
    bool more = true;
    for (size_t k = 0; k < peer.size() && more; ++k) {
      if (used[k] || peer[k].transport != own[i]) continue;
      used[k] = true;
      pairs.push_back({i, k});
      more = last;
    }
  }
  return pairs;
}

}  // namespace gradbus
