// A rank that does what its arguments say, for the system tests: one step per argument.
//
//   reg:NAME:COUNT:DTYPE:OP      registers (f32 f64 i32 i64 u8; sum average)
//   red:NAME:COUNT:DTYPE:OP      all-reduces rank + 1 and checks the result
//   loop:NAME:COUNT:SECONDS:MS   all-reduces in a loop, checking sums; MS: pause of a turn
//   steps:NAME:COUNT:ROUNDS      the same, a number of rounds
//   churn:NAME:COUNT:SECONDS     registers, all-reduces and unregisters tensors in a loop
//   bcast:NAME:COUNT:ROOT        broadcasts
//   queue:NAME                   several operations of one name in flight: each gets its own sum
//   flood:TENSORS                that many tensors in flight at once
//   gathers:ROUNDS               all-gathers; prints the median in microseconds
//   touch:FILE  await:FILE  sleep:SECONDS  kill:SIGNAL  exit:CODE  barrier  say:WORD
//   spoil:FIELD                  writes garbage into a field of its own shared memory
//
// Prints "ok STEP" as it goes. An error prints "error CODE MESSAGE" and ends with status 3.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "common/clock.h"
#include "gradbus/gradbus.hpp"
#include "proto/shm_layout.h"
#include "shared_memory/ring.h"

namespace {

using gradbus::Nanos;
using Words = std::vector<std::string>;

Words split(const std::string& text) {
  Words words;
  std::stringstream stream(text);
  for (std::string word; std::getline(stream, word, ':');) words.push_back(word);
  words.resize(5);
  return words;
}

gradbus_dtype dtype_of(const std::string& name) {
  const std::map<std::string, gradbus_dtype> all{{"", GRADBUS_F32},    {"f32", GRADBUS_F32},
                                                 {"f64", GRADBUS_F64}, {"i32", GRADBUS_I32},
                                                 {"i64", GRADBUS_I64}, {"u8", GRADBUS_U8}};
  return all.at(name);
}

gradbus_op op_of(const std::string& name) {
  return name == "average" ? GRADBUS_AVERAGE : GRADBUS_SUM;
}

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::printf("wrong %s\n", what.c_str());
  std::fflush(stdout);
  _exit(4);
}

void check_sum(gradbus::Session& session, gradbus::Tensor& tensor, uint64_t count) {
  auto* data = tensor.data<float>();
  for (uint64_t i = 0; i < count; ++i) data[i] = static_cast<float>(session.rank() + 1);
  tensor.start();
  tensor.wait();
  const auto sum = static_cast<float>(session.size() * (session.size() + 1) / 2);
  for (uint64_t i = 0; i < count; ++i) expect(data[i] == sum, "sum");
}

void loop(gradbus::Session& session, const Words& words, double seconds, uint64_t rounds) {
  const uint64_t count = std::stoull(words[2]);
  gradbus::Tensor tensor = session.register_tensor(words[1], count, GRADBUS_F32, GRADBUS_SUM);
  const Nanos end = gradbus::monotonic_now() + static_cast<Nanos>(seconds * 1e9);
  uint64_t done = 0;
  for (float go_on = 1; rounds > 0 ? done < rounds : go_on > 0; ++done) {
    check_sum(session, tensor, count);
    if (rounds > 0) continue;
    if (!words[4].empty()) usleep(static_cast<useconds_t>(std::stoul(words[4]) * 1000));
    // All ranks stop at the same round: rank 0's clock decides.
    go_on = gradbus::monotonic_now() < end ? 1.0f : 0.0f;
    session.broadcast(&go_on, 1, 0, "loop.go_on");
  }
  std::printf("rounds %llu\n", static_cast<unsigned long long>(done));
}

