// The order of frames that wait for one peer.
#include "data_plane/send_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

namespace gradbus {
namespace {

using testing::ElementsAre;

std::vector<uint32_t> all_of(SendQueue& queue) {
  std::vector<uint32_t> tokens;
  while (!queue.empty()) tokens.push_back(queue.pop());
  return tokens;
}

TEST(SendQueue, EqualPrioritiesStayInOrder) {
  SendQueue queue;
  queue.reserve(100);
  std::vector<uint32_t> pushed;
  for (uint32_t token = 0; token < 100; ++token) {
    queue.push(token, 3);
    pushed.push_back(token);
  }
  EXPECT_EQ(all_of(queue), pushed);
}

TEST(SendQueue, TheUrgentOvertake) {
  SendQueue queue;
  queue.reserve(4);
  queue.push(1, 2);
  queue.push(2, 1);
  queue.push(3, 0);
  queue.push(4, 1);
  EXPECT_EQ(queue.front(), 3u);
  EXPECT_THAT(all_of(queue), ElementsAre(3, 2, 4, 1));
}

TEST(SendQueue, IsOrderedOnceAPriorityCame) {
  SendQueue queue;
  queue.reserve(2);
  queue.push(1, 0);
  EXPECT_FALSE(queue.is_ordered());
  queue.push(2, 1);
  EXPECT_TRUE(queue.is_ordered());
}

// An urgent frame for every one that is sent: the least urgent one still goes after
// kFramesPerPriority of them for each step of priority.
TEST(SendQueue, NothingStarves) {
  SendQueue queue;
  queue.reserve(8);
  constexpr uint32_t kPatient = 1000;
  queue.push(kPatient, 5);
  uint64_t sent = 0;
  for (uint32_t token = 0; token != kPatient; ++sent) {
    queue.push(0, 0);
    token = queue.pop();
    ASSERT_LE(sent, 5 * SendQueue::kFramesPerPriority + 1);
  }
}

// Against the definition: the smallest turn goes first, of equal ones the oldest.
TEST(SendQueue, IsWhatItSays) {
  SendQueue queue;
  queue.reserve(64);
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> model;  // turn, number; token
  std::mt19937 random(7);
  uint64_t pushed = 0;
  for (uint32_t token = 0; token < 50'000; ++token) {
    if (model.size() < 64 && random() % 2 == 0) {
      const uint32_t priority = random() % 4;
      queue.push(token, priority);
      model[{pushed + SendQueue::kFramesPerPriority * priority, pushed}] = token;
      ++pushed;
    } else if (!model.empty()) {
      ASSERT_EQ(queue.size(), model.size());
      ASSERT_EQ(queue.pop(), model.begin()->second);
      model.erase(model.begin());
    }
  }
  EXPECT_GT(pushed, 10'000u);
}

}  // namespace
}  // namespace gradbus
