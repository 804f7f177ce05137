// A client that means harm, for tests/system/test_hostile_clients.py. It joins jobs as both of
// their two ranks, like any client, registers tensors of every collective, and then writes garbage
// into the memory that it shares with the agent:
//
//   hostile_rank records|cells SEED JOBS SOCKET0 SOCKET1 [COMPRESSION[@MODE]...]
//
//   records   pushes submissions whose fields are wrong, one after the other
//   cells     overwrites rings, cells, areas and the job word with random words
//
// SEED decides everything. Each job ends by its own garbage or when this program leaves it. Prints
// "done JOBS".
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gradbus/gradbus.hpp"
#include "proto/shm_layout.h"

namespace {

constexpr uint64_t kCount = 3000;
constexpr int kRanks = 2;
constexpr int kRecordsMax = 6;  // of one job: most jobs end with the first wrong one
constexpr int kWordsMax = 400;

std::mt19937_64 random_;

uint64_t below(uint64_t bound) { return random_() % bound; }

template <typename T>
T one_of(std::initializer_list<T> values) {
  return values.begin()[below(values.size())];
}

double any_double() {
  const double infinite = std::numeric_limits<double>::infinity();
  double bits = 0;
  const uint64_t word = random_();
  std::memcpy(&bits, &word, sizeof(bits));
  return one_of({0.0, 1.0, -1.0, -0.0, 1e-300, 1e300, infinite, std::nan(""), bits});
}

uint64_t any_word() {
  return one_of<uint64_t>({0, 1, 2, 3, 4, 5, kCount * 4, uint64_t{1} << 31, uint64_t{1} << 32,
                           (uint64_t{1} << 32) + 1, UINT64_MAX, UINT64_MAX - 1, random_(),
                           random_() >> below(64)});
}

// A right record of the first round in which one field, or every second one, is wrong.
gradbus::Submission any_record(uint32_t tensors) {
  gradbus::Submission record{
      1, static_cast<uint32_t>(below(tensors + 3)), 2, kCount * 4, 0, 0, 0, 0, 0};
  record.round = one_of<uint64_t>({0, 1, 2, 2, 2, 3});
  record.bytes = one_of<uint64_t>({0, 4, kCount * 4, kCount * 4});
  const uint64_t wrong = one_of<uint64_t>({1, 2, 4, 8, 16, 32, 64, 128, 256, random_()});
  if ((wrong & 1) != 0) record.kind = static_cast<uint32_t>(any_word());
  if ((wrong & 2) != 0) record.tensor = static_cast<uint32_t>(any_word());
  if ((wrong & 4) != 0) record.round = any_word();
  if ((wrong & 8) != 0) record.bytes = any_word();
  if ((wrong & 16) != 0) record.memory_part = any_word();
  if ((wrong & 32) != 0) record.memory_scale = any_double();
  if ((wrong & 64) != 0) record.learning_rate = any_double();
  if ((wrong & 128) != 0) record.pull_only = any_word();
  if ((wrong & 256) != 0) record.kept_part = any_word();
  return record;
}

// The mappings of this process whose names have `name` in them.
std::vector<std::span<std::byte>> mappings(const std::string& name) {
  std::vector<std::span<std::byte>> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long first = 0;
    unsigned long end = 0;
    if (line.find(name) == std::string::npos) continue;
    if (std::sscanf(line.c_str(), "%lx-%lx", &first, &end) == 2)
      found.emplace_back(reinterpret_cast<std::byte*>(first), end - first);
  }
  return found;
}

void push(std::byte* channel, const gradbus::Submission& record) {
  std::byte* const base = channel + gradbus::kSubmissionRingOffset;
  auto& control = *reinterpret_cast<gradbus::RingControl*>(base);
  const uint64_t tail = control.tail.count.load();
  std::memcpy(
      base + sizeof(gradbus::RingControl) + tail % gradbus::kRingRecords * gradbus::kRecordBytes,
      &record, sizeof(record));
  control.tail.count.store(tail + 1);
}

// All event descriptors of this process: one of them wakes the agent.
void ring_doorbells() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const int fd = std::stoi(entry.path().filename());
    if (std::filesystem::read_symlink(entry.path(), gone) == "anon_inode:[eventfd]")
      eventfd_write(fd, 1);
  }
}

