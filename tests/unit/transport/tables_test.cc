// The small containers that all backends share, and the table of backends.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "transport/bounded_queue.h"
#include "transport/link_table.h"
#include "transport/region_table.h"
#include "transport/registry.h"

namespace gradbus {
namespace {

TEST(BoundedQueue, BehavesLikeADequeWithinItsRoom) {
  BoundedQueue<int> queue(5);
  std::deque<int> model;
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    if (i == 1000) queue.reserve(20);
    const size_t room = i < 1000 ? 5 : 20;
    if (random() % 2 == 0 && model.size() < room) {
      queue.push(i);
      model.push_back(i);
    } else if (!model.empty()) {
      queue.pop();
      model.pop_front();
    }
    ASSERT_EQ(queue.size(), model.size());
    for (size_t k = 0; k < model.size(); ++k) ASSERT_EQ(queue[k], model[k]);
  }
}

TEST(BoundedQueueDeathTest, APushWithoutRoomIsOurBug) {
  BoundedQueue<int> queue(2);
  queue.push(1);
  queue.push(2);
  EXPECT_DEATH(queue.push(3), "");
}

TEST(RegionTable, ResolvesWhatLiesInsideAndNothingElse) {
  std::vector<std::byte> memory(100);
  RegionTable table;
  const RegionId region = table.add(memory);
  EXPECT_EQ(table.resolve({region, 0, 100})->data(), memory.data());
  EXPECT_EQ(table.resolve({region, 40, 60})->data(), memory.data() + 40);
  EXPECT_FALSE(table.resolve({region, 40, 61}));
  EXPECT_FALSE(table.resolve({region, UINT64_MAX, 2}));
  EXPECT_FALSE(table.resolve({region, 2, UINT64_MAX}));
  EXPECT_FALSE(table.resolve({RegionId{region.index + 1}, 0, 1}));
  EXPECT_TRUE(table.resolve({RegionId{77}, 5, 0})->empty());
  table.remove(region);
  table.remove(region);
  EXPECT_FALSE(table.resolve({region, 0, 1}));
  const RegionId first = table.add(memory);
  EXPECT_NE(first.index, table.add(memory).index) << "removed twice, given out once";
}

struct FakeLink {
  LinkId id;
};

TEST(LinkTable, AnIndexRestsBeforeItIsUsedAgain) {
  LinkTable<FakeLink> table;
  const LinkId first = table.add(std::make_unique<FakeLink>()).id;
  table.set_error(first, "why");
  table.remove(first);
  for (size_t i = 0; i < kLinksAtRest; ++i) {
    const LinkId other = table.add(std::make_unique<FakeLink>()).id;
    EXPECT_NE(other, first);
    EXPECT_EQ(table.find(first), nullptr);
    EXPECT_EQ(table.error(first), "why");
    table.remove(other);
  }
  EXPECT_EQ(table.add(std::make_unique<FakeLink>()).id, first);
  EXPECT_EQ(table.error(first), "");
  EXPECT_EQ(table.find(LinkId{9999}), nullptr);
}

TEST(Registry, RowsAreFoundByTheirNames) {
  EXPECT_NE(find_transport("tcp"), nullptr);
  EXPECT_NE(find_transport("loopback"), nullptr);
  EXPECT_NE(find_transport("rdma"), nullptr);
  EXPECT_TRUE(find_transport("tcp")->available().ok());
  EXPECT_EQ(find_transport("carrier pigeon"), nullptr);
  for (const TransportRow& row : all_transports()) {
    EXPECT_EQ(find_transport(row.name), &row);
    const Status status = row.available();  // what this machine lacks has a reason
    EXPECT_TRUE(status.ok() || status.code() == Code::kUnavailable) << row.name;
    EXPECT_FALSE(row.summary.empty());
  }
}

TEST(Registry, ATakenLoopbackAddressIsNamed) {
  TransportOptions options;
  options.bind_address = "loopback:twice";
  const TransportRow* row = find_transport("loopback");
  const auto first = row->create(options);
  ASSERT_TRUE(first.ok());
  const auto second = row->create(options);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("GB-D603"), std::string::npos);
  EXPECT_NE(second.status().message().find("loopback:twice"), std::string::npos);
}

}  // namespace
}  // namespace gradbus
