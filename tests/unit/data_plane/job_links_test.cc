// The room that tensors reserve on a job's links, where they come and go.
#include "data_plane/job_links.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "transport/registry.h"

namespace gradbus {
namespace {

FrameHeader credit_of(uint32_t tensor) {
  FrameHeader header;
  header.kind = static_cast<uint8_t>(FrameKind::kCredit);
  header.tensor = tensor;
  return header;
}

// The peer has not connected yet, so credits wait. Tensors that are registered and unregistered
// meanwhile may not leave theirs behind: the room is for those that are there.
TEST(JobLinks, CreditsOfTensorsThatAreGoneLeaveTheirRoom) {
  auto transport = find_transport("loopback")->create({}).take();
  DepthHistogram queued;
  JobLinks links(*transport, {.job = 1, .epoch = 1, .link_key = 1, .agent_index = 0},
                 {"here", "there"}, queued);
  links.expect_credits(1, 1);
  links.send_credit(1, credit_of(1));  // this tensor stays
  for (uint32_t tensor = 2; tensor < 100; ++tensor) {
    links.expect_credits(1, 1);
    links.send_credit(1, credit_of(tensor));
    links.forget_credits(1, tensor, 1);
  }
  links.expect_credits(1, 1);
  links.send_credit(1, credit_of(100));
}

// Takes every post and sends nothing by itself.
class Recorder final : public Transport {
 public:
  Result<RegionId> register_memory(std::span<std::byte>) override { return RegionId{}; }
  void unregister_memory(RegionId) override {}
  std::string local_address() const override { return "here"; }
  Result<LinkId> connect(std::string_view, const FrameHeader&) override { return LinkId{}; }
  Code post_send(LinkId, const FrameHeader& header, Slice payload, uint64_t token) override {
    posted.push_back({header.tensor, payload.bytes, token});
    return Code::kOk;
  }
  Code post_receive(LinkId, Slice, uint64_t) override { return Code::kOk; }
  size_t poll(std::span<TransportEvent>) override { return 0; }
  void disconnect(LinkId) override {}
  int wait_fd() const override { return -1; }
  std::string link_error(LinkId) const override { return ""; }

  struct Post {
    uint32_t tensor;
    uint64_t bytes;
    uint64_t token;
  };
  std::vector<Post> posted;
};

class OrderedLinks : public testing::Test {
 protected:
  static constexpr uint64_t kFrame = 256 << 10;
  static constexpr uint64_t kAhead = 1 << 20;  // kOrderedBytesMax of job_links.cc

  OrderedLinks() {
    EXPECT_TRUE(links_.expect_sends(1, 200).ok());
    links_.connected(LinkId{});
  }
  void send(uint32_t tensor, uint32_t priority, uint64_t bytes = kFrame) {
    FrameHeader header;
    header.tensor = tensor;
    links_.send_data(1, header, Slice{.region = {}, .offset = 0, .bytes = bytes},
                     {{tensor, 0}, Action()}, priority);
  }

  Recorder transport_;
  DepthHistogram queued_;
  JobLinks links_{transport_,
                  {.job = 1, .epoch = 1, .link_key = 1, .agent_index = 0},
                  {"here", "there"},
                  queued_};
};

TEST_F(OrderedLinks, FramesWithoutPrioritiesArePostedAtOnce) {
  for (int i = 0; i < 100; ++i) send(1, 0);
  EXPECT_EQ(links_.flush(), 100u);
}

// 0 to 5 frames wait when each of six comes, and none when the next one comes after a flush.
TEST_F(OrderedLinks, TheDepthOfTheQueueIsCounted) {
  for (int i = 0; i < 6; ++i) send(1, 0);
  links_.flush();
  send(1, 0);
  const HistogramSample seen = queued_.sample();
  EXPECT_EQ(seen.counts[0], 2u);  // none
  EXPECT_EQ(seen.counts[1], 1u);  // one
  EXPECT_EQ(seen.counts[2], 3u);  // two to four
  EXPECT_EQ(seen.counts[3], 1u);  // five
  EXPECT_EQ(seen.sum, 0u + 1 + 2 + 3 + 4 + 5 + 0);
}

// Property: at no time the transport has more than kAhead and a frame, each frame is posted once,
// and what waits goes in the order of priorities.
TEST_F(OrderedLinks, AnUrgentFrameWaitsForFewBytes) {
  for (int i = 0; i < 100; ++i) send(1, 7);
  links_.flush();
  size_t sent = 0;
  const auto outstanding = [&] { return (transport_.posted.size() - sent) * kFrame; };
  EXPECT_EQ(outstanding(), kAhead);
  for (int i = 0; i < 3; ++i) send(2, 0);
  links_.flush();
  EXPECT_EQ(outstanding(), kAhead) << "nothing overtakes what the transport has";
  while (sent < transport_.posted.size()) {
    const SendRecord record = links_.take_sent(LinkId{}, transport_.posted[sent].token);
    EXPECT_EQ(record.operation.tensor, transport_.posted[sent].tensor);
    ++sent;
    links_.flush();
    ASSERT_LE(outstanding(), kAhead);
  }
  ASSERT_EQ(sent, 103u);
  std::vector<uint32_t> order;
  for (const Recorder::Post& post : transport_.posted) order.push_back(post.tensor);
  std::vector<uint32_t> expected(4, 1);
  expected.insert(expected.end(), 3, 2);
  expected.insert(expected.end(), 96, 1);
  EXPECT_EQ(order, expected);
}

// Random sizes, priorities and ends: each byte is posted once, the budget is never exceeded by more
// than the frame that reaches it, and no frame is left behind.
TEST_F(OrderedLinks, EachFrameIsSentOnceWithinTheBudget) {
  std::mt19937_64 random(31);
  std::vector<uint64_t> bytes_of;  // by tensor: each frame has a number of its own
  size_t ended = 0;
  uint64_t outstanding = 0;
  size_t counted = 0;
  const auto flush = [&] {
    links_.flush();
    for (; counted < transport_.posted.size(); ++counted)
      outstanding += transport_.posted[counted].bytes;
    const uint64_t last = transport_.posted.empty() ? 0 : transport_.posted.back().bytes;
    ASSERT_LT(outstanding, kAhead + std::max<uint64_t>(last, 1));
  };
  send(0, 1, 1);  // from here on, the order matters
  bytes_of.push_back(1);
  for (int i = 0; i < 5000; ++i) {
    const bool may_send = bytes_of.size() - ended < 190;
    if (may_send && random() % 2 == 0) {
      bytes_of.push_back(1 + random() % (512 << 10));
      send(static_cast<uint32_t>(bytes_of.size() - 1), static_cast<uint32_t>(random() % 9),
           bytes_of.back());
    } else if (ended < transport_.posted.size()) {
      links_.take_sent(LinkId{}, transport_.posted[ended].token);
      outstanding -= transport_.posted[ended++].bytes;
    }
    flush();
  }
  while (ended < transport_.posted.size()) {
    links_.take_sent(LinkId{}, transport_.posted[ended].token);
    outstanding -= transport_.posted[ended++].bytes;
    flush();
  }
  std::vector<uint64_t> posted(bytes_of.size());
  for (const Recorder::Post& post : transport_.posted) posted[post.tensor] += post.bytes;
  EXPECT_EQ(posted, bytes_of);
  EXPECT_EQ(transport_.posted.size(), bytes_of.size());
}

}  // namespace
}  // namespace gradbus
