// Waiting that Python can interrupt: the GIL is released and signals are served between slices, so
// Ctrl-C raises KeyboardInterrupt within kSliceMs and other Python threads go on.
//
// Call with the GIL held, from any Python thread. Only the main one receives signals; interrupt.h
// has the exception.
#pragma once

#include <cstdint>
#include <functional>

#include "errors.h"

namespace gradbus::python {

constexpr int64_t kSliceMs = 100;

// `wait(ms)` wraps gradbus_wait or its like. Repeats it in slices until it is done or `timeout_ms`
// has passed; then its last TIMEOUT is the outcome. Throws what a signal handler raised.
Outcome wait_in_slices(const std::function<Outcome(int64_t ms)>& wait, int64_t timeout_ms);

// For calls that block without a timeout argument (init, register, barrier): runs `call` on a
// thread of its own. When a signal handler raises, the thread is left to finish alone, so `call`
// must own all it touches and must not touch Python.
Outcome call_interruptibly(std::function<Outcome()> call);

}  // namespace gradbus::python
