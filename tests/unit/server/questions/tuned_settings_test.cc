// Tuned settings: what is kept over a restart, what is refused, and that they stay few.
#include "server/coordinator/questions/tuned_settings.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace gradbus {
namespace {

using Json = nlohmann::json;

class TunedSettingsTest : public testing::Test {
 protected:
  TunedSettingsTest() {
    char name[] = "/tmp/gradbus-tuned-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~TunedSettingsTest() override { std::filesystem::remove_all(folder_); }

  std::string file() const { return folder_ + "/tuned.json"; }
  void write(const std::string& text) const { std::ofstream(file()) << text; }

  std::string folder_;
};

constexpr uint32_t kUser = 1000;

void remember(TunedSettings& settings, const std::string& key, const std::string& value,
              uint32_t uid = kUser) {
  const auto done =
      settings.answer(Json{{"want", "remember"}, {"key", key}, {"value", value}}.dump(), uid);
  EXPECT_TRUE(done.ok()) << done.status().message();
}

std::string recall(TunedSettings& settings, const std::string& key, uint32_t uid = kUser) {
  const auto found = settings.answer(Json{{"want", "recall"}, {"key", key}}.dump(), uid);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? Json::parse(found.value())["value"].get<std::string>() : "";
}

TEST_F(TunedSettingsTest, TheNewestValueSurvivesARestart) {
  {
    TunedSettings settings(folder_ + "/made/on/demand");
    remember(settings, "model", "old");
    remember(settings, "other", "x");
    remember(settings, "model", "new");
    EXPECT_EQ(recall(settings, "model"), "new");
  }
  TunedSettings again(folder_ + "/made/on/demand");
  EXPECT_EQ(recall(again, "model"), "new");
  EXPECT_EQ(recall(again, "other"), "x");
  EXPECT_EQ(recall(again, "unknown"), "");
}

TEST_F(TunedSettingsTest, WithoutAFolderTheyAreKeptInMemory) {
  TunedSettings settings("");
  remember(settings, "model", "value");
  EXPECT_EQ(recall(settings, "model"), "value");
  TunedSettings other("");
  EXPECT_EQ(recall(other, "model"), "");
}

TEST_F(TunedSettingsTest, TheOldestOfTooManyGoes) {
  TunedSettings settings(folder_);
  for (size_t i = 0; i <= kTunedEntriesMax; ++i) remember(settings, std::to_string(i), "value");
  EXPECT_EQ(recall(settings, "0"), "");
  EXPECT_EQ(recall(settings, "1"), "value");
  EXPECT_EQ(recall(settings, std::to_string(kTunedEntriesMax)), "value");
}

// Another user can neither change what a job recalls, nor make room for himself.
TEST_F(TunedSettingsTest, UsersDoNotSeeEachOther) {
  {
    TunedSettings settings(folder_);
    remember(settings, "model", "mine");
    remember(settings, "model", "yours", kUser + 1);
    for (size_t i = 0; i <= kTunedEntriesMax; ++i)
      remember(settings, std::to_string(i), "junk", kUser + 1);
    EXPECT_EQ(recall(settings, "model"), "mine");
    EXPECT_EQ(recall(settings, "model", kUser + 1), "");
  }
  TunedSettings again(folder_);
  EXPECT_EQ(recall(again, "model"), "mine");
  EXPECT_EQ(recall(again, "7"), "");
  EXPECT_EQ(recall(again, "7", kUser + 1), "junk");
}

TEST_F(TunedSettingsTest, ADamagedFileCountsAsEmptyAndIsReplaced) {
  for (const char* text : {"", "{", "{}", "[1, {}, {\"key\": 3}]", "[[[["}) {
    write(text);
    TunedSettings settings(folder_);
    EXPECT_EQ(recall(settings, "model"), "") << text;
    remember(settings, "model", "value");
    TunedSettings again(folder_);
    EXPECT_EQ(recall(again, "model"), "value") << text;
  }
}

TEST_F(TunedSettingsTest, AFolderThatCannotBeWrittenIsNoError) {
  TunedSettings settings("/proc/gradbus");
  remember(settings, "model", "value");
  EXPECT_EQ(recall(settings, "model"), "value");
}

TEST_F(TunedSettingsTest, OnlyItsOwnQuestionsAreAnswered) {
  EXPECT_TRUE(TunedSettings::is_for(R"({"want": "recall"})"));
  EXPECT_TRUE(TunedSettings::is_for(R"({"want": "remember"})"));
  for (const char* text : {R"({"want": "plan"})", R"({"want": 3})", "[]", "", "{"})
    EXPECT_FALSE(TunedSettings::is_for(text)) << text;
  TunedSettings settings("");
  const std::string key(kTunedKeyBytesMax + 1, 'k');
  const std::string value(kTunedValueBytesMax + 1, 'v');
  for (const Json& asked :
       {Json{{"want", "recall"}}, Json{{"want", "recall"}, {"key", ""}},
        Json{{"want", "recall"}, {"key", key}}, Json{{"want", "recall"}, {"key", 7}},
        Json{{"want", "remember"}, {"key", "k"}},
        Json{{"want", "remember"}, {"key", "k"}, {"value", value}}})
    EXPECT_NE(settings.answer(asked.dump(), kUser).status().message().find("GB-F102"),
              std::string::npos)
        << asked;
}

}  // namespace
}  // namespace gradbus
