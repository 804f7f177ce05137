// What the TCP transport reaches between two threads of this machine: GB/s of 256 KiB frames one
// way and both ways with 1, 2 and 4 streams, and the latency of a 64-byte frame there and back,
// polling and asleep on wait_fd(). Figures are of this machine's loopback; compare only with its
// own.
//
//   transport_bench [seconds per figure] [transport] [no-local-links]
#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/fd.h"
#include "transport/registry.h"

namespace gradbus {
namespace {

constexpr size_t kFrameBytes = 256 << 10;
constexpr size_t kPostsMax = 16;  // outstanding: 4 MiB each way

FrameHeader bench_header(FrameKind kind) {
  FrameHeader header;
  header.kind = static_cast<uint8_t>(kind);
  header.dtype = static_cast<uint8_t>(DType::kU8);
  header.collective = static_cast<uint8_t>(CollectiveKind::kAllReduce);
  return header;
}

TransportOptions g_options;

// One end, driven by one thread. Slots 0 to kPostsMax - 1 receive, the rest send.
class End {
 public:
  End(const TransportRow& row, uint32_t streams)
      : memory_(2 * kPostsMax * kReceiveSlotBytes, std::byte{1}) {
    TransportOptions options = g_options;
    options.streams = streams;
    Result<std::unique_ptr<Transport>> created = row.create(options);
    if (!created.ok()) {
      std::fprintf(stderr, "%s\n", created.status().message().c_str());
      std::exit(1);
    }
    transport_ = created.take();
    region_ = transport_->register_memory(memory_).take();
    epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    epoll_event readable{};
    readable.events = EPOLLIN;
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, transport_->wait_fd(), &readable);
  }

  std::string address() const { return transport_->local_address(); }
  void connect(const std::string& address) {
    if (!transport_->connect(address, bench_header(FrameKind::kHello)).ok()) std::exit(1);
  }

  void post_send(size_t bytes) {
    const uint64_t slot = kPostsMax + sends_++ % kPostsMax;
    const Slice payload{region_, slot * kReceiveSlotBytes, bytes};
    if (transport_->post_send(link_, bench_header(FrameKind::kReduce), payload, slot) !=
        Code::kOk) {
      std::abort();
    }
    ++sending_;
  }
  void post_receive(uint64_t slot) {
    const Slice into{region_, slot * kReceiveSlotBytes, kReceiveSlotBytes};
    if (transport_->post_receive(link_, into, slot) != Code::kOk) std::abort();
  }
  void post_receives() {
    for (uint64_t slot = 0; slot < kPostsMax; ++slot) post_receive(slot);
  }

  size_t poll() {
    std::array<TransportEvent, 32> events;
    const size_t count = transport_->poll(events);
    for (size_t i = 0; i < count; ++i) take_in(events[i]);
    return count;
  }
  void sleep() {
    epoll_event event{};
    (void)epoll_wait(epoll_.get(), &event, 1, 100);
  }

  bool up() const { return up_; }
  size_t sending() const { return sending_; }
  uint64_t received() const { return received_; }
  uint64_t received_bytes() const { return received_bytes_; }

 private:
  void take_in(const TransportEvent& event) {
    switch (event.kind) {
      case TransportEvent::Kind::kAccepted:
      case TransportEvent::Kind::kConnected:
        link_ = event.link;
        up_ = true;
        break;
      case TransportEvent::Kind::kSent: --sending_; break;
      case TransportEvent::Kind::kReceived:
        if (event.code != Code::kOk) return;
        ++received_;
        received_bytes_ += event.bytes;
        post_receive(event.token);
        break;
      case TransportEvent::Kind::kClosed: break;
    }
  }

  std::vector<std::byte> memory_;
  std::unique_ptr<Transport> transport_;
  RegionId region_;
  Fd epoll_;
  LinkId link_;
  bool up_ = false;
  size_t sends_ = 0;
  size_t sending_ = 0;
  uint64_t received_ = 0;
  uint64_t received_bytes_ = 0;
};

void join(End& a, End& b) {
  a.connect(b.address());
  while (!a.up() || !b.up()) {
    a.poll();
    b.poll();
  }
  a.post_receives();
  b.post_receives();
}

void stream_until(End& end, bool sends, const std::atomic<bool>& stop) {
  while (!stop) {
    while (sends && end.sending() < kPostsMax) end.post_send(kFrameBytes);
    if (end.poll() == 0) end.sleep();
  }
}

// Of both threads, in and outside the kernel: what the figure would cost on a machine with other
// work.
double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void bench_throughput(const TransportRow& row, uint32_t streams, bool both_ways, double seconds) {
  End a(row, streams), b(row, streams);
  join(a, b);
  std::atomic<bool> stop = false;
  const double cpu_before = cpu_seconds();
  const Nanos start = monotonic_now();
  std::thread first([&] { stream_until(a, true, stop); });
  std::thread second([&] { stream_until(b, both_ways, stop); });
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  stop = true;
  first.join();
  second.join();
  const double gigabytes = static_cast<double>(a.received_bytes() + b.received_bytes()) / 1e9;
  std::printf("%s, 256 KiB frames, %u streams, %s: %.2f GB/s in all, %.2f CPU s per GB\n",
              row.name.data(), streams, both_ways ? "both ways" : "one way",
              gigabytes * 1e9 / static_cast<double>(monotonic_now() - start),
              (cpu_seconds() - cpu_before) / gigabytes);
}

void await_frame(End& end, uint64_t frames, bool sleeps) {
  while (end.received() < frames) {
    if (end.poll() == 0 && sleeps) end.sleep();
  }
}

void bench_latency(const TransportRow& row, bool sleeps) {
  constexpr uint64_t kRounds = 20'000;
  End a(row, 2), b(row, 2);
  join(a, b);
  std::thread echo([&] {
    for (uint64_t round = 1; round <= kRounds; ++round) {
      await_frame(b, round, sleeps);
      b.post_send(64);
    }
    while (b.sending() > 0) b.poll();
  });
  std::vector<Nanos> took(kRounds);
  for (uint64_t round = 1; round <= kRounds; ++round) {
    const Nanos start = monotonic_now();
    a.post_send(64);
    await_frame(a, round, sleeps);
    took[round - 1] = monotonic_now() - start;
  }
  echo.join();
  std::sort(took.begin(), took.end());
  std::printf("%s, 64 B there and back, %s: median %.1f us, 99 %% within %.1f us\n",
              row.name.data(), sleeps ? "asleep between" : "polling",
              static_cast<double>(took[kRounds / 2]) / 1e3,
              static_cast<double>(took[kRounds * 99 / 100]) / 1e3);
}

int run(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  const TransportRow* row = find_transport(argc > 2 ? argv[2] : "tcp");
  if (row == nullptr || seconds <= 0) {
    std::fprintf(stderr,
                 "usage: transport_bench [seconds per figure] [transport] [no-local-links]\n");
    return 2;
  }
  g_options.local_links = argc < 4;
  for (const uint32_t streams : {1, 2, 4}) {
    bench_throughput(*row, streams, false, seconds);
    bench_throughput(*row, streams, true, seconds);
  }
  bench_latency(*row, false);
  bench_latency(*row, true);
  return 0;
}

}  // namespace
}  // namespace gradbus

int main(int argc, char** argv) { return gradbus::run(argc, argv); }
