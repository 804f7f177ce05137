// Where an administrator's commands find the coordinator and the token of their machine.
#include "cli/cluster/node_settings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace gradbus {
namespace {

class NodeSettings : public testing::Test {
 protected:
  NodeSettings() { std::filesystem::create_directories(folder_); }
  ~NodeSettings() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
  }

  const std::string folder_ = testing::TempDir() + "/node_settings-" + std::to_string(getpid());
};

TEST_F(NodeSettings, AreNoneWithoutFiles) {
  EXPECT_EQ(node_coordinator(folder_), "");
  EXPECT_EQ(node_token("", folder_), "");
}

TEST_F(NodeSettings, OfTheAgentComeFirst) {
  write("server.toml", "[server]\nlisten = \"0.0.0.0:7500\"\n");
  EXPECT_EQ(node_coordinator(folder_), "127.0.0.1:7500");
  write("server.toml", "[server]\nlisten = \"[::]:7500\"\n");
  EXPECT_EQ(node_coordinator(folder_), "[::1]:7500");
  write("shard.toml", "[agent]\ncoordinator = \"10.0.0.2:7400\"\n");
  EXPECT_EQ(node_coordinator(folder_), "10.0.0.2:7400");
  write("agent.toml", "[agent]\nbind = \"10.0.0.3\"\ncoordinator = \"10.0.0.1:7400\"  # head\n");
  EXPECT_EQ(node_coordinator(folder_), "10.0.0.1:7400");
}

TEST_F(NodeSettings, OfDamagedFilesAreLeftOut) {
  write("agent.toml", "[agent\ncoordinator = ");
  write("shard.toml", "[agent]\ncoordinator = 7\n");
  EXPECT_EQ(node_coordinator(folder_), "");
  write("server.toml", "[server]\nlisten = \"10.0.0.1:7400\"\n");
  EXPECT_EQ(node_coordinator(folder_), "10.0.0.1:7400");
}

TEST_F(NodeSettings, GiveTheTokenForTheirCoordinatorOnly) {
  write("agent.toml", "[agent]\ncoordinator = \"10.0.0.1:7400\"\n");
  EXPECT_EQ(node_token("10.0.0.1:7400", folder_), "") << "there is no file";
  write("token", std::string(64, 'a'));
  EXPECT_EQ(node_token("10.0.0.1:7400", folder_), folder_ + "/token");
  EXPECT_EQ(node_token("10.9.9.9:7400", folder_), "");
}

}  // namespace
}  // namespace gradbus
