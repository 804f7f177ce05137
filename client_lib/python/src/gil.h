// Releases Python's lock for a scope, also in threads that outlive the interpreter.
//
// A daemon thread that takes the lock again while the interpreter ends is ended by Python 3.11 with
// pthread_exit(). Its unwinding may not pass the noexcept functions of nanobind, which would abort
// the process. Such a thread sleeps here until the process has ended, as in Python 3.14.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace gradbus::python {

class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() {
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      for (;;) pause();
    }
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace gradbus::python
