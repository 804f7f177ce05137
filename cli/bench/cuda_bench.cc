#include "cli/bench/cuda_bench.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/bench/codec_figures.h"
#include "cli/bench/json_file.h"
#include "cli/command.h"
#include "common/errors.h"
#include "compression/cuda/cuda_selection.h"
#include "compression/error_feedback.h"
#include "compression/payload.h"
#include "compression/registry.h"
#include "worker_agent/gpu/cuda_plugin.h"

namespace gradbus {
namespace {

constexpr double kSectorBytes = 32;  // what one selected element costs a device to touch

constexpr size_t kDevicesMax = size_t{1} << 32;  // no number of a GPU is larger

Result<uint32_t> device_number(const std::string& text, size_t devices) {
  constexpr std::string_view kCuda = "cuda";
  const std::string_view rest = std::string_view(text).substr(std::min(text.size(), kCuda.size()));
  uint32_t number = 0;
  bool good = text.starts_with(kCuda);
  if (good && !rest.empty()) {
    const auto end = std::from_chars(rest.data() + 1, rest.data() + rest.size(), number);
    good = rest.front() == ':' && end.ec == std::errc() && end.ptr == rest.data() + rest.size();
  }
  if (!good)
    return error("F100", "--device is \"" + text.substr(0, 40) + "\"", "cpu, cuda or cuda:1");
  if (number >= devices)
    return error("D622", "--device " + text + ": there are " + std::to_string(devices) + " GPUs");
  return number;
}

// A stream of a device, and two events to time what is put on it.
class Device {
 public:
  Device(const CudaPlugin& plugin, uint32_t number) : plugin_(plugin), number_(number) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() {
    for (CudaEvent* event : {began_, ended_})
      if (event != nullptr) table().destroy_event(event);
    if (stream_ != nullptr) table().destroy_stream(stream_);
  }

  Status open() {
    GRADBUS_RETURN_IF_ERROR(told(table().create_stream(number_, &stream_), "a stream"));
    GRADBUS_RETURN_IF_ERROR(told(table().create_timer(number_, &began_), "an event"));
    return told(table().create_timer(number_, &ended_), "an event");
  }
  // Seconds that `work`, which puts things on the stream, took there; the best of some.
  template <typename Work>
  Result<double> best_seconds(int iterations, const Work& work) {
    double best = 1e300;
    for (int i = 0; i <= iterations; ++i) {  // the first warms up
      float ms = 0;
      GRADBUS_RETURN_IF_ERROR(told(table().record_event(began_, stream_), "an event"));
      GRADBUS_RETURN_IF_ERROR(work());
      GRADBUS_RETURN_IF_ERROR(told(table().record_event(ended_, stream_), "an event"));
      GRADBUS_RETURN_IF_ERROR(synchronize());
      GRADBUS_RETURN_IF_ERROR(told(table().elapsed(began_, ended_, &ms), "an event"));
      if (i > 0) best = std::min(best, std::max(1e-9, static_cast<double>(ms) * 1e-3));
    }
    return best;
  }
  Status copy(void* to, const void* from, size_t bytes) {
    return bytes == 0 ? Status() : told(table().copy(stream_, to, from, bytes), "a copy");
  }
  Status encode(const CudaEncode& input) {
    return told(table().encode(stream_, &input), "encoding");
  }
  Status apply(const CudaApply& input) { return told(table().apply(stream_, &input), "adding"); }
  Status synchronize() { return told(table().synchronize(stream_), "waiting"); }
  Status told(CudaResult result, const std::string& what) const {
    return cuda_status(plugin_, result, what + " on GPU " + std::to_string(number_));
  }
  const CudaTable& table() const { return *plugin_.table; }
  uint32_t number() const { return number_; }

 private:
  const CudaPlugin& plugin_;
  const uint32_t number_;
  CudaStream* stream_ = nullptr;
  CudaEvent* began_ = nullptr;
  CudaEvent* ended_ = nullptr;
};

// Memory of a device.
class Buffer {
 public:
  explicit Buffer(Device& device) : device_(device) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (memory_ != nullptr) device_.table().free(device_.number(), memory_);
  }
  Status allocate(size_t bytes) {
    if (bytes == 0) return {};
    return device_.told(device_.table().allocate(device_.number(), bytes, &memory_),
                        std::to_string((bytes >> 20) + 1) + " MiB");
  }
  // Filled with a vector of the host's.
  Status hold(std::span<const float> values) {
    GRADBUS_RETURN_IF_ERROR(allocate(values.size_bytes()));
    GRADBUS_RETURN_IF_ERROR(device_.copy(memory_, values.data(), values.size_bytes()));
    return device_.synchronize();
  }
  float* floats() const { return static_cast<float*>(memory_); }
  uint8_t* bytes() const { return static_cast<uint8_t*>(memory_); }

