// A client that attaches packet by packet and sends what no library sends.
// tests/system/faults/test_hostile_packets.py starts it.
//
//   hostile_packets packets SEED JOBS SOCKET0 SOCKET1
//     jobs of two ranks; each sends packets of all types with wrong fields until it is dropped
//   hostile_packets joins SEED COUNT SOCKET
//     as many first packets, most of them wrong
//   hostile_packets ask SEED COUNT SOCKET FILE...
//     a job of one rank asks the coordinator what each FILE holds, then COUNT damaged copies of the
//     first; prints each answer's first bytes
//
// SEED decides everything. Prints "done COUNT".
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "random_values.h"
#include "raw_attach.h"

namespace {

using namespace gradbus;

constexpr int kPacketsPerJob = 200;
constexpr size_t kShownBytes = 160;

uint64_t any_word() {
  return one_of<uint64_t>({0, 1, 2, 7, 8, 1000, 4096, uint64_t{1} << 31, (uint64_t{1} << 31) - 1,
                           uint64_t{1} << 32, uint64_t{1} << 38, uint64_t{1} << 40,
                           (uint64_t{1} << 40) + 1, uint64_t{1} << 62, uint64_t{1} << 63,
                           UINT64_MAX, UINT64_MAX - 1, random_(), random_() >> below(64)});
}

const char* any_text() {
  return one_of({"",
                 "a",
                 "b",
                 "w",
                 "sync",
                 "topk:ratio=0.1",
                 "int8",
                 "powersgd:rank=4",
                 "ps:sync",
                 "ps:async,lr=0.1",
                 "delayed:k=1",
                 "local:k=4",
                 "[2,4]",
                 "[*]",
                 "\xff\xfe",
                 "x\xc3",
                 "topk:ratio=1e999",
                 "ps:quorum,n=4294967297",
                 "\n",
                 "%s%n"});
}

template <typename T>
std::span<std::byte> bytes_of(T& packet) {
  return std::as_writable_bytes(std::span(&packet, 1));
}

// Words behind the header, or bytes of its end: a text without a terminator, too.
template <typename T>
void damage(T& packet, uint64_t most) {
  const auto body = bytes_of(packet).subspan(sizeof(AttachHeader));
  for (uint64_t left = body.size() < 8 ? 0 : below(most + 1); left > 0; --left) {
    const uint64_t word = any_word();
    std::memcpy(body.data() + below(body.size() / 8) * 8, &word, 8);
  }
  if (most > 0 && !body.empty() && below(8) == 0)
    std::ranges::fill(body.last(below(body.size())), static_cast<std::byte>(below(256)));
}

RegisterPacket any_register(uint32_t request) {
  auto wanted = make_packet<RegisterPacket>(request);
  set_text(wanted.name, any_text());
  wanted.count = below(3) == 0 ? any_word() : below(5000);
  wanted.dtype = static_cast<uint8_t>(1 + below(13));
  wanted.op = static_cast<uint8_t>(below(9));
  wanted.collective = static_cast<uint8_t>(1 + below(8));
  wanted.root = static_cast<uint32_t>(below(3));
  if (below(4) == 0) wanted.row_elements = any_word();
  if (below(3) == 0) wanted.columns = any_word();
  if (below(2) == 0) set_text(wanted.compression, any_text());
  if (below(3) == 0) set_text(wanted.mode, any_text());
  if (below(3) == 0) set_text(wanted.shape, any_text());
  wanted.priority = static_cast<uint32_t>(below(3) == 0 ? any_word() : 0);
  wanted.result_priority = static_cast<uint32_t>(below(3) == 0 ? any_word() : 0);
  wanted.budget_bytes = below(3) == 0 ? any_word() : 0;
  return wanted;
}

template <typename T>
void send_damaged(int socket, T packet, uint64_t most) {
  damage(packet, below(3) == 0 ? most : 0);
  (void)send_packet(socket, &packet, sizeof(packet));
}

// Both ranks ask for the same tensor most of the time, so that some come into being.
void send_registrations(std::span<const int> sockets, uint32_t request) {
  RegisterPacket wanted = any_register(request);
  if (below(4) == 0) damage(wanted, 2);
  for (const int socket : sockets)
    if (below(8) != 0) (void)send_packet(socket, &wanted, sizeof(wanted));
}

void send_question_part(int socket, uint32_t request) {
  auto part = make_packet<QuestionPacket>(request);
  part.total_bytes = part.bytes = static_cast<uint32_t>(1 + below(64));
  set_text(part.text, any_text());
  send_damaged(socket, part, 2);
}

void send_anything(std::span<const int> sockets, uint32_t request) {
  const int socket = sockets[below(sockets.size())];
  // Most wrong packets end the job, but a wrong registration is only refused.
  if (below(10) != 0) return send_registrations(sockets, request);
  switch (below(8)) {
    case 0: {
      auto done = make_packet<UnregisterPacket>(request);
      done.tensor = static_cast<uint32_t>(1 + below(4));
      done.viewed = static_cast<uint32_t>(below(3));
      return send_damaged(socket, done, 1);
    }
    case 1: {
      auto blocked = make_packet<BlockedPacket>(request);
      set_text(blocked.name, any_text());
      blocked.round = any_word();
      blocked.waited_ms = any_word();
      return send_damaged(socket, blocked, 1);
    }
    case 2: return send_question_part(socket, request);
    case 3: return send_damaged(socket, make_packet<DeviceTriedPacket>(request), 2);
    case 4: return send_damaged(socket, make_packet<AdminPacket>(request), 3);
    case 5: return send_damaged(socket, make_packet<LeavePacket>(request), 0);
    default: return send_damaged(socket, make_packet<TryDevicePacket>(request), 2);
  }
}

// Reads what has come. Returns false when the agent has ended the connection.
bool read_all(int socket) {
  Packet packet;
  Status why;
  for (;;) {
    const ReceivePacket received = receive_packet(socket, packet, why);
    if (received == ReceivePacket::kNothing) return true;
    if (received == ReceivePacket::kEnd) return false;
  }
}

void run_job(const std::string& name, std::span<char* const> paths) {
  std::array<int, 2> sockets{};
  for (int rank = 0; rank < 2; ++rank) sockets[rank] = join_by_packet(name, rank, paths[rank], 2);
  for (const int socket : sockets) wait_readable(socket, 20 * kSecond);
  for (int i = 0; i < kPacketsPerJob; ++i) {
    send_anything(sockets, static_cast<uint32_t>(2 + i));
    if (i % 8 == 0) usleep(static_cast<useconds_t>(below(3000)));
    if (!read_all(sockets[0]) || !read_all(sockets[1])) break;
  }
  for (const int socket : sockets) close(socket);
}

void join_damaged(const char* path, uint64_t number) {
  const int socket = connect_to(path);
  if (socket < 0) return;
  auto join = make_packet<JoinPacket>(1);
  set_text(join.job, "join-" + std::to_string(number % 7));
  join.rank = static_cast<int64_t>(below(3) == 0 ? any_word() : 0);
  join.world_size = static_cast<int64_t>(below(3) == 0 ? any_word() : 1);
  join.start_timeout_ms = below(2) == 0 ? any_word() : 100;
  damage(join, below(3));
  if (below(10) == 0) join.header.bytes = static_cast<uint32_t>(any_word());
  const size_t bytes = below(10) == 0 ? below(sizeof(join)) : sizeof(join);
  (void)send_packet(socket, &join, bytes);
  if (below(2) == 0) wait_readable(socket, 5 * kMillisecond);
  close(socket);
}

std::string answer_to_question(int socket, const std::string& text, uint32_t request) {
  for (size_t begin = 0; begin < text.size();) {
    auto part = make_packet<QuestionPacket>(request);
    part.total_bytes = static_cast<uint32_t>(text.size());
    part.bytes = static_cast<uint32_t>(std::min(kTextPartBytes, text.size() - begin));
    std::copy_n(text.data() + begin, part.bytes, part.text);
    const Code sent = send_packet(socket, &part, sizeof(part));
    if (sent == Code::kClosed) return "the connection ended";
    if (sent == Code::kBusy) wait_writable(socket, kSecond);
    if (sent == Code::kOk) begin += part.bytes;
  }
  std::string answer;
  Packet packet;
  Status why;
  while (wait_readable(socket, 30 * kSecond)) {
    const ReceivePacket received = receive_packet(socket, packet, why);
    if (received == ReceivePacket::kEnd) return "the connection ended";
    const auto part = packet.as<AnswerPacket>();
    if (received != ReceivePacket::kPacket || !part.ok()) continue;
    answer.append(part.value().text, std::min<size_t>(part.value().bytes, kTextPartBytes));
    if (answer.size() >= part.value().total_bytes) return answer;
  }
  return "no answer";
}

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void damage_text(std::string& text) {
  for (uint64_t left = 1 + below(3); left > 0 && !text.empty(); --left) {
    const size_t at = below(text.size());
    switch (below(4)) {
      case 0: text[at] = static_cast<char>(below(256)); break;
      case 1: text.erase(at, below(20)); break;
      case 2:
        text.insert(at, one_of({"[", "{", "1e308", "-1", "18446744073709551615", "\"", "0"}));
        break;
      default: text.insert(at, text.substr(below(text.size()), below(40))); break;
    }
  }
}

void ask(const char* path, std::span<char* const> files, int count) {
  const int socket = join_by_packet("questions", 0, path, 1);
  wait_readable(socket, 20 * kSecond);
  uint32_t request = 2;
  for (const char* file : files) {
    const std::string answer = answer_to_question(socket, read_file(file), request++);
    std::printf("%s\n", answer.substr(0, kShownBytes).c_str());
    std::fflush(stdout);
  }
  int answered = 0;
  for (int i = 0; i < count; ++i) {
    std::string text = read_file(files[0]);
    damage_text(text);
    const std::string answer = answer_to_question(socket, text, request++);
    answered += answer != "no answer" && answer != "the connection ended" ? 1 : 0;
  }
  std::printf("answered %d\n", answered);
  close(socket);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const std::string verb = argv[1];
  const int count = std::stoi(argv[3]);
  random_.seed(std::stoull(argv[2]));
  if (verb == "packets" && argc == 6)
    for (int i = 0; i < count; ++i)
      run_job("packets-" + std::string(argv[2]) + "-" + std::to_string(i), std::span(argv + 4, 2));
  if (verb == "joins")
    for (int i = 0; i < count; ++i) join_damaged(argv[4], static_cast<uint64_t>(i));
  if (verb == "ask" && argc > 5)
    ask(argv[4], std::span(argv + 5, static_cast<size_t>(argc - 5)), count);
  std::printf("done %d\n", count);
}
