// The objects Python sees: a Session (one membership of a job), its Buckets (registered tensors in
// shared memory: the hot path) and Operations (ad-hoc operations on private buffers, one or a
// group), which are described by Requests.
//
// Call with the GIL held, from any Python thread; a Bucket or an Operation serves one thread at a
// time and refuses a second one with BusyError. After close() every method raises ClosedError;
// views of a Bucket's memory must not be touched any more.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "array.h"
#include "attachment.h"
#include "gradbus/gradbus.h"

namespace gradbus::python {

struct InitArguments {
  std::optional<std::string> job;
  std::optional<std::string> socket_path;
  std::optional<int64_t> rank;
  std::optional<int64_t> world_size;
  std::optional<int64_t> start_timeout_ms;
  std::optional<int64_t> op_timeout_ms;
  bool many_threads = false;
};

struct BucketSpec {
  std::string name;
  uint64_t count;
  gradbus_dtype dtype;
  gradbus_op op;
  std::string compression;
  uint64_t columns;
  std::string mode;
  std::string device;  // 16 bytes: the UUID of a GPU; none: in shared memory
  uint32_t priority = 0;
  uint32_t result_priority = 0;
  uint64_t budget_bytes = 0;
};

// Of gradbus_device_memory: sharing, descriptor, bytes, handle.
using MemoryTuple = std::tuple<int, int32_t, uint64_t, nanobind::bytes>;
MemoryTuple to_tuple(const gradbus_device_memory& memory);

class Bucket {
 public:
  Bucket(std::shared_ptr<Attachment> attachment, gradbus_tensor* tensor, BucketSpec spec);

  void start();
  // What the compression remembers: gradbus.h. Ended by wait().
  void start_read_residual_state(int part);
  void start_write_residual_state(int part);
  void scale_residual_state(double factor);
  void continue_warm_up(uint64_t rounds);
  void set_learning_rate(double rate);
  void start_pull();
  // What shards keep: gradbus.h. Ended by wait().
  uint32_t optimizer_state_parts();
  void start_read_optimizer_state(uint32_t part);
  void start_write_optimizer_state(uint32_t part);
  bool test();
  void wait(std::optional<int64_t> timeout_ms);
  // The oldest result that no step has taken is in the current delay slot; false: none was left.
  bool drain();
  // A one-dimensional array over the shared memory of each delay slot; they keep the memory mapped.
  nanobind::list delay_slots();
  // This rank uses the tensor no more: its memory is free for others once all ranks have said so
  // and no array of delay_slots() is alive. BusyError while a round is in flight.
  void unregister();
  uint32_t delay_slot();
  int64_t staleness();
  // What opens this rank's elements on its GPU: memory, ready, done (gradbus.h). A text: why they
  // are in shared memory instead. None: no GPU was requested. A descriptor is the session's.
  std::optional<
      std::variant<std::tuple<MemoryTuple, nanobind::bytes, nanobind::bytes>, std::string>>
  device_rank_buffer();
  const BucketSpec& spec() const { return spec_; }

 private:
  std::shared_ptr<Attachment> attachment_;
  gradbus_tensor* tensor_;
  BucketSpec spec_;
  std::atomic<bool> in_use_{false};
};

// One operation as gradbus_operation describes it; null arrays where the collective needs none.
struct Request {
  gradbus_collective collective;
  std::optional<std::string> name;
  nanobind::object input;
  nanobind::object output;
  gradbus_op op;
  int32_t root;
  double prescale;
  double postscale;
  uint64_t row_elements;
  std::optional<std::vector<uint64_t>> send_counts;
  std::optional<gradbus_dtype> dtype;  // instead of the array's, which has as many bytes an element
  std::optional<std::string> compression;
  std::vector<uint64_t> shape;  // compared between ranks; none: not compared
};

class Operation {
 public:
  Operation(std::shared_ptr<Attachment> attachment, gradbus_handle* handle,
            std::deque<Array> arrays);
  ~Operation();

  // True when a wait would not block: the result, or the error, is there.
  bool poll();
  void wait(std::optional<int64_t> timeout_ms);
  // Of collectives with blocks, after wait(): elements per rank, and all blocks in rank order.
  // `index` counts the operations of a group.
  std::vector<uint64_t> counts(size_t index);
  void copy_output(nanobind::handle into, size_t index);

 private:
  std::shared_ptr<Attachment> attachment_;
  gradbus_handle* handle_;
  std::deque<Array> arrays_;  // inputs and outputs: valid until the operation ends
  std::atomic<bool> in_use_{false};
};

class Session {
 public:
  explicit Session(const InitArguments& arguments);

  void close();
  bool is_open() const { return attachment_->is_open(); }
  int64_t op_timeout_ms() const { return attachment_->op_timeout_ms(); }

  // What cannot change during a session, read once.
  struct Place {
    int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
    std::string job, launcher;
  };
  const Place& place() const { return place_; }

  std::vector<std::unique_ptr<Bucket>> register_buckets(const std::vector<BucketSpec>& specs);
  // What the agent offers of this GPU, and an event; the first time it is asked for, then nothing.
  std::pair<std::vector<MemoryTuple>, nanobind::bytes> try_device(const std::string& device);
  void device_tried(const std::string& device, const std::vector<std::string>& why_not);
  // `input_stays`: the caller waits before it touches an input again.
  std::unique_ptr<Operation> start(const std::vector<Request>& requests, bool input_stays);
  // (group, mode) of what an administrator has asked for and every rank has heard; none left: none.
  std::optional<std::pair<std::string, std::string>> next_mode_change();
  std::string ask_coordinator(const std::string& question);
  // The same for what ad-hoc operations of this name have set aside.
  void unregister(const std::string& name);
  void report_loss(double loss);
  bool tracing();
  void trace(const std::string& name, uint64_t begin_ns, uint64_t end_ns);
  uint64_t waited_ns();
  nanobind::bytes job_secret();
  void barrier();
  // A session for these ranks of this one; null where this rank is not among them.
  // What the job's policy says of a gradient; "none" for dense.
  std::string compression_for(const std::string& tensor, uint64_t elements, uint32_t dims);
  // What `asked` means, or where it is none the job's policy.
  gradbus_mode mode_for(const std::string& tensor, uint64_t elements, uint32_t dims,
                        const std::optional<std::string>& asked);
  std::unique_ptr<Session> process_set(const std::vector<int32_t>& ranks);

 private:
  explicit Session(std::shared_ptr<Attachment> attachment);

  std::shared_ptr<Attachment> attachment_;
  Place place_;
  std::set<std::string> tried_;
};

}  // namespace gradbus::python