 private:
  Device& device_;
  void* memory_ = nullptr;
};

// One codec: its buffers, and what is done with them.
class CudaSubject {
 public:
  CudaSubject(Device& device, const CompressionSpec& spec, const Codec& codec,
              std::span<const float> gradient)
      : device_(device), spec_(spec), codec_(codec), gradient_(gradient) {}

  Status prepare(const Buffer& gradient, const Buffer& sum) {
    const size_t count = gradient_.size();
    const LargeVector<float> zeros(count);
    const bool keeps = error_feedback_options(spec_, 1).kind != ErrorFeedbackKind::kNone;
    input_ = {.codec = *cuda_codec(codec_),
              .gradient = gradient.floats(),
              .seed = 1,
              .count = static_cast<uint32_t>(count),
              .choice = cuda_choice(codec_, count, 1, keeps)};
    if (keeps) GRADBUS_RETURN_IF_ERROR(residual_.hold(zeros));
    if (input_.codec.momentum != 0) GRADBUS_RETURN_IF_ERROR(momentum_.hold(zeros));
    payload_bytes_ = cuda_payload_bytes(input_.codec, count, input_.choice.entries);
    GRADBUS_RETURN_IF_ERROR(payload_.allocate(payload_bytes_));
    GRADBUS_RETURN_IF_ERROR(workspace_.allocate(cuda_workspace_bytes(input_)));
    input_.residual = residual_.floats();
    input_.momentum = momentum_.floats();
    input_.payload = payload_.bytes();
    input_.workspace = workspace_.bytes();
    apply_ = {.codec = input_.codec,
              .payload = input_.payload,
              .to = sum.floats(),
              .count = input_.count,
              .entries = input_.choice.entries};
    return {};
  }

  // Of the first round: what is sent, and what arrives.
  Status examine(CodecFigures& figures) {
    const size_t count = gradient_.size();
    std::vector<std::byte> left(payload_bytes_);
    LargeVector<float> decoded(count);
    GRADBUS_RETURN_IF_ERROR(device_.encode(input_));
    GRADBUS_RETURN_IF_ERROR(device_.apply(apply_));
    GRADBUS_RETURN_IF_ERROR(device_.copy(left.data(), input_.payload, left.size()));
    GRADBUS_RETURN_IF_ERROR(device_.copy(decoded.data(), apply_.to, count * sizeof(float)));
    GRADBUS_RETURN_IF_ERROR(device_.synchronize());
    figures.error = relative_error(gradient_, decoded);
    entries_ = static_cast<double>(count);
    if (input_.codec.family == CudaFamily::kSelections) {
      entries_ = load_field<uint32_t>(left.data());
      std::vector<std::byte> payload(codec_.payload_bytes_max(count));
      payload.resize(payload_of_list(input_.codec, count, input_.choice.entries, left, payload));
      left.swap(payload);
    }
    figures.payload_bytes = static_cast<double>(left.size());
    return {};
  }

  // gbs: of a copy on the device, what is read and what is written.
  Status measure(int iterations, double gbs, CodecFigures& figures) {
    const auto encode = [&] {
      ++input_.seed;
      return device_.encode(input_);
    };
    apply_.add = 1;
    const Result<double> encoded = device_.best_seconds(iterations, encode);
    if (!encoded.ok()) return encoded.status();
    const Result<double> added =
        device_.best_seconds(iterations, [&] { return device_.apply(apply_); });
    if (!added.ok()) return added.status();
    figures.encode_s = encoded.value();
    figures.decode_s = added.value();
    const auto elements = static_cast<double>(gradient_.size());
    const double kept = (residual_.floats() == nullptr ? 0 : 1) + input_.codec.momentum;
    figures.encode_bound_s = ((4 + 8 * kept) * elements + figures.payload_bytes) / gbs * 1e-9;
    const double touched = std::min(8 * elements, 2 * kSectorBytes * entries_);
    figures.decode_bound_s = (figures.payload_bytes + touched) / gbs * 1e-9;
    return {};
  }

