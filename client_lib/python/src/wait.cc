// See wait.h.
#include "wait.h"

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "gil.h"
#include "gradbus/gradbus.h"
#include "interrupt.h"

namespace nb = nanobind;

namespace gradbus::python {
namespace {

using SteadyClock = std::chrono::steady_clock;

int64_t ms_until(SteadyClock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
  return std::max<int64_t>(0, left.count());
}

void serve_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  if (!is_interrupted()) return;
  PyErr_SetNone(PyExc_KeyboardInterrupt);
  throw nb::python_error();
}

struct Background {
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  Outcome outcome;
};

void finish(Background& background, Outcome outcome) {
  const std::lock_guard lock(background.mutex);
  background.outcome = std::move(outcome);
  background.done = true;
  background.ended.notify_one();
}

bool ended_within(Background& background, int64_t ms) {
  std::unique_lock lock(background.mutex);
  return background.ended.wait_for(lock, std::chrono::milliseconds(ms),
                                   [&] { return background.done; });
}

}  // namespace

Outcome wait_in_slices(const std::function<Outcome(int64_t)>& wait, int64_t timeout_ms) {
  const auto deadline = SteadyClock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    Outcome outcome;
    const int64_t left_ms = ms_until(deadline);
    {
      GilReleased release;
      outcome = wait(std::min(left_ms, kSliceMs));
    }
    if (outcome.code != GRADBUS_TIMEOUT || left_ms <= kSliceMs) return outcome;
    serve_signals();
  }
}

Outcome call_interruptibly(std::function<Outcome()> call) {
  const auto background = std::make_shared<Background>();
  // Detached: an interrupted caller must not join a call that may block for a minute more.
  std::thread([background, call = std::move(call), caller = gettid()] {
    gradbus_act_for_thread(caller);
    finish(*background, call());
  }).detach();
  for (;;) {
    bool done = false;
    {
      GilReleased release;
      done = ended_within(*background, kSliceMs);
    }
    if (done) return std::move(background->outcome);
    serve_signals();
  }
}

}  // namespace gradbus::python
