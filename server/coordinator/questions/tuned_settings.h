// Settings that jobs have found by trial, by model and cluster, for later jobs: a small file.
//
// One thread, that of the question desk. Keys and values come from training processes, so both are
// bounded, and the number of entries is, too: the one that was written longest ago goes. The file
// is replaced as a whole, so a crash leaves the earlier one. Without a folder, settings are kept in
// memory only.
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "common/status.h"

namespace gradbus {

inline constexpr size_t kTunedKeyBytesMax = 128;
inline constexpr size_t kTunedValueBytesMax = 1024;
inline constexpr size_t kTunedEntriesMax = 256;

class TunedSettings {
 public:
  // Reads what is there; a file that cannot be read is logged and counts as empty.
  explicit TunedSettings(const std::string& folder);

  // The answers to
  //   {"want": "recall", "key": "..."}                   ->  {"value": "..."}, "" if there is none
  //   {"want": "remember", "key": "...", "value": "..."} ->  {}
  // GB-F102 for anything else.
  Result<std::string> answer(std::string_view question);

  // Whether a question is one of these.
  static bool is_for(std::string_view question);

 private:
  struct Entry {
    std::string key;
    std::string value;
  };

  void load();
  void save() const;
  void remember(const std::string& key, const std::string& value);
  std::string recall(const std::string& key) const;

  std::string path_;
  std::deque<Entry> entries_;  // the newest last
};

}  // namespace gradbus