void churn(gradbus::Session& session, const Words& words) {
  const uint64_t count = std::stoull(words[2]);
  const Nanos end = gradbus::monotonic_now() + static_cast<Nanos>(std::stod(words[3]) * 1e9);
  float go_on = 1;
  for (uint64_t i = 0; go_on > 0; ++i) {
    const std::string name = words[1] + std::to_string(i % 3);
    gradbus_tensor_spec spec;
    gradbus_tensor_spec_init(&spec);
    spec.name = name.c_str();
    spec.count = count + i % 5;
    spec.dtype = GRADBUS_F32;
    spec.op = GRADBUS_SUM;
    gradbus_tensor* raw = nullptr;
    gradbus::check(gradbus_register(session.get(), &spec, 1, &raw));
    gradbus::Tensor tensor(raw);
    check_sum(session, tensor, spec.count);
    gradbus::check(gradbus_unregister(raw));
    go_on = gradbus::monotonic_now() < end ? 1.0f : 0.0f;
    session.broadcast(&go_on, 1, 0, "churn.go_on");
  }
}

// Started in one order, waited for in another, one more started in between.
void queue(gradbus::Session& session, const std::string& name) {
  std::vector<int64_t> values{1, 10, 100, 1000, 10000};
  std::vector<gradbus_handle*> handles(values.size());
  const auto start = [&](size_t i) {
    gradbus::check(gradbus_allreduce_async(session.get(), name.c_str(), &values[i], &values[i], 1,
                                           GRADBUS_I64, GRADBUS_SUM, &handles[i]));
  };
  const auto wait = [&](size_t i) { gradbus::check(gradbus_handle_wait(handles[i], -1)); };
  start(0);
  start(1);
  wait(0);
  start(2);
  if (session.rank() % 2 == 1) wait(1);
  start(3);
  start(4);
  for (const size_t i : {size_t{4}, size_t{2}, size_t{3}, size_t{1}}) wait(i);
  int64_t expected = session.size();
  for (const int64_t value : values) {
    expect(value == expected, "sum of the queue");
    expected *= 10;
  }
  for (gradbus_handle* handle : handles) gradbus_handle_free(handle);
}

void flood(gradbus::Session& session, size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back("flood" + std::to_string(i));
  std::vector<gradbus_tensor_spec> specs;
  for (const std::string& name : names) {
    gradbus_tensor_spec_init(&specs.emplace_back());
    specs.back().name = name.c_str();
    specs.back().count = 2;
    specs.back().dtype = GRADBUS_F32;
    specs.back().op = GRADBUS_SUM;
  }
  std::vector<gradbus_tensor*> tensors(count);
  gradbus::check(gradbus_register(session.get(), specs.data(), count, tensors.data()));
  for (gradbus_tensor* tensor : tensors) {
    static_cast<float*>(gradbus_tensor_data(tensor))[1] = 1;
    gradbus::check(gradbus_start(tensor));
  }
  for (gradbus_tensor* tensor : tensors) {
    gradbus::check(gradbus_wait(tensor, -1));
    expect(
        static_cast<float*>(gradbus_tensor_data(tensor))[1] == static_cast<float>(session.size()),
        "sum");
  }
}

void gathers(gradbus::Session& session, size_t rounds) {
  std::vector<Nanos> times;
  for (size_t i = 0; i < rounds; ++i) {
    const std::vector<int32_t> mine(static_cast<size_t>(session.rank()) + i % 3, session.rank());
    const Nanos started = gradbus::monotonic_now();
    const size_t all = session.allgather(mine.data(), mine.size(), "gathers").size();
    times.push_back(gradbus::monotonic_now() - started);
    expect(all == session.size() * (session.size() - 1) / 2 + session.size() * (i % 3),
           "gathered size");
  }
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(rounds / 2), times.end());
  std::printf("median_us %lld\n", static_cast<long long>(times[rounds / 2] / 1000));
}

void reduce(gradbus::Session& session, const Words& words) {
  std::vector<int64_t> buffer(std::stoull(words[2]) + 1);  // large enough for any dtype
  if (words[3] == "i64") buffer.assign(buffer.size(), session.rank() + 1);
  gradbus::check(gradbus_allreduce(session.get(), words[1].c_str(), buffer.data(), buffer.data(),
                                   std::stoull(words[2]), dtype_of(words[3]), op_of(words[4])));
  if (words[3] == "i64" && words[4] == "sum" && words[2] != "0")
    expect(buffer[0] == session.size() * (session.size() + 1) / 2, "sum");
}

