// Rank 0 of two ends its session while other threads of it are inside calls, in every way that the
// C interface has. Rank 1 takes part in nothing, so that rank 0's calls wait.
//
// Each case has a job of its own. A call beside gradbus_shutdown() ends with GRADBUS_CLOSED, and so
// does every call after it. Prints "ok CASE"; the first wrong answer ends with status 4.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gradbus/gradbus.h"

namespace {

constexpr int kPauseUs = 30'000;  // until the other threads are inside their calls

struct Rank {
  gradbus_session* session = nullptr;
  gradbus_tensor* tensor = nullptr;  // the other rank never starts it
};
using Call = std::function<gradbus_code(Rank&)>;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::printf("wrong %s: %s\n", what.c_str(), gradbus_last_error());
  std::fflush(stdout);
  _exit(4);
}

void expect_closed(gradbus_code code, const std::string& what) {
  expect(code == GRADBUS_CLOSED, what + " returned " + std::to_string(code));
  expect(std::strstr(gradbus_last_error(), "GB-O908") != nullptr, what + " told another reason");
}

gradbus_tensor_spec spec_of(const char* name) {
  gradbus_tensor_spec spec;
  gradbus_tensor_spec_init(&spec);
  spec.name = name;
  spec.count = 1000;
  spec.dtype = GRADBUS_F32;
  spec.op = GRADBUS_SUM;
  return spec;
}

Rank join(const std::string& job) {
  gradbus_options options;
  gradbus_options_init(&options);
  options.job = job.c_str();
  options.rank = std::atoi(std::getenv("GRADBUS_RANK"));
  options.world_size = std::atoi(std::getenv("GRADBUS_SIZE"));
  Rank rank;
  expect(gradbus_init(&options, &rank.session) == GRADBUS_OK, "init of " + job);
  const gradbus_tensor_spec specs[] = {spec_of("of rank 0"), spec_of("of rank 1")};
  gradbus_tensor* tensors[2] = {};
  expect(gradbus_register(rank.session, specs, 2, tensors) == GRADBUS_OK, "register");
  rank.tensor = tensors[options.rank];
  return rank;
}

// Until rank 0 has left.
void stay(Rank& rank) {
  expect(gradbus_start(rank.tensor) == GRADBUS_OK, "start");
  while (gradbus_wait(rank.tensor, 1000) == GRADBUS_TIMEOUT) {
  }
  gradbus_shutdown(rank.session);
}

gradbus_code wait(Rank& rank) {
  expect(gradbus_start(rank.tensor) == GRADBUS_OK, "start");
  return gradbus_wait(rank.tensor, -1);
}
gradbus_code poll(Rank& rank) {
  gradbus_code code = gradbus_start(rank.tensor);
  while (code == GRADBUS_OK || code == GRADBUS_BUSY) code = gradbus_test(rank.tensor);
  return code;
}
gradbus_code drain(Rank& rank) {
  int32_t found = 0;
  gradbus_code code = GRADBUS_OK;
  while (code == GRADBUS_OK) code = gradbus_drain(rank.tensor, -1, &found);
  return code;
}
gradbus_code reduce(Rank& rank) {
  std::vector<double> values(100);
  return gradbus_allreduce(rank.session, "alone", values.data(), values.data(), values.size(),
                           GRADBUS_F64, GRADBUS_SUM);
}
gradbus_code reduce_large(Rank& rank) {  // another way through the library
  std::vector<double> values(2 << 20);
  return gradbus_allreduce(rank.session, "large", values.data(), values.data(), values.size(),
                           GRADBUS_F64, GRADBUS_SUM);
}
gradbus_code begin_many(Rank& rank) {
  std::vector<float> values(100);
  gradbus_code code = GRADBUS_OK;
  for (int i = 0; code == GRADBUS_OK; ++i) {
    gradbus_handle* handle = nullptr;
    code = gradbus_allreduce_async(rank.session, ("many" + std::to_string(i % 8)).c_str(),
                                   values.data(), values.data(), values.size(), GRADBUS_F32,
                                   GRADBUS_SUM, &handle);
    gradbus_handle_free(handle);
  }
  return code;
}
gradbus_code register_more(Rank& rank) {
  const gradbus_tensor_spec spec = spec_of("nobody else has it");
  gradbus_tensor* tensor = nullptr;
  return gradbus_register(rank.session, &spec, 1, &tensor);
}
gradbus_code make_set(Rank& rank) {
  const int32_t ranks[] = {0, 1};
  gradbus_session* set = nullptr;
  return gradbus_process_set(rank.session, ranks, 2, &set);
}
gradbus_code change_mode(Rank& rank) {
  gradbus_mode_change change;
  gradbus_mode_change_init(&change);
  int found = 0;
  return gradbus_next_mode_change(rank.session, &change, &found);
}
gradbus_code look(Rank& rank) {
  gradbus_code code = GRADBUS_OK;
  while (code == GRADBUS_OK) {
    expect(gradbus_size(rank.session) == 2 && gradbus_rank(rank.session) == 0, "rank and size");
    expect(std::strlen(gradbus_job(rank.session)) > 0, "the job's name");
    (void)gradbus_waited_ns(rank.session);
    (void)gradbus_tracing(rank.session);
    (void)gradbus_tensor_data(rank.tensor);
    (void)gradbus_staleness(rank.tensor);
    uint8_t secret[GRADBUS_JOB_SECRET_BYTES];
    code = gradbus_job_secret(rank.session, secret);
    if (code == GRADBUS_OK) code = gradbus_report_loss(rank.session, 1);
  }
  return code;
}
gradbus_code map_and_free(Rank& rank) {
  gradbus_code code = GRADBUS_OK;
  while (code == GRADBUS_OK) {
    gradbus_mapping* mapping = nullptr;
    code = gradbus_tensor_mapping(rank.tensor, &mapping);
    gradbus_mapping_free(mapping);
  }
  return code;
}