// The fields in front of an area matter most: half of the words go there.
void scribble(std::span<std::byte> memory) {
  const size_t words = memory.size() / 8;
  for (int i = 0; i < kWordsMax; ++i) {
    const size_t at = below(2) == 0 ? below(std::min<size_t>(words, 4096)) : below(words);
    const uint64_t word = any_word();
    std::memcpy(memory.data() + at * 8, &word, sizeof(word));
  }
}

struct Names {
  std::string compression;
  std::string mode;
};

Names names_of(const std::string& text) {
  const size_t at = text.find('@');
  return {text.substr(0, at), at == std::string::npos ? "" : text.substr(at + 1)};
}

// One tensor of each collective, dense ones of some types, and the compressed ones.
void use_everything(gradbus::Session& session, std::span<char* const> compressed) {
  std::vector<float> values(kCount, 1);
  const std::vector<uint64_t> halves(kRanks, kCount / kRanks);
  session.broadcast(values.data(), kCount, 0, "broadcast");
  session.reduce(values.data(), values.data(), kCount, 0, GRADBUS_SUM, "reduce");
  session.reduce_scatter(values.data(), kCount, 1, GRADBUS_SUM, "reduce_scatter");
  session.scatter(values.data(), kCount / kRanks, 0, "scatter");
  session.allgather(values.data(), kCount, "allgather");
  session.gather(values.data(), kCount, 0, "gather");
  session.alltoall(values.data(), halves, "alltoall");
  for (size_t i = 0; i < compressed.size(); ++i) {
    const std::string name = "compressed" + std::to_string(i);
    const Names names = names_of(compressed[i]);
    gradbus_tensor_spec spec{};
    spec.name = name.c_str();
    spec.count = kCount;
    spec.dtype = GRADBUS_F32;
    spec.op = GRADBUS_SUM;
    spec.columns = 100;
    spec.compression = names.compression.c_str();
    spec.mode = names.mode.empty() ? nullptr : names.mode.c_str();
    gradbus::Tensor tensor = session.register_tensor(spec);
    std::fill_n(tensor.data<float>(), kCount, 1.0F);
    tensor.start();
    tensor.wait();
  }
}

gradbus::Session join(const std::string& job, int rank, const char* socket) {
  gradbus_options options;
  gradbus_options_init(&options);
  options.socket_path = socket;
  options.job = job.c_str();
  options.rank = rank;
  options.world_size = kRanks;
  return gradbus::Session(options);
}

void attack(const std::string& verb, const std::string& job, uint32_t tensors) {
  const auto channels = mappings("gradbus-channel:" + job + ".");
  const auto arenas = mappings("gradbus:" + job + " ");
  if (verb == "records") {
    std::byte* const channel = channels[below(channels.size())].data();
    for (int i = 0; i < kRecordsMax; ++i) push(channel, any_record(tensors));
  }
  for (int turn = 0; verb == "cells" && turn < 3; ++turn) {
    for (const auto memory : channels) scribble(memory.subspan(below(2) * 4096));
    for (const auto memory : arenas) scribble(memory);
    push(channels[0].data(), any_record(tensors));
    ring_doorbells();
    usleep(500);
  }
  ring_doorbells();
}

void run_job(const std::string& verb, const std::string& job, char** sockets,
             std::span<char* const> compressed) {
  std::array<gradbus::Session, kRanks> sessions{gradbus::Session(nullptr),
                                                gradbus::Session(nullptr)};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        sessions[rank] = join(job, rank, sockets[rank]);
        use_everything(sessions[rank], compressed);
      } catch (const gradbus::Error& problem) {
        std::printf("error %s\n", problem.what());
        std::fflush(stdout);
        _exit(3);
      }
    });
  for (std::thread& rank : ranks) rank.join();
  attack(verb, job, static_cast<uint32_t>(7 + compressed.size()));
  usleep(static_cast<useconds_t>(500 * below(6)));  // a turn of the agent, or none
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  const int jobs = std::stoi(argv[3]);
  random_.seed(std::stoull(argv[2]));
  for (int i = 0; i < jobs; ++i)
    run_job(argv[1], "hostile-" + std::string(argv[2]) + "-" + std::to_string(i), argv + 4,
            std::span(argv + 6, static_cast<size_t>(argc - 6)));
  std::printf("done %d\n", jobs);
}
