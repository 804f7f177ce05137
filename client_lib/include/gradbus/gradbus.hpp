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
template <>
struct dtype_of<int8_t> {
  static constexpr gradbus_dtype value = GRADBUS_I8;
};
template <>
struct dtype_of<int16_t> {
  static constexpr gradbus_dtype value = GRADBUS_I16;
};
template <>
struct dtype_of<uint16_t> {
  static constexpr gradbus_dtype value = GRADBUS_U16;
};
template <>
struct dtype_of<uint32_t> {
  static constexpr gradbus_dtype value = GRADBUS_U32;
};
template <>
struct dtype_of<uint64_t> {
  static constexpr gradbus_dtype value = GRADBUS_U64;
};
template <>
struct dtype_of<bool> {
  static constexpr gradbus_dtype value = GRADBUS_BOOL;
  static_assert(sizeof(bool) == 1, "GRADBUS_BOOL is one byte");
};

// What an operation with blocks of different length gives: all of them, and the elements of each.
template <typename T>
struct Blocks {
  std::vector<T> elements;
  std::vector<uint64_t> counts;  // by rank
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

// An operation in flight, or several under one handle; freed with it.
class Handle {
 public:
  Handle() = default;
  explicit Handle(gradbus_handle* handle) : handle_(handle) {}
  ~Handle() { gradbus_handle_free(handle_); }
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  void wait(int64_t timeout_ms = -1) { check(gradbus_handle_wait(handle_, timeout_ms)); }
  bool test() {
    const gradbus_code code = gradbus_handle_test(handle_);
    if (code == GRADBUS_BUSY) return false;
    check(code);
    return true;
  }
  // After wait(): of an all-gather, gather (elsewhere than at the root: no elements) or all-to-all.
  template <typename T>
  Blocks<T> blocks(int ranks, size_t index = 0) const {
    const void* data = nullptr;
    uint64_t bytes = 0;
    const uint64_t* counts = nullptr;
    check(gradbus_handle_output_at(handle_, index, &data, &bytes, &counts));
    Blocks<T> result;
    result.elements = to_vector(static_cast<const T*>(data), bytes / sizeof(T));
    if (counts != nullptr) result.counts.assign(counts, counts + ranks);
    return result;
  }

 private:
  // The library's bytes have the alignment of any type; no bytes may have no address.
  template <typename T>
  static std::vector<T> to_vector(const T* first, size_t count) {
    return count == 0 ? std::vector<T>() : std::vector<T>(first, first + count);
  }

  gradbus_handle* handle_ = nullptr;
};

// One rank of one job. Leaves the job when destroyed.
class Session {
 public:
  Session() { check(gradbus_init(nullptr, &session_)); }
  explicit Session(const gradbus_options& options) { check(gradbus_init(&options, &session_)); }
  explicit Session(gradbus_session* session) : session_(session) {}
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
    gradbus_tensor_spec spec;
    gradbus_tensor_spec_init(&spec);
    spec.name = name.c_str();
    spec.count = count;
    spec.dtype = dtype;
    spec.op = op;
    return register_tensor(spec);
  }
  Tensor register_tensor(const gradbus_tensor_spec& spec) {
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
  // The root's `out` gets the result; others may pass nullptr.
  template <typename T>
  void reduce(const T* in, T* out, uint64_t count, int root = 0, gradbus_op op = GRADBUS_AVERAGE,
              const char* name = nullptr) {
    gradbus_operation operation = describe<T>(GRADBUS_REDUCE, name, in, count);
    operation.out = out;
    operation.root = root;
    operation.op = op;
    run(operation);
  }
  // This rank's elements of the result: rows of row_elements, as even as can be.
  template <typename T>
  std::vector<T> reduce_scatter(const T* in, uint64_t count, uint64_t row_elements = 1,
                                gradbus_op op = GRADBUS_AVERAGE, const char* name = nullptr) {
    uint64_t first = 0;
    uint64_t elements = 0;
    check(gradbus_shard(session_, rank(), count, row_elements, &first, &elements));
    std::vector<T> shard(elements);
    gradbus_operation operation = describe<T>(GRADBUS_REDUCESCATTER, name, in, count);
    operation.out = shard.data();
    operation.op = op;
    operation.row_elements = row_elements;
    run(operation);
    return shard;
  }
  // `count` elements of the root's count * size(); `in` is read at the root alone.
  template <typename T>
  std::vector<T> scatter(const T* in, uint64_t count, int root = 0, const char* name = nullptr) {
    std::vector<T> block(count);
    gradbus_operation operation = describe<T>(GRADBUS_SCATTER, name, in, count);
    operation.out = block.data();
    operation.root = root;
    run(operation);
    return block;
  }
  // All ranks' elements in rank order; each rank may bring another number of them.
  template <typename T>
  std::vector<T> allgather(const T* data, uint64_t count, const char* name = nullptr) {
    return run(describe<T>(GRADBUS_ALLGATHER, name, data, count)).template blocks<T>(0).elements;
  }
  // The same for the root; others get nothing.
  template <typename T>
  std::vector<T> gather(const T* data, uint64_t count, int root = 0, const char* name = nullptr) {
    gradbus_operation operation = describe<T>(GRADBUS_GATHER, name, data, count);
    operation.root = root;
    return run(operation).template blocks<T>(0).elements;
  }
  // counts[r] elements for each rank r, one block after the other.
  template <typename T>
  Blocks<T> alltoall(const T* data, const std::vector<uint64_t>& counts,
                     const char* name = nullptr) {
    uint64_t count = 0;
    for (const uint64_t part : counts) count += part;
    gradbus_operation operation = describe<T>(GRADBUS_ALLTOALL, name, data, count);
    if (counts.size() != static_cast<size_t>(size()))
      throw Error(GRADBUS_INVALID,
                  "GB-O900 BAD_ARGUMENT: alltoall: counts has another size than "
                  "the job | next: pass one count per rank");
    operation.send_counts = counts.data();
    return run(operation).template blocks<T>(size());
  }

  // Any operation, or a group under one handle; what they point to stays until wait() has returned.
  Handle run(const gradbus_operation& operation) {
    gradbus_handle* handle = nullptr;
    check(gradbus_run_operation(session_, &operation, &handle));
    return Handle(handle);
  }
  Handle start(const std::vector<gradbus_operation>& operations) {
    gradbus_handle* handle = nullptr;
    check(gradbus_start_operations(session_, operations.data(), operations.size(), &handle));
    return Handle(handle);
  }
  template <typename T>
  static gradbus_operation describe(gradbus_collective collective, const char* name, const T* in,
                                    uint64_t count) {
    gradbus_operation operation;
    gradbus_operation_init(&operation, collective);
    operation.name = name;
    operation.in = in;
    operation.count = count;
    operation.dtype = dtype_of<T>::value;
    return operation;
  }

  // A session for some ranks; every rank calls it. Where this rank is no member, get() is null and
  // nothing else may be called.
  Session process_set(const std::vector<int32_t>& ranks) {
    gradbus_session* set = nullptr;
    check(gradbus_process_set(session_, ranks.data(), ranks.size(), &set));
    return Session(set);
  }
  void barrier() { check(gradbus_barrier(session_)); }

 private:
  gradbus_session* session_ = nullptr;
};

}  // namespace wrapper
}  // namespace gradbus