 private:
  Device& device_;
  const CompressionSpec& spec_;
  const Codec& codec_;
  const std::span<const float> gradient_;
  Buffer residual_{device_};
  Buffer momentum_{device_};
  Buffer payload_{device_};
  Buffer workspace_{device_};
  CudaEncode input_;
  CudaApply apply_;
  size_t payload_bytes_ = 0;
  double entries_ = 0;
};

std::unique_ptr<Codec> codec_with_kernels(const CompressionSpec& spec, size_t count) {
  if (spec.codec->make == nullptr) return nullptr;
  std::unique_ptr<Codec> codec = make_codec(spec, {.count_max = count});
  return cuda_codec(*codec).has_value() ? std::move(codec) : nullptr;
}

Result<CodecFigures> measure_on(Device& device, const CompressionSpec& spec, const Codec& codec,
                                std::span<const float> gradient, const Buffer& input,
                                const Buffer& sum, int iterations, double gbs) {
  CodecFigures figures{.codec = spec.canonical};
  CudaSubject subject(device, spec, codec, gradient);
  GRADBUS_RETURN_IF_ERROR(subject.prepare(input, sum));
  GRADBUS_RETURN_IF_ERROR(subject.examine(figures));
  GRADBUS_RETURN_IF_ERROR(subject.measure(iterations, gbs, figures));
  return figures;
}

// Every codec that has kernels, in the table; the names of the others.
Result<std::string> measure_all(Device& device, const std::vector<CompressionSpec>& specs,
                                const CodecBenchOptions& options, size_t count, CodecTable& table) {
  const LargeVector<float> gradient = normal_gradient(count);
  Buffer input(device);
  Buffer sum(device);
  GRADBUS_RETURN_IF_ERROR(device.open());
  GRADBUS_RETURN_IF_ERROR(input.hold(gradient));
  GRADBUS_RETURN_IF_ERROR(sum.hold(gradient));
  const size_t bytes = count * sizeof(float);
  const Result<double> copied = device.best_seconds(
      options.iterations, [&] { return device.copy(sum.bytes(), input.bytes(), bytes); });
  if (!copied.ok()) return copied.status();
  const double gbs = 2e-9 * static_cast<double>(bytes) / copied.value();
  std::fprintf(table_stream(options.json),
               "# GB/s of f32 input; a copy on the device reads and writes %.1f GB/s\n", gbs);
  std::string without;
  for (const CompressionSpec& spec : specs) {
    const std::unique_ptr<Codec> codec = codec_with_kernels(spec, count);
    if (codec == nullptr) {
      without += (without.empty() ? "" : " ") + spec.canonical;
      continue;
    }
    const Result<CodecFigures> figures =
        measure_on(device, spec, *codec, gradient, input, sum, options.iterations, gbs);
    if (!figures.ok()) return figures.status();
    table.add(figures.value());
  }
  return without;
}

}  // namespace

int bench_cuda_codecs(const CodecBenchOptions& options) {
  const Result<size_t> elements = parse_elements(options.elements);
  if (!elements.ok()) return fail(elements.status(), kExitUsage);
  if (elements.value() > kPartitionElementsMax)
    return fail(error("F100", "--elements is more than a partition has", "give up to 536870912"),
                kExitUsage);
  const Result<std::vector<CompressionSpec>> specs = chosen_specs(options);
  if (!specs.ok()) return fail(specs.status(), kExitUsage);
  // A wrong word is a mistake on machines without a GPU, too.
  if (const auto word = device_number(options.device, kDevicesMax); !word.ok())
    return fail(word.status(), kExitUsage);
  const Result<const CudaPlugin*> plugin = system_cuda_plugin();
  if (!plugin.ok()) return fail(plugin.status(), kExitFailed);
  const Result<std::vector<CudaDeviceInfo>> devices = cuda_devices(*plugin.value());
  if (!devices.ok()) return fail(devices.status(), kExitFailed);
  const Result<uint32_t> number = device_number(options.device, devices.value().size());
  if (!number.ok()) return fail(number.status(), kExitUsage);
  std::FILE* const to = table_stream(options.json);
  std::fprintf(to, "# gradbus %s bench codec: %zu elements of f32, kernels alone, on %s (%s)\n",
               GRADBUS_VERSION, elements.value(), devices.value()[number.value()].name,
               plugin.value()->table->built);
  Device device(*plugin.value(), number.value());
  CodecTable table(elements.value());
  const Result<std::string> without =
      measure_all(device, specs.value(), options, elements.value(), table);
  if (!without.ok()) return fail(without.status(), kExitFailed);
  const int code = table.finish(options.json);
  if (!without.value().empty()) std::fprintf(to, "# no kernels: %s\n", without.value().c_str());
  return code;
}

}  // namespace gradbus
