// The stream of bytes through shared memory: order, fullness, two threads that sleep, and another
// end that writes nonsense.
#include "transport/net/byte_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <semaphore>
#include <thread>
#include <vector>

#include "common/clock.h"

namespace gradbus {
namespace {

constexpr size_t kBytes = RingPair::kRingBytes;

std::byte byte_number(uint64_t number) {
  return static_cast<std::byte>((number * 2654435761) >> 24);
}

struct Ends {
  std::shared_ptr<Segment> segment =
      Segment::create("byte-ring-test", RingPair::kSegmentBytes).take();
  RingPair opener{segment, true};
  RingPair other{Segment::open(Fd(dup(segment->fd())), RingPair::kSegmentBytes).take(), false};
  RingWords& words() { return *reinterpret_cast<RingWords*>(segment->at(0)); }  // opener to other
};

RingStep write_bytes(RingWriter& writer, std::span<const std::byte> bytes) {
  const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  return writer.write({&part, 1});
}
RingStep read_bytes(RingReader& reader, std::span<std::byte> bytes) {
  const iovec part{bytes.data(), bytes.size()};
  return reader.read({&part, 1});
}

// `count` bytes of the endless stream that both sides know.
std::vector<std::byte> stream_bytes(uint64_t from, size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = byte_number(from + i);
  return bytes;
}

TEST(ByteRing, IsFullAfterItsBytesAndEmptyAfterThem) {
  Ends ends;
  const std::vector<std::byte> bytes = stream_bytes(0, kBytes + 1);
  EXPECT_EQ(write_bytes(ends.opener.writer, bytes).bytes, kBytes);
  EXPECT_EQ(write_bytes(ends.opener.writer, bytes).bytes, 0u);
  std::vector<std::byte> got(kBytes + 1);
  EXPECT_EQ(read_bytes(ends.other.reader, got).bytes, kBytes);
  EXPECT_EQ(read_bytes(ends.other.reader, got).bytes, 0u);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end() - 1, got.begin()));
}

TEST(ByteRing, TheTwoDirectionsAreApart) {
  Ends ends;
  const std::vector<std::byte> there = stream_bytes(0, 1000), back = stream_bytes(5000, 700);
  EXPECT_EQ(write_bytes(ends.opener.writer, there).bytes, 1000u);
  EXPECT_EQ(write_bytes(ends.other.writer, back).bytes, 700u);
  std::vector<std::byte> got(2000);
  EXPECT_EQ(read_bytes(ends.opener.reader, got).bytes, 700u);
  EXPECT_TRUE(std::equal(back.begin(), back.end(), got.begin()));
  EXPECT_EQ(read_bytes(ends.other.reader, got).bytes, 1000u);
  EXPECT_TRUE(std::equal(there.begin(), there.end(), got.begin()));
}

// Parts of any size on both sides, empty ones too, several laps.
TEST(ByteRing, AnyCutIsTheSameStream) {
  Ends ends;
  std::mt19937 random(7);
  const auto sizes = [&] {
    std::array<size_t, 3> some{};
    for (size_t& one : some)
      one = random() % 4 == 0 ? 0 : random() % (random() % 3 ? 3000 : 300'000);
    return some;
  };
  uint64_t written = 0, read = 0;
  while (read < 8 * kBytes) {
    const auto out = sizes();
    const std::vector<std::byte> bytes = stream_bytes(written, out[0] + out[1] + out[2]);
    auto* const begin = const_cast<std::byte*>(bytes.data());
    const iovec from[] = {
        {begin, out[0]}, {begin + out[0], out[1]}, {begin + out[0] + out[1], out[2]}};
    written += ends.opener.writer.write(from).bytes;
    const auto in = sizes();
    std::vector<std::byte> got(in[0] + in[1] + in[2]);
    const iovec into[] = {
        {got.data(), in[0]}, {got.data() + in[0], in[1]}, {got.data() + in[0] + in[1], in[2]}};
    const RingStep step = ends.other.reader.read(into);
    const std::vector<std::byte> expected = stream_bytes(read, step.bytes);
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), got.begin())) << "from byte " << read;
    EXPECT_TRUE(step.bytes == got.size() || read + step.bytes == written);
    read += step.bytes;
  }
}

// Only who sleeps is woken, and once.
TEST(ByteRing, AReaderThatFoundNothingIsWokenOnce) {
  Ends ends;
  const std::vector<std::byte> bytes = stream_bytes(0, 10);
  std::vector<std::byte> got(10);
  EXPECT_FALSE(write_bytes(ends.opener.writer, bytes).wake_other) << "nobody has waited yet";
  EXPECT_EQ(read_bytes(ends.other.reader, got).bytes, 10u);
  EXPECT_FALSE(write_bytes(ends.opener.writer, bytes).wake_other) << "it got all it asked for";
  got.resize(20);
  EXPECT_EQ(read_bytes(ends.other.reader, got).bytes, 10u);
  EXPECT_TRUE(write_bytes(ends.opener.writer, bytes).wake_other) << "it asked for more";
  EXPECT_FALSE(write_bytes(ends.opener.writer, bytes).wake_other);
}

