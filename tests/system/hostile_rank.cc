// A client that means harm. tests/system/faults/test_hostile_clients.py and test_hostile_limits.py
// start it. It joins jobs as both of their ranks, like any client, and registers tensors of every
// collective. Then it writes garbage into the memory that it shares with the agent:
//
//   hostile_rank VERB SEED JOBS SOCKET0 SOCKET1 [COMPRESSION[@MODE]...]
//
//   records            pushes submissions whose fields are wrong, one after the other
//   local_reductions   overwrites rings, local reductions, rank buffers and the job word with
//                      random words
//   floats             overwrites the elements of compressed tensors while agents encode them
//   rewind             asks for help with a large sum and moves its cursor back, for JOBS tenths of
//                      a second
//   dtypes             registers a tensor of each number of a dtype; prints the agent's answers
//   early              asks for a tensor as rank 1 before the job has started; prints what rank 0
//                      is told
//   wide               128 ranks at each of any number of sockets ask for an all-to-all of blocks
//                      of 2^40 bytes; prints how many of them started, and what rank 0 is told
//   deaf               asks for tensors and never reads the answers; prints "dropped" when the
//                      agent ends the connection
//
// SEED decides everything. Each job ends by its own garbage or when this program leaves it. Prints
// "done JOBS".
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gradbus/gradbus.hpp"
#include "proto/shm_layout.h"
#include "random_values.h"
#include "raw_attach.h"

