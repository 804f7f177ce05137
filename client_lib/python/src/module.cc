// gradbus._core: the C interface as five Python classes. This file is the whole surface; the types
// are declared in gradbus/_core.pyi, the friendly functions in gradbus/_api.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <span>
#include <tuple>

#include "array.h"
#include "gil.h"
#include "hash.h"
#include "interrupt.h"
#include "placed.h"
#include "session.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gradbus::python {
namespace {

// name, count, dtype, op, compression, columns, mode
using SpecTuple = std::tuple<std::string, uint64_t, int, int, std::string, uint64_t, std::string>;

// Of a tensor's partial sums, and of its results.
using Priorities = std::pair<uint32_t, uint32_t>;

// `devices`: of each, the UUID of a GPU or nothing; or empty. `priorities`, `budgets`: of each; or
// empty.
std::vector<BucketSpec> specs_of(const std::vector<SpecTuple>& tuples,
                                 const std::vector<nb::bytes>& devices,
                                 const std::vector<Priorities>& priorities,
                                 const std::vector<uint64_t>& budgets) {
  std::vector<BucketSpec> specs;
  for (const auto& [name, count, dtype, op, compression, columns, mode] : tuples) {
    specs.push_back({name,
                     count,
                     static_cast<gradbus_dtype>(dtype),
                     static_cast<gradbus_op>(op),
                     compression,
                     columns,
                     mode,
                     {}});
    const size_t index = specs.size() - 1;
    if (index < devices.size())
      specs.back().device = {devices[index].c_str(), devices[index].size()};
    if (index < priorities.size())
      std::tie(specs.back().priority, specs.back().result_priority) = priorities[index];
    if (index < budgets.size()) specs.back().budget_bytes = budgets[index];
  }
  return specs;
}

void bind_bucket(nb::module_& module) {
  nb::class_<Bucket>(module, "Bucket")
      .def("start", &Bucket::start)
      .def("start_read_residual_state", &Bucket::start_read_residual_state, "part"_a)
      .def("start_write_residual_state", &Bucket::start_write_residual_state, "part"_a)
      .def("scale_residual_state", &Bucket::scale_residual_state, "factor"_a)
      .def("continue_warm_up", &Bucket::continue_warm_up, "rounds"_a)
      .def("set_learning_rate", &Bucket::set_learning_rate, "rate"_a)
      .def("start_pull", &Bucket::start_pull)
      .def_prop_ro("optimizer_state_parts", &Bucket::optimizer_state_parts)
      .def("start_read_optimizer_state", &Bucket::start_read_optimizer_state, "part"_a)
      .def("start_write_optimizer_state", &Bucket::start_write_optimizer_state, "part"_a)
      .def("test", &Bucket::test)
      .def("wait", &Bucket::wait, "timeout_ms"_a = nb::none())
      .def("drain", &Bucket::drain)
      .def("delay_slots", &Bucket::delay_slots)
      .def("unregister", &Bucket::unregister)
      .def("device_rank_buffer", &Bucket::device_rank_buffer)
      .def_prop_ro("delay_slot", &Bucket::delay_slot)
      .def_prop_ro("staleness", &Bucket::staleness)
      .def_prop_ro("name", [](const Bucket& bucket) { return bucket.spec().name; })
      .def_prop_ro("count", [](const Bucket& bucket) { return bucket.spec().count; });
}

void bind_operation(nb::module_& module) {
  nb::class_<Operation>(module, "Operation")
      .def("poll", &Operation::poll)
      .def("wait", &Operation::wait, "timeout_ms"_a = nb::none())
      .def("counts", &Operation::counts, "index"_a = 0)
      .def("copy_output", &Operation::copy_output, "into"_a, "index"_a = 0);
}

void construct_request(Request* self, int collective, std::optional<std::string> name,
                       nb::object input, nb::object output, int op, int32_t root, double prescale,
                       double postscale, uint64_t row_elements,
                       std::optional<std::vector<uint64_t>> send_counts, std::optional<int> dtype,
                       std::optional<std::string> compression, std::vector<uint64_t> shape) {
  new (self) Request{static_cast<gradbus_collective>(collective),
                     std::move(name),
                     std::move(input),
                     std::move(output),
                     static_cast<gradbus_op>(op),
                     root,
                     prescale,
                     postscale,
                     row_elements,
                     std::move(send_counts),
                     {},
                     std::move(compression),
                     std::move(shape)};
  if (dtype) self->dtype = static_cast<gradbus_dtype>(*dtype);
}

void bind_request(nb::module_& module) {
  nb::class_<Request>(module, "Request")
      .def("__init__", &construct_request, "collective"_a, "name"_a = nb::none(),
           "input"_a = nb::none(), "output"_a = nb::none(), "op"_a = 1, "root"_a = 0,
           "prescale"_a = 1.0, "postscale"_a = 1.0, "row_elements"_a = 1,
           "send_counts"_a = nb::none(), "dtype"_a = nb::none(), "compression"_a = nb::none(),
           "shape"_a = std::vector<uint64_t>());
}

void construct_session(Session* self, std::optional<std::string> job,
                       std::optional<std::string> socket_path, std::optional<int64_t> rank,
                       std::optional<int64_t> world_size, std::optional<int64_t> start_timeout_ms,
                       std::optional<int64_t> op_timeout_ms, bool many_threads) {
  new (self) Session({std::move(job), std::move(socket_path), rank, world_size, start_timeout_ms,
                      op_timeout_ms, many_threads});
}

void bind_placed_gradients(nb::module_& module) {
  static PyType_Slot placed_slots[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(PlacedGradients::traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(PlacedGradients::clear)},
      {0, nullptr}};
  nb::class_<PlacedGradients>(module, "PlacedGradients", nb::type_slots(placed_slots))
      .def(nb::init<const nb::list&>(), "parameters"_a)
      .def("is_intact", nb::overload_cast<>(&PlacedGradients::is_intact))
      .def("note", &PlacedGradients::note)
      .def("is_as_noted", &PlacedGradients::is_as_noted)
      .def("is_ready_for_more", &PlacedGradients::is_ready_for_more)
      .def("noted", &PlacedGradients::noted);
}

void bind_mode(nb::module_& module) {
  nb::class_<gradbus_mode>(module, "Mode")
      .def_prop_ro("kind", [](const gradbus_mode& mode) { return static_cast<int>(mode.kind); })
      .def_ro("delay", &gradbus_mode::delay)
      .def_ro("dc", &gradbus_mode::dc)
      .def_ro("dc_decay", &gradbus_mode::dc_decay)
      .def_ro("period_steps", &gradbus_mode::period_steps)
      .def_ro("period_ms", &gradbus_mode::period_ms)
      .def_ro("outer_lr", &gradbus_mode::outer_lr)
      .def_ro("outer_momentum", &gradbus_mode::outer_momentum)
      .def_ro("fragments", &gradbus_mode::fragments)
      .def_ro("overlap", &gradbus_mode::overlap)
      .def_prop_ro("topology",
                   [](const gradbus_mode& mode) { return static_cast<int>(mode.topology); })
      .def_ro("seed", &gradbus_mode::seed)
      .def_prop_ro("wait", [](const gradbus_mode& mode) { return mode.wait != 0; })
      .def_prop_ro("text", [](const gradbus_mode& mode) { return std::string(mode.text); });
}

void bind_place(nb::class_<Session>& session) {
  session.def_prop_ro("rank", [](const Session& s) { return s.place().rank; })
      .def_prop_ro("size", [](const Session& s) { return s.place().size; })
      .def_prop_ro("local_rank", [](const Session& s) { return s.place().local_rank; })
      .def_prop_ro("local_size", [](const Session& s) { return s.place().local_size; })
      .def_prop_ro("cross_rank", [](const Session& s) { return s.place().cross_rank; })
      .def_prop_ro("cross_size", [](const Session& s) { return s.place().cross_size; })
      .def_prop_ro("job", [](const Session& s) { return s.place().job; })
      .def_prop_ro("launcher", [](const Session& s) { return s.place().launcher; });
}

std::vector<std::unique_ptr<Bucket>> register_buckets(Session& session,
                                                      const std::vector<SpecTuple>& specs,
                                                      const std::vector<nb::bytes>& devices,
                                                      const std::vector<Priorities>& priorities,
                                                      const std::vector<uint64_t>& budgets) {
  return session.register_buckets(specs_of(specs, devices, priorities, budgets));
}

void bind_session(nb::module_& module) {
  nb::class_<Session> session(module, "Session");
  session
      .def("__init__", &construct_session, "job"_a = nb::none(), "socket_path"_a = nb::none(),
           "rank"_a = nb::none(), "world_size"_a = nb::none(), "start_timeout_ms"_a = nb::none(),
           "op_timeout_ms"_a = nb::none(), "many_threads"_a = false)
      .def("close", &Session::close)
      .def_prop_ro("is_open", &Session::is_open)
      .def_prop_ro("op_timeout_ms", &Session::op_timeout_ms)
      .def("register_buckets", &register_buckets, "specs"_a, "devices"_a = std::vector<nb::bytes>(),
           "priorities"_a = std::vector<Priorities>(), "budgets"_a = std::vector<uint64_t>())
      .def(
          "try_device",
          [](Session& self, const nb::bytes& device) {
            return self.try_device({device.c_str(), device.size()});
          },
          "device"_a)
      .def(
          "device_tried",
          [](Session& self, const nb::bytes& device, const std::vector<std::string>& why_not) {
            self.device_tried({device.c_str(), device.size()}, why_not);
          },
          "device"_a, "why_not"_a)
      .def("compression_for", &Session::compression_for, "tensor"_a, "elements"_a, "dims"_a)
      .def("mode_for", &Session::mode_for, "tensor"_a, "elements"_a, "dims"_a,
           "asked"_a = nb::none())
      .def("start", &Session::start, "requests"_a, "input_stays"_a = false)
      .def("process_set", &Session::process_set, "ranks"_a)
      .def("next_mode_change", &Session::next_mode_change)
      .def("ask_coordinator", &Session::ask_coordinator, "question"_a)
      .def("unregister", &Session::unregister, "name"_a)
      .def("report_loss", &Session::report_loss, "loss"_a)
      .def("tracing", &Session::tracing)
      .def("trace", &Session::trace, "name"_a, "begin_ns"_a, "end_ns"_a)
      .def("waited_ns", &Session::waited_ns)
      .def("job_secret", &Session::job_secret)
      .def("barrier", &Session::barrier);
  bind_place(session);
}

}  // namespace
}  // namespace gradbus::python

NB_MODULE(_core, module) {
  // A rank's session and the views that an optimizer holds live until the process ends, by design.
  nb::set_leak_warnings(false);
  module.attr("version") = gradbus_version();
  module.def("glob_matches", [](const std::string& glob, const std::string& text) {
    return gradbus_glob_matches(glob.c_str(), text.c_str()) != 0;
  });
  module.def("stand_for_main_thread", &gradbus::python::stand_for_main_thread, "stands"_a);
  module.def("hash_bytes", [](nb::handle elements) {
    using gradbus::python::Access, gradbus::python::array_of;
    const auto array = array_of(elements, Access::kRead, "hash_bytes");
    const std::span bytes(static_cast<const std::byte*>(array.data), array.bytes());
    const gradbus::python::GilReleased release;
    return gradbus::python::hash_bytes(bytes);
  });
  gradbus::python::bind_bucket(module);
  gradbus::python::bind_request(module);
  gradbus::python::bind_operation(module);
  gradbus::python::bind_placed_gradients(module);
  gradbus::python::bind_mode(module);
  gradbus::python::bind_session(module);
}