TEST(ByteRing, AWriterWithoutRoomIsWokenWhenAQuarterIsFree) {
  Ends ends;
  const std::vector<std::byte> bytes = stream_bytes(0, kBytes);
  ASSERT_EQ(write_bytes(ends.opener.writer, bytes).bytes, kBytes);
  ASSERT_EQ(write_bytes(ends.opener.writer, bytes).bytes, 0u);
  std::vector<std::byte> got(kBytes / 4 - 1);
  EXPECT_FALSE(read_bytes(ends.other.reader, got).wake_other);
  got.resize(1);
  EXPECT_TRUE(read_bytes(ends.other.reader, got).wake_other);
  EXPECT_FALSE(read_bytes(ends.other.reader, got).wake_other);
}

// Each end sleeps until the other one says that it should not; a lost wake-up ends at the deadline.
TEST(ByteRing, NoWakeUpIsLostBetweenTwoThreads) {
  Ends ends;
  constexpr uint64_t kTotal = 200 * kBytes;
  const Nanos deadline = monotonic_now() + 60 * kSecond;
  std::counting_semaphore<> writer_bell(0), reader_bell(0);
  const auto sleep = [&](std::counting_semaphore<>& bell) {
    return bell.try_acquire_for(std::chrono::nanoseconds(deadline - monotonic_now()));
  };
  std::atomic<bool> lost = false;
  std::thread writer([&] {
    std::mt19937 random(1);
    for (uint64_t written = 0; written < kTotal && !lost;) {
      const size_t wanted = std::min<uint64_t>(1 + random() % 100'000, kTotal - written);
      const RingStep step = write_bytes(ends.opener.writer, stream_bytes(written, wanted));
      written += step.bytes;
      if (step.wake_other) reader_bell.release();
      if (step.bytes < wanted && !sleep(writer_bell)) lost = true;
    }
  });
  std::mt19937 random(2);
  uint64_t read = 0;
  std::vector<std::byte> got;
  while (read < kTotal && !lost) {
    got.resize(1 + random() % 100'000);
    const RingStep step = read_bytes(ends.other.reader, got);
    const std::vector<std::byte> expected = stream_bytes(read, step.bytes);
    if (!std::equal(expected.begin(), expected.end(), got.begin())) break;
    read += step.bytes;
    if (step.wake_other) writer_bell.release();
    if (step.bytes < got.size() && read < kTotal && !sleep(reader_bell)) lost = true;
  }
  writer_bell.release();
  writer.join();
  EXPECT_FALSE(lost);
  EXPECT_EQ(read, kTotal);
}

// Whatever the other end stores, nothing outside of the ring is touched (the sanitizers look).
TEST(ByteRing, ACountThatCannotBeIsSaidAndNothingMoves) {
  const std::vector<std::byte> bytes = stream_bytes(0, kBytes);
  std::vector<std::byte> got(kBytes);
  for (const uint64_t nonsense : {kBytes + 1, uint64_t{1} << 63, ~uint64_t{0}}) {
    Ends ends;
    ends.words().tail = nonsense;
    const RingStep step = read_bytes(ends.other.reader, got);
    EXPECT_TRUE(step.corrupt) << nonsense;
    EXPECT_EQ(step.bytes, 0u);
  }
  for (const uint64_t nonsense : {kBytes + 1, uint64_t{1} << 63, ~uint64_t{0}}) {
    Ends ends;
    ASSERT_EQ(write_bytes(ends.opener.writer, bytes).bytes, kBytes);
    ends.words().head = nonsense;
    const RingStep step = write_bytes(ends.opener.writer, bytes);
    EXPECT_TRUE(step.corrupt) << nonsense;
    EXPECT_EQ(step.bytes, 0u);
  }
}

TEST(ByteRing, WordsThatChangeAtAnyTimeDoNoHarm) {
  Ends ends;
  std::mt19937_64 random(3);
  std::vector<std::byte> bytes(70'000);
  for (int i = 0; i < 3000; ++i) {
    RingWords& words = ends.words();
    switch (random() % 6) {
      case 0: words.tail = random() >> (random() % 64); break;
      case 1: words.head = random() >> (random() % 64); break;
      case 2: words.reader_waits = static_cast<uint32_t>(random()); break;
      case 3: words.writer_waits = static_cast<uint32_t>(random()); break;
      case 4: EXPECT_LE(write_bytes(ends.opener.writer, bytes).bytes, bytes.size()); break;
      default: EXPECT_LE(read_bytes(ends.other.reader, bytes).bytes, bytes.size()); break;
    }
  }
}

}  // namespace
}  // namespace gradbus
