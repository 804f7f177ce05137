#include "server/coordinator/questions/tuned_settings.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "common/environment/state_folder.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/text/json_text.h"

namespace gradbus {
namespace {

using Json = nlohmann::json;

constexpr char kFile[] = "tuned.json";
constexpr uintmax_t kFileBytesMax = kStateBytesMax;
// All entries fit, each with 96 bytes of JSON around it.
static_assert(kTunedEntriesMax * (kTunedKeyBytesMax + kTunedValueBytesMax + 96) <= kFileBytesMax);

// Empty if it is no text of 1 to `most` bytes.
std::string setting_text(const Json& object, const char* key, size_t most) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return {};
  std::string text = found->get<std::string>();
  return text.size() <= most ? text : std::string();
}

Json object_of(std::string_view text) {
  Json parsed = parse_json(text);
  return parsed.is_object() ? parsed : Json::object();
}

}  // namespace

TunedSettings::TunedSettings(const std::string& folder) {
  if (folder.empty()) return;
  path_ = folder + "/" + kFile;
  load();
}

bool TunedSettings::is_for(std::string_view question) {
  const std::string want = setting_text(object_of(question), "want", 16);
  return want == "recall" || want == "remember";
}

Result<std::string> TunedSettings::answer(std::string_view question, uint32_t uid) {
  const Json asked = object_of(question);
  const std::string key = setting_text(asked, "key", kTunedKeyBytesMax);
  const bool remembers = setting_text(asked, "want", 16) == "remember";
  const std::string value = setting_text(asked, "value", kTunedValueBytesMax);
  if (key.empty() || (remembers && value.empty()))
    return error("F102", "the settings of a job have no key, or no value, or are too long",
                 "use ranks, agents and coordinator of one version");
  if (!remembers) return Json{{"value", recall(uid, key)}}.dump();
  remember({uid, key, value});
  save();
  return std::string("{}");
}

std::string TunedSettings::recall(uint32_t uid, const std::string& key) const {
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.uid == uid && entry.key == key; });
  return found == entries_.end() ? std::string() : found->value;
}

void TunedSettings::remember(Entry entry) {
  std::erase_if(entries_,
                [&](const Entry& old) { return old.uid == entry.uid && old.key == entry.key; });
  if (entries_.size() == kTunedEntriesMax) forget_one();
  entries_.push_back(std::move(entry));
}

void TunedSettings::forget_one() {
  std::map<uint32_t, size_t> entries_of;
  for (const Entry& entry : entries_) ++entries_of[entry.uid];
  const auto most =
      std::ranges::max_element(entries_of, {}, [](const auto& of_user) { return of_user.second; });
  entries_.erase(std::ranges::find(entries_, most->first, &Entry::uid));
}

void TunedSettings::load() {
  std::error_code problem;
  const uintmax_t size = std::filesystem::file_size(path_, problem);
  if (problem) return;  // the first job
  std::ifstream file(path_, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const Json found = size > kFileBytesMax ? Json() : parse_json(text);
  if (!found.is_array()) {
    spdlog::warn("coordinator: {} is no list of tuned settings, and is replaced", path_);
    return;
  }
  for (const Json& entry : found) {
    if (!entry.is_object()) continue;
    const std::string key = setting_text(entry, "key", kTunedKeyBytesMax);
    const std::string value = setting_text(entry, "value", kTunedValueBytesMax);
    const auto uid = entry.find("uid");
    const bool owned = uid != entry.end() && uid->is_number_unsigned();
    if (owned && !key.empty() && !value.empty()) remember({uid->get<uint32_t>(), key, value});
  }
}

// A job does not fail because its result cannot be kept.
void TunedSettings::save() const {
  if (path_.empty()) return;
  Json list = Json::array();
  for (const auto& [uid, key, value] : entries_)
    list.push_back({{"uid", uid}, {"key", key}, {"value", value}});
  const std::filesystem::path draft = path_ + ".draft";
  std::error_code problem;
  std::filesystem::create_directories(draft.parent_path(), problem);
  std::ofstream file(draft, std::ios::binary | std::ios::trunc);
  file << list.dump(1) << '\n';
  file.close();
  if (file.good()) std::filesystem::rename(draft, path_, problem);
  if (!file.good() || problem)
    spdlog::warn("coordinator: {} cannot be written, so tuned settings end with this process",
                 path_);
}

}  // namespace gradbus
