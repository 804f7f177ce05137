#include "server/coordinator/questions/tuned_settings.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/environment/state_folder.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/text/json_text.h"

namespace gradbus {
namespace {

using Json = nlohmann::json;

constexpr char kFile[] = "tuned.json";
constexpr uintmax_t kFileBytesMax = kStateBytesMax;
// All entries fit, each with 64 bytes of JSON around it.
static_assert(kTunedEntriesMax * (kTunedKeyBytesMax + kTunedValueBytesMax + 64) <= kFileBytesMax);

// Empty if it is no text of 1 to `most` bytes.
std::string text_of(const Json& object, const char* key, size_t most) {
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
  const std::string want = text_of(object_of(question), "want", 16);
  return want == "recall" || want == "remember";
}

Result<std::string> TunedSettings::answer(std::string_view question) {
  const Json asked = object_of(question);
  const std::string key = text_of(asked, "key", kTunedKeyBytesMax);
  const bool remembers = text_of(asked, "want", 16) == "remember";
  const std::string value = text_of(asked, "value", kTunedValueBytesMax);
  if (key.empty() || (remembers && value.empty()))
    return error("F102", "the settings of a job have no key, or no value, or are too long",
                 "use ranks, agents and coordinator of one version");
  if (!remembers) return Json{{"value", recall(key)}}.dump();
  remember(key, value);
  save();
  return std::string("{}");
}

std::string TunedSettings::recall(const std::string& key) const {
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  return found == entries_.end() ? std::string() : found->value;
}

void TunedSettings::remember(const std::string& key, const std::string& value) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
  if (entries_.size() == kTunedEntriesMax) entries_.pop_front();
  entries_.push_back({key, value});
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
    const std::string key = text_of(entry, "key", kTunedKeyBytesMax);
    const std::string value = text_of(entry, "value", kTunedValueBytesMax);
    if (!key.empty() && !value.empty()) remember(key, value);
  }
}

// A job does not fail because its result cannot be kept.
void TunedSettings::save() const {
  if (path_.empty()) return;
  Json list = Json::array();
  for (const Entry& entry : entries_) list.push_back({{"key", entry.key}, {"value", entry.value}});
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
