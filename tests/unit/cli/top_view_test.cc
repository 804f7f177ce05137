// The screen of `gradbus top`: each key gives its order, and a wrong key none.
#include "cli/status/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

namespace gradbus {
namespace {

using ::testing::ElementsAre;

struct Figures {
  double waiting;
  uint64_t bytes;
  double operations;
  const char* state = "joined";
};

// A running job whose ranks have these figures, in turn.
void add_job(v1::StatusReply& reply, const std::string& name, const std::vector<Figures>& ranks) {
  v1::JobStatus* job = reply.add_jobs();
  job->set_job(name);
  job->set_state("running");
  for (const Figures& figures : ranks) {
    const int number = job->ranks_size();
    v1::RankStatus* rank = job->add_ranks();
    rank->set_rank(static_cast<uint32_t>(number));
    rank->set_agent("node-a");
    rank->set_state(figures.state);
    rank->set_waiting(figures.waiting);
    rank->set_bytes_per_s(figures.bytes);
    rank->set_operations_per_s(figures.operations);
  }
}

v1::StatusReply reply_of_five() {
  v1::StatusReply reply;
  add_job(reply, "a", {{0.5, 2000, 30}, {0.1, 1000, 20}, {0.0, 0, 0, "lost"}});
  add_job(reply, "b", {{0.3, 3000, 10}, {0.2, 500, 40}});
  return reply;
}

// Job and rank of each row of the table, in the order of the screen.
std::vector<std::string> rows_after(char key, const v1::StatusReply& reply) {
  TopView view{.address = "127.0.0.1:7400"};
  EXPECT_TRUE(set_order(key, view.order)) << key;
  std::istringstream lines(top_text(reply, view));
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string job, rank, node;
    if (words >> job >> rank >> node && node == "node-a") rows.push_back(job + rank);
  }
  return rows;
}

TEST(TopView, KeysSortRanksAndShowLostOnesFirst) {
  const v1::StatusReply reply = reply_of_five();
  EXPECT_THAT(rows_after('w', reply), ElementsAre("a2", "a1", "b1", "b0", "a0"));
  EXPECT_THAT(rows_after('b', reply), ElementsAre("a2", "b0", "a0", "a1", "b1"));
  EXPECT_THAT(rows_after('o', reply), ElementsAre("a2", "b1", "a0", "a1", "b0"));
  EXPECT_THAT(rows_after('r', reply), ElementsAre("a0", "a1", "a2", "b0", "b1"));
}

TEST(TopView, EqualRanksStayInTheOrderOfNumbers) {
  v1::StatusReply reply;
  add_job(reply, "a", {{0.5, 1, 1}, {0.5, 1, 1}, {0.5, 1, 1}});
  for (const char key : {'w', 'b', 'o', 'r'})
    EXPECT_THAT(rows_after(key, reply), ElementsAre("a0", "a1", "a2")) << key;
}

TEST(TopView, OtherKeysLeaveTheOrder) {
  TopOrder order = TopOrder::kBytes;
  for (const char key : {'q', 'n', 'j', 'k', 'W', ' '}) EXPECT_FALSE(set_order(key, order)) << key;
  EXPECT_EQ(order, TopOrder::kBytes);
}

}  // namespace
}  // namespace gradbus