namespace {

constexpr uint64_t kCount = 3000;
constexpr int kRanks = 2;
constexpr int kRecordsMax = 6;  // of one job: most jobs end with the first wrong one
constexpr int kWordsMax = 400;

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
  if ((wrong & 16) != 0) record.residual_state_part = any_word();
  if ((wrong & 32) != 0) record.residual_scale = any_double();
  if ((wrong & 64) != 0) record.learning_rate = any_double();
  if ((wrong & 128) != 0) record.ps_request = any_word();
  if ((wrong & 256) != 0) record.optimizer_state_part = any_word();
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

gradbus::RingControl& ring_of(std::byte* channel) {
  return *reinterpret_cast<gradbus::RingControl*>(channel + gradbus::kSubmissionRingOffset);
}

uint64_t records_in(const gradbus::RingControl& ring) {
  return ring.tail.count.load() - ring.head.count.load();
}

void push(std::byte* channel, const gradbus::Submission& record) {
  std::byte* const base = channel + gradbus::kSubmissionRingOffset;
  auto& control = ring_of(channel);
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

// The fields in front of a rank buffer matter most: half of the words go there.
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

// A round of each compressed tensor.
void use_compressed(gradbus::Session& session, std::span<char* const> compressed) {
  for (size_t i = 0; i < compressed.size(); ++i) {
    const std::string name = "compressed" + std::to_string(i);
    const Names names = names_of(compressed[i]);
    gradbus_tensor_spec spec;
    gradbus_tensor_spec_init(&spec);
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

// One tensor of each collective, and the compressed ones.
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
  use_compressed(session, compressed);
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
  for (int turn = 0; verb == "local_reductions" && turn < 3; ++turn) {
    for (const auto memory : channels) scribble(memory.subspan(below(2) * 4096));
    for (const auto memory : arenas) scribble(memory);
    push(channels[0].data(), any_record(tensors));
    ring_doorbells();
    usleep(500);
  }
  ring_doorbells();
}

// The agent is asked to help with a tensor whose chunks are never all claimed.
void rewind(gradbus::Session& session, const std::string& job, int tenths) {
  constexpr uint64_t kLarge = 4 << 20;
  session.register_tensor("large", kLarge, GRADBUS_F32, GRADBUS_SUM);
  const auto channel = mappings("gradbus-channel:" + job + ".")[0];
  // The segment's first page is the job's; the local reduction of a tensor of its own segment is at
  // its start.
  std::vector<gradbus::LocalReductionHeader*> local_reductions;
  for (const auto memory : mappings("gradbus:" + job + " "))
    for (const size_t at : {size_t{0}, gradbus::kJobWordBytes})
      local_reductions.push_back(
          reinterpret_cast<gradbus::LocalReductionHeader*>(memory.data() + at));
  for (int turn = 0; turn < tenths * 100; ++turn) {
    // A ring with too many records would end the job, and with it the attack.
    for (uint64_t round = 1; round < 40 && records_in(ring_of(channel.data())) < 100; ++round)
      push(channel.data(), {1, 1, round, 0, 0, 0, 0, 0, 0});
    for (gradbus::LocalReductionHeader* local_reduction : local_reductions) {
      local_reduction->cursor.store(0);
      auto* const lines = reinterpret_cast<gradbus::ReadyLine*>(local_reduction + 1);
      for (int rank = 0; rank < kRanks; ++rank) lines[rank].posted.store(UINT64_MAX);
    }
    ring_doorbells();
    usleep(1000);
  }
}

std::array<int, kRanks> join_by_packets(const std::string& job, char** sockets) {
  std::array<int, kRanks> attached{};
  for (int rank = 0; rank < kRanks; ++rank)
    attached[rank] = join_by_packet(job, rank, sockets[rank], kRanks);
  return attached;
}

// Each agent answers its own rank: one of them may know of the start before the other.
void wait_for_start(const std::array<int, kRanks>& attached) {
  for (const int socket : attached) gradbus::wait_readable(socket, 30 * gradbus::kSecond);
}

int dtypes(char** sockets) {
  const std::array<int, kRanks> attached = join_by_packets("dtypes", sockets);
  wait_for_start(attached);
  for (const uint32_t number : {0, 1, 9, 10, 11, 12, 13, 14, 15, 128, 255}) {
    auto wanted = gradbus::make_packet<gradbus::RegisterPacket>(2 + number);
    gradbus::set_text(wanted.name, "t" + std::to_string(number));
    wanted.count = 8;
    wanted.dtype = static_cast<uint8_t>(number);
    wanted.op = GRADBUS_MAX;  // of every dtype
    wanted.collective = GRADBUS_ALLREDUCE;
    for (const int socket : attached) (void)gradbus::send_packet(socket, &wanted, sizeof(wanted));
    std::printf("%u %s\n", number, answer_to(attached[0], 2 + number).c_str());
  }
  return 0;
}

// Rank 1 does what no library does: it does not wait for the start. Rank 0 may not wait for it.
std::string ask_before_start(const std::string& job, char** sockets) {
  const int first = join_by_packet(job, 0, sockets[0], kRanks);
  usleep(200'000);  // rank 0 waits at the coordinator
  const int second = join_by_packet(job, 1, sockets[1], kRanks);
  auto wanted = gradbus::make_packet<gradbus::RegisterPacket>(2);
  gradbus::set_text(wanted.name, "x");
  wanted.count = 8;
  wanted.dtype = GRADBUS_F32;
  (void)gradbus::send_packet(second, &wanted, sizeof(wanted));
  const std::string answer = answer_to(first, 2, 2 * gradbus::kSecond);
  close(first);
  close(second);
  return answer;
}

// On a busy machine this process may be paused until after the start: then it tries again.
int early(char** sockets) {
  std::string answer = "no answer";
  for (int attempt = 0; attempt < 10 && answer == "no answer"; ++attempt)
    answer = ask_before_start("early" + std::to_string(attempt), sockets);
  std::printf("%s\n", answer.c_str());
  return 0;
}

// Reads that the job has started: descriptors come with it, and only a few may be under way.
bool has_started(int socket) {
  gradbus::Packet packet;
  gradbus::Status why;
  return gradbus::wait_readable(socket, 60 * gradbus::kSecond) &&
         gradbus::receive_packet(socket, packet, why) == gradbus::ReceivePacket::kPacket &&
         packet.header.type == static_cast<uint16_t>(gradbus::AttachType::kJoined);
}

int wide(std::span<char* const> sockets) {
  const int ranks = static_cast<int>(sockets.size() * gradbus::kLocalRanksMax);
  const rlimit descriptors{static_cast<rlim_t>(ranks) + 100, static_cast<rlim_t>(ranks) + 100};
  (void)setrlimit(RLIMIT_NOFILE, &descriptors);  // more than most shells allow
  std::vector<int> attached;
  for (int rank = 0; rank < ranks; ++rank)
    attached.push_back(
        join_by_packet("wide", rank, sockets[rank / gradbus::kLocalRanksMax], ranks));
  const auto started = std::ranges::count_if(attached, has_started);
  auto wanted = gradbus::make_packet<gradbus::RegisterPacket>(2);
  gradbus::set_text(wanted.name, "x");
  wanted.count = gradbus::kTensorBytesMax;
  wanted.dtype = GRADBUS_U8;
  wanted.collective = GRADBUS_ALLTOALL;
  for (const int socket : attached) (void)gradbus::send_packet(socket, &wanted, sizeof(wanted));
  std::printf("%td started\n%s\n", started, answer_to(attached[0], 2).c_str());
  return 0;
}

int deaf(char** sockets) {
  const std::array<int, kRanks> attached = join_by_packets("deaf", sockets);
  wait_for_start(attached);
  for (uint32_t request = 2; request < 2'000'000; ++request) {
    const auto wrong = gradbus::make_packet<gradbus::RegisterPacket>(request);
    const gradbus::Code sent = gradbus::send_packet(attached[0], &wrong, sizeof(wrong));
    if (sent == gradbus::Code::kClosed) return std::printf("dropped\n"), 0;
    if (sent == gradbus::Code::kBusy) gradbus::wait_writable(attached[0], gradbus::kSecond);
  }
  return 4;
}

// Elements change while agents encode, sum and decode them.
void change_floats(const std::string& job, const std::atomic<bool>& stops) {
  std::mt19937 random(7);
  constexpr float kSome[] = {0.0F,
                             1.0F,
                             0.5F,
                             1e30F,
                             std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN()};
  const auto arenas = mappings("gradbus:" + job + " ");
  while (!stops.load()) {
    for (const auto memory : arenas) {
      // Behind the job's page, the local reductions and the tensors of plain collectives.
      const size_t words = memory.size() / 4;
      for (int i = 0; i < 2000; ++i) {
        const size_t at = words / 3 + random() % (words - words / 3);
        auto& value = reinterpret_cast<float*>(memory.data())[at];
        const float before = std::atomic_ref(value).load(std::memory_order_relaxed);
        // A word of a local reduction is no float of an element: these have one of few values.
        const bool element = before == 1 || before == 0.5F || before == 1e30F || before == 2 ||
                             std::isnan(before) || std::isinf(before);
        if (element)
          std::atomic_ref(value).store(kSome[random() % std::size(kSome)],
                                       std::memory_order_relaxed);
      }
    }
  }
}

void run_job(const std::string& verb, const std::string& job, char** sockets,
             std::span<char* const> compressed, int amount) {
  std::array<gradbus::Session, kRanks> sessions{gradbus::Session(nullptr),
                                                gradbus::Session(nullptr)};
  const auto on_all_ranks = [&](const auto& work) {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank)
      ranks.emplace_back([&, rank] {
        try {
          work(rank);
        } catch (const gradbus::Error& problem) {
          std::printf("error %s\n", problem.what());
          if (verb == "floats") return;  // a payload of nonsense may end the job
          std::fflush(stdout);
          _exit(3);
        }
      });
    for (std::thread& rank : ranks) rank.join();
  };
  on_all_ranks([&](int rank) { sessions[rank] = join(job, rank, sockets[rank]); });
  if (verb == "rewind") {
    on_all_ranks([&](int rank) {
      if (rank == 0) return rewind(sessions[rank], job, amount);
      sessions[rank].register_tensor("large", 4 << 20, GRADBUS_F32, GRADBUS_SUM);
    });
    return;
  }
  on_all_ranks([&](int rank) { use_everything(sessions[rank], compressed); });
  if (verb == "floats") {
    std::atomic<bool> stops{false};
    std::thread changes([&] { change_floats(job, stops); });
    on_all_ranks([&](int rank) {
      for (int round = 0; round < amount; ++round) use_compressed(sessions[rank], compressed);
    });
    stops.store(true);
    return changes.join();
  }
  attack(verb, job, static_cast<uint32_t>(14 + compressed.size()));
  usleep(static_cast<useconds_t>(500 * below(6)));  // a turn of the agent, or none
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  const std::string verb = argv[1];
  if (verb == "deaf") return deaf(argv + 4);
  if (verb == "dtypes") return dtypes(argv + 4);
  if (verb == "early") return early(argv + 4);
  if (verb == "wide") return wide(std::span(argv + 4, argc - 4));
  const int amount = std::stoi(argv[3]);
  const int jobs = verb == "rewind" || verb == "floats" ? 1 : amount;
  random_.seed(std::stoull(argv[2]));
  for (int i = 0; i < jobs; ++i)
    run_job(verb, "hostile-" + std::string(argv[2]) + "-" + std::to_string(i), argv + 4,
            std::span(argv + 6, static_cast<size_t>(argc - 6)), amount);
  std::printf("done %d\n", amount);
}
