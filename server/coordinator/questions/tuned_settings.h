// Settings that jobs have found by trial, by model and cluster, for later jobs: a small file.
//
// Only the question desk's thread uses it. Keys and values come from training processes, so their
// sizes and their number are limited. When the file is full, the oldest entry of the user with most
// entries is removed. A user's jobs see only entries of that user. The file is replaced as a whole,
// so a crash leaves the earlier one. Without a folder, settings are kept in memory only.
#pragma once

#include <cstdint>
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
  // for a job of this user. GB-F102 for anything else.
  Result<std::string> answer(std::string_view question, uint32_t uid);

  // Whether a question is one of these.
  static bool is_for(std::string_view question);

 private:
  struct Entry {
    uint32_t uid = 0;
    std::string key;
    std::string value;
  };

  void load();
  void save() const;
  void remember(Entry entry);
  std::string recall(uint32_t uid, const std::string& key) const;
  void forget_one();

  std::string path_;
  std::deque<Entry> entries_;  // the newest last
};

}  // namespace gradbus
