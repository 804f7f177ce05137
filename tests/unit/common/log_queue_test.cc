#include "common/daemon/log_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace gradbus {
namespace {

using ::testing::ElementsAre;
using namespace std::chrono_literals;

constexpr auto kDeadline = 20s;

// A reader that takes nothing while it is stopped.
class Reader {
 public:
  LogQueue& queue() { return queue_; }
  void stop() { stopped_ = true; }
  void go_on() {
    stopped_ = false;
    stopped_.notify_all();
  }
  void take_at_once(size_t bytes) { at_once_ = bytes; }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  std::vector<uint64_t> losses() {
    const std::lock_guard lock(mutex_);
    return losses_;
  }

 private:
  size_t take(std::string_view record) {
    if (stopped_) return 0;
    const std::lock_guard lock(mutex_);
    text_ += record.substr(0, at_once_);
    return std::min(record.size(), at_once_);
  }
  void take_all(std::string_view record) {
    stopped_.wait(true);
    const std::lock_guard lock(mutex_);
    text_ += record;
  }
  void lose(uint64_t lost) {
    const std::lock_guard lock(mutex_);
    losses_.push_back(lost);
  }

  std::mutex mutex_;
  std::string text_;
  std::vector<uint64_t> losses_;
  std::atomic<bool> stopped_ = false;
  size_t at_once_ = SIZE_MAX;
  // Never destroyed, as its thread lives on.
  LogQueue& queue_ = *new LogQueue({[this](std::string_view record) { return take(record); },
                                    [this](std::string_view record) { take_all(record); },
                                    [this](uint64_t lost) { lose(lost); }});
};

// Threads of queues live until the process ends, so readers do, too.
Reader& new_reader() {
  static auto* const kReaders = new std::deque<Reader>;
  return kReaders->emplace_back();
}

TEST(LogQueueTest, WritesAtOnceWhatTheReaderTakes) {
  Reader& reader = new_reader();
  reader.queue().put("one\n");
  reader.queue().put("two\n");
  EXPECT_EQ(reader.text(), "one\ntwo\n");
}

TEST(LogQueueTest, KeepsTheOrderOfRecordsAndTheRestOfOne) {
  Reader& reader = new_reader();
  reader.take_at_once(2);
  for (int number = 0; number < 100; ++number)
    reader.queue().put("record " + std::to_string(number) + "\n");
  reader.queue().flush(kDeadline);
  std::string all;
  for (int number = 0; number < 100; ++number) all += "record " + std::to_string(number) + "\n";
  EXPECT_EQ(reader.text(), all);
}

TEST(LogQueueTest, AReaderThatStopsStopsNobodyAndHearsOfLostRecords) {
  Reader& reader = new_reader();
  const std::string record(1000, 'x');
  constexpr size_t kRecords = 3000;  // 3 MB
  reader.stop();
  for (size_t number = 0; number < kRecords; ++number) reader.queue().put(record);
  reader.queue().flush(1ms);  // does not wait for the reader
  const uint64_t kept = kLogQueueBytes / record.size();
  EXPECT_EQ(reader.queue().lost(), kRecords - kept);
  reader.go_on();
  reader.queue().flush(kDeadline);
  EXPECT_EQ(reader.text().size(), kept * record.size());
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (reader.losses().empty() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(1ms);
  EXPECT_THAT(reader.losses(), ElementsAre(kRecords - kept));
  reader.queue().put("again");
  reader.queue().flush(kDeadline);
  EXPECT_EQ(reader.text().substr(kept * record.size()), "again");
}

}  // namespace
}  // namespace gradbus