const struct {
  const char* name;
  Call call;
} kCalls[] = {
    {"wait", wait},
    {"poll", poll},
    {"drain", drain},
    {"reduce", reduce},
    {"reduce_large", reduce_large},
    {"begin_many", begin_many},
    {"register", register_more},
    {"process_set", make_set},
    {"mode_change", change_mode},
    {"look", look},
    {"map", map_and_free},
};

void expect_all_closed(Rank& rank) {
  for (const auto& [name, call] : kCalls)
    if (std::string(name) != "wait") expect_closed(call(rank), std::string(name) + " afterwards");
  expect_closed(gradbus_start(rank.tensor), "start afterwards");
  expect_closed(gradbus_wait(rank.tensor, 0), "wait afterwards");
  expect_closed(gradbus_unregister(rank.tensor), "unregister afterwards");
  expect(gradbus_tensor_data(rank.tensor) == nullptr, "data afterwards");
  expect_closed(gradbus_shutdown(rank.session), "a second shutdown");
}

void end_beside(const std::string& name, const std::vector<Call>& calls) {
  Rank rank = join("ending-" + name);
  if (gradbus_rank(rank.session) == 1) return stay(rank);
  std::vector<std::thread> threads;
  for (const Call& call : calls)
    threads.emplace_back([&rank, &call, &name] { expect_closed(call(rank), name); });
  usleep(kPauseUs);
  expect(gradbus_shutdown(rank.session) == GRADBUS_OK, "shutdown beside " + name);
  for (std::thread& thread : threads) thread.join();
  expect_all_closed(rank);
  std::printf("ok %s\n", name.c_str());
}

// Expect: one of them ends the session, and none returns before it has ended.
void end_twice() {
  Rank rank = join("ending-twice");
  if (gradbus_rank(rank.session) == 1) return stay(rank);
  std::atomic<int> ended{0};
  std::vector<std::thread> threads;
  threads.emplace_back([&] { expect_closed(wait(rank), "wait beside two shutdowns"); });
  usleep(kPauseUs);
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      const gradbus_code code = gradbus_shutdown(rank.session);
      if (code == GRADBUS_OK) ++ended;
      if (code != GRADBUS_OK) expect_closed(code, "another shutdown");
      expect_closed(gradbus_start(rank.tensor), "start after a shutdown");
    });
  for (std::thread& thread : threads) thread.join();
  expect(ended == 1, "number of shutdowns");
  std::printf("ok twice\n");
}

// Expect: handles that nobody has freed end with their session; then they are unknown.
void end_with_handles() {
  Rank rank = join("ending-handles");
  if (gradbus_rank(rank.session) == 1) return stay(rank);
  std::vector<float> values(100);
  gradbus_handle* handle = nullptr;
  expect(gradbus_allreduce_async(rank.session, "left", values.data(), values.data(), values.size(),
                                 GRADBUS_F32, GRADBUS_SUM, &handle) == GRADBUS_OK,
         "start of an operation");
  expect(gradbus_shutdown(rank.session) == GRADBUS_OK, "shutdown with a handle");
  std::vector<float>().swap(values);
  expect(gradbus_handle_wait(handle, 0) == GRADBUS_INVALID, "wait for a handle that has ended");
  expect(std::strstr(gradbus_last_error(), "argument handle") != nullptr, "its reason");
  gradbus_handle_free(handle);
  std::printf("ok handles\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  const auto is_wanted = [&](const std::string& name) { return only.empty() || only == name; };
  for (const auto& [name, call] : kCalls)
    if (is_wanted(name)) end_beside(name, {call});
  if (is_wanted("all"))
    end_beside("all", {wait, reduce, register_more, look, map_and_free, begin_many});
  if (is_wanted("twice")) end_twice();
  if (is_wanted("handles")) end_with_handles();
  return 0;
}
