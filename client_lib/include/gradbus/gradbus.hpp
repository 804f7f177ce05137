// gradbus.hpp: the C interface with C++ manners. Header-only, C++17; throws gradbus::Error.
//
//   gradbus::Session session;                                   // rank and size from the launcher
//   gradbus::Tensor grad = session.register_tensor("w", 1000);  // f32, average
//   float* data = grad.data<float>();
//   ...
//   grad.start();  // backward goes on meanwhile
//   grad.wait();   // data holds the mean over all ranks
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gradbus/gradbus.h"

// The inline namespace keeps these classes apart from the library's own of the same names when both
// are linked into one program.
namespace gradbus {
inline namespace wrapper {

class Error : public std::runtime_error {
 public:
  Error(gradbus_code code, const char* message) : std::runtime_error(message), code_(code) {}
  gradbus_code code() const { return code_; }

 private:
  gradbus_code code_;
};

inline void check(gradbus_code code) {
  if (code != GRADBUS_OK) throw Error(code, gradbus_last_error());
}

template <typename T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr gradbus_dtype value = GRADBUS_F32;
};
template <>
struct dtype_of<double> {
  static constexpr gradbus_dtype value = GRADBUS_F64;
};
template <>
struct dtype_of<int32_t> {
  static constexpr gradbus_dtype value = GRADBUS_I32;
};
template <>
struct dtype_of<int64_t> {
  static constexpr gradbus_dtype value = GRADBUS_I64;
};
template <>
struct dtype_of<uint8_t> {
  static constexpr gradbus_dtype value = GRADBUS_U8;
};

// A tensor in shared memory, reduced in place. Belongs to its session; copying copies the
// reference.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(gradbus_tensor* tensor) : tensor_(tensor) {}

  template <typename T>
  T* data() const {
    return static_cast<T*>(gradbus_tensor_data(tensor_));
  }
  void start() { check(gradbus_start(tensor_)); }
  void wait(int64_t timeout_ms = -1) { check(gradbus_wait(tensor_, timeout_ms)); }
  bool test() {
    const gradbus_code code = gradbus_test(tensor_);
    if (code == GRADBUS_BUSY) return false;
    check(code);
    return true;
  }

 private:
  gradbus_tensor* tensor_ = nullptr;
};

// One rank of one job. Leaves the job when destroyed.
class Session {
 public:
  Session() { check(gradbus_init(nullptr, &session_)); }
  explicit Session(const gradbus_options& options) { check(gradbus_init(&options, &session_)); }
  ~Session() { gradbus_shutdown(session_); }
  Session(Session&& other) noexcept : session_(std::exchange(other.session_, nullptr)) {}
  Session& operator=(Session&& other) noexcept {
    std::swap(session_, other.session_);
    return *this;
  }

  int rank() const { return gradbus_rank(session_); }
  int size() const { return gradbus_size(session_); }
  int local_rank() const { return gradbus_local_rank(session_); }
  int local_size() const { return gradbus_local_size(session_); }
  gradbus_session* get() const { return session_; }

  Tensor register_tensor(const std::string& name, uint64_t count, gradbus_dtype dtype = GRADBUS_F32,
                         gradbus_op op = GRADBUS_AVERAGE) {
    const gradbus_tensor_spec spec{name.c_str(), count, dtype, op};
    gradbus_tensor* tensor = nullptr;
    check(gradbus_register(session_, &spec, 1, &tensor));
    return Tensor(tensor);
  }

  template <typename T>
  void allreduce(T* data, uint64_t count, gradbus_op op = GRADBUS_AVERAGE,
                 const char* name = nullptr) {
    check(gradbus_allreduce(session_, name, data, data, count, dtype_of<T>::value, op));
  }
  template <typename T>
  void broadcast(T* data, uint64_t count, int root = 0, const char* name = nullptr) {
    check(gradbus_broadcast(session_, name, data, count, dtype_of<T>::value, root));
  }
  // All ranks' elements in rank order; each rank may bring another number of them.
  template <typename T>
  std::vector<T> allgather(const T* data, uint64_t count, const char* name = nullptr) {
    gradbus_handle* handle = nullptr;
    check(gradbus_allgather_async(session_, name, data, count, dtype_of<T>::value, &handle));
    const gradbus_code code = gradbus_handle_wait(handle, -1);
    const void* output = nullptr;
    uint64_t bytes = 0;
    if (code == GRADBUS_OK) gradbus_handle_output(handle, &output, &bytes, nullptr);
    const T* first = static_cast<const T*>(output);
    std::vector<T> gathered(first, first + bytes / sizeof(T));
    gradbus_handle_free(handle);
    check(code);
    return gathered;
  }
  void barrier() { check(gradbus_barrier(session_)); }

 private:
  gradbus_session* session_ = nullptr;
};

}  // namespace wrapper
}  // namespace gradbus