// The address of this process's mapping whose name contains `name`.
std::byte* mapping(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(name) != std::string::npos)
      return reinterpret_cast<std::byte*>(std::stoull(line.substr(0, line.find('-')), nullptr, 16));
  expect(false, "mapping " + name);
  return nullptr;
}

void push_raw(const gradbus::Submission& record) {
  std::byte* ring = mapping("gradbus-channel") + gradbus::kSubmissionRingOffset;
  auto* control = reinterpret_cast<gradbus::RingControl*>(ring);
  const uint64_t tail = control->tail.count.load();
  std::memcpy(ring + sizeof(*control) + tail % gradbus::kRingRecords * gradbus::kRecordBytes,
              &record, gradbus::kRecordBytes);
  control->tail.count.store(tail + 1);
}

void spoil(const std::string& field) {
  std::byte* channel = mapping("gradbus-channel");
  auto* ring = reinterpret_cast<gradbus::RingControl*>(channel + gradbus::kSubmissionRingOffset);
  if (field == "tail") ring->tail.count.store(UINT64_MAX);
  if (field == "kind") push_raw({99, 1, 1, 0, 0, 0, 0, 0, 0});
  if (field == "tensor") push_raw({1, 12345, 1, 0, 0, 0, 0, 0, 0});
  if (field == "round") push_raw({1, 1, 999, 0, 0, 0, 0, 0, 0});
  if (field == "bytes") push_raw({1, 1, 2, UINT64_MAX, 0, 0, 0, 0, 0});
  // Help with the sum of a tensor that has none, of one node and registered first.
  if (field == "assist") push_raw({1, 1, 1, 0, 0, 0, 0, 0, 0});
  if (field == "header") std::memset(channel, 0xff, gradbus::kChannelHeaderBytes);
  if (field == "completions")
    std::memset(channel + gradbus::kCompletionRingOffset, 0xff, gradbus::kRingBytes);
  // The local reductions, rank buffers and job word of the first segment of the arena.
  if (field == "arena") std::memset(mapping("gradbus:"), 0xff, 1 << 16);
}

void run_step(gradbus::Session& session, const std::string& step) {
  const Words words = split(step);
  const std::string& verb = words[0];
  if (verb == "reg")
    session.register_tensor(words[1], std::stoull(words[2]), dtype_of(words[3]), op_of(words[4]));
  if (verb == "red") reduce(session, words);
  if (verb == "loop") loop(session, words, std::stod(words[3]), 0);
  if (verb == "steps") loop(session, words, 0, std::stoull(words[3]));
  if (verb == "churn") churn(session, words);
  if (verb == "queue") queue(session, words[1]);
  if (verb == "flood") flood(session, std::stoull(words[1]));
  if (verb == "gathers") gathers(session, std::stoull(words[1]));
  if (verb == "bcast") {
    std::vector<float> data(std::stoull(words[2]));
    session.broadcast(data.data(), data.size(), std::stoi(words[3]), words[1].c_str());
  }
  if (verb == "barrier") session.barrier();
  if (verb == "touch") std::ofstream(words[1]) << getpid();
  if (verb == "await")
    while (access(words[1].c_str(), F_OK) != 0) usleep(2000);
  if (verb == "sleep") usleep(static_cast<useconds_t>(std::stod(words[1]) * 1e6));
  if (verb == "kill") raise(std::stoi(words[1]));
  if (verb == "exit") _exit(std::stoi(words[1]));
  if (verb == "spoil") spoil(words[1]);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    gradbus::Session session;
    for (int i = 1; i < argc; ++i) {
      run_step(session, argv[i]);
      std::printf("ok %s\n", argv[i]);
      std::fflush(stdout);
    }
    return 0;
  } catch (const gradbus::Error& problem) {
    std::printf("error %d %s\n", static_cast<int>(problem.code()), problem.what());
    std::fflush(stdout);
    return 3;
  }
}
