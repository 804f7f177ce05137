#include "cli/bench/codec_bench.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "cli/bench/codec_figures.h"
#include "cli/bench/cuda_bench.h"
#include "cli/bench/json_file.h"
#include "cli/bench/machine.h"
#include "cli/bench/streams.h"
#include "cli/command.h"
#include "common/clock.h"
#include "common/large_vector.h"
#include "common/text/help_text.h"
#include "compression/error_feedback.h"
#include "compression/payload.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

constexpr size_t kSentenceColumn = 12;
constexpr double kLineBytes = 64;  // of a cache line: what one selected element costs to touch

// GB/s of one core, by what a loop reads and writes.
struct Rates {
  double read = 0;
  double copy = 0;  // reads one, writes one
  double add = 0;   // reads two, writes one
  double mix = 0;   // reads two, writes two
};

// Takes v in, gives v out: a payload codec, or the rounds of a linear one among one agent.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual void encode(std::span<const float> gradient, uint64_t round) = 0;
  virtual void accumulate(std::span<float> sum) = 0;
  virtual double payload_bytes() const = 0;
  virtual double entries() const = 0;  // elements that decoding touches
};

class PayloadSubject final : public Subject {
 public:
  PayloadSubject(const CompressionSpec& spec, const CodecShape& shape)
      : codec_(make_codec(spec, shape)),
        error_feedback_(error_feedback_options(spec, 1), shape.count_max),
        payload_(codec_->payload_bytes_max(shape.count_max)) {}

  void encode(std::span<const float> gradient, uint64_t round) override {
    bytes_ = codec_->encode(error_feedback_.compensate(gradient, round, round), payload_);
    error_feedback_.update(*codec_, std::span(payload_).first(bytes_));
  }
  void accumulate(std::span<float> sum) override {
    codec_->accumulate(std::span(payload_).first(bytes_), 1, sum);
  }
  double payload_bytes() const override { return static_cast<double>(bytes_); }
  double entries() const override { return payload_header(payload_).entries; }

 private:
  std::unique_ptr<Codec> codec_;
  ErrorFeedback error_feedback_;
  LargeVector<std::byte> payload_;
  size_t bytes_ = 0;
};

class LinearSubject final : public Subject {
 public:
  LinearSubject(const CompressionSpec& spec, const CodecShape& shape)
      : codec_(spec.codec->make_linear(spec.options, shape)),
        error_feedback_(error_feedback_options(spec, 1), shape.count_max) {
    for (uint32_t round = 0; round < codec_->rounds(); ++round)
      vectors_.emplace_back(codec_->vector_elements(round) * dtype_bytes(codec_->dtype(round)));
  }

  void encode(std::span<const float> gradient, uint64_t round) override {
    seed_ = round;
    input_ = error_feedback_.compensate(gradient, round, round);
    codec_->project(0, input_, seed_, {}, vectors_[0]);
    if (vectors_.size() > 1) codec_->project(1, input_, seed_, vectors_[0], vectors_[1]);
  }
  void accumulate(std::span<float> sum) override {
    codec_->finish(input_, seed_, 1, vectors_.back(), 1, sum);
  }
  double payload_bytes() const override {
    double bytes = 0;
    for (const auto& vector : vectors_) bytes += static_cast<double>(vector.size());
    return bytes;
  }
  double entries() const override { return static_cast<double>(input_.count()); }

 private:
  std::unique_ptr<LinearCodec> codec_;
  ErrorFeedback error_feedback_;
  std::vector<LargeVector<std::byte>> vectors_;
  EncodeInput input_;
  uint64_t seed_ = 0;
};

std::unique_ptr<Subject> make_subject(const CompressionSpec& spec, const CodecShape& shape) {
  if (spec.codec->make != nullptr) return std::make_unique<PayloadSubject>(spec, shape);
  if (spec.codec->make_linear != nullptr) return std::make_unique<LinearSubject>(spec, shape);
  return nullptr;
}

template <typename Work>
double best_seconds(int iterations, Work work) {
  double best = 1e300;
  for (int i = 0; i <= iterations; ++i) {  // the first warms up
    const Nanos began = monotonic_now();
    work(i);
    const double seconds = static_cast<double>(monotonic_now() - began) * 1e-9;
    if (i > 0) best = std::min(best, seconds);
  }
  return best;
}

// What the memory has to move, at the rate of the loop that is most like it: the gradient is read,
// what is kept there and back, the payload written. A codec of several rounds writes its residual
// when it decodes; a low rank takes two looks at all elements, blocks one.
double encode_bound(const CompressionSpec& spec, double elements, const Subject& subject,
                    const Rates& rates) {
  const double payload = subject.payload_bytes() / rates.copy;
  const double kept = kept_vectors(spec);
  const double looks = spec.codec->traits.needs_matrix ? 2 : 1;
  if (spec.codec->make == nullptr)
    return (looks * (4 + 4 * kept) * elements / rates.read + payload) * 1e-9;
  if (kept == 0) return (4 * elements / rates.read + payload) * 1e-9;
  return ((4 + 8 * kept) * elements / rates.add + payload) * 1e-9;
}

// The payload is read; what it touches is read and written, a whole line where elements are far
// apart. A codec of several rounds puts values, and with a residual reads it and the gradient.
double decode_bound(const CompressionSpec& spec, double elements, const Subject& subject,
                    const Rates& rates) {
  if (spec.codec->make == nullptr && kept_vectors(spec) > 0)
    return (subject.payload_bytes() / rates.read + 16 * elements / rates.mix) * 1e-9;
  const double entry = spec.codec->traits.by_rows ? 8 : 2 * kLineBytes;  // rows fill their lines
  const double touched = std::min(8 * elements, entry * subject.entries());
  return (subject.payload_bytes() + touched) / rates.add * 1e-9;
}

// What an embedding's vector often is, where the spec says nothing.
uint64_t row_of(const CompressionSpec& spec) { return row_elements(spec, 64); }

CodecFigures measure_codec(const CompressionSpec& spec, std::span<const float> gradient,
                           const CodecBenchOptions& options, const Rates& rates) {
  const size_t count = gradient.size();
  const auto columns = static_cast<size_t>(std::sqrt(static_cast<double>(count)));
  CodecShape shape{.count_max = count};
  if (spec.codec->traits.needs_matrix && columns * columns == count)
    shape.rows = shape.columns = columns;
  if (spec.codec->traits.by_rows) shape.columns = row_of(spec);
  const std::unique_ptr<Subject> subject = make_subject(spec, shape);
  LargeVector<float> sum(count);
  CodecFigures figures{.codec = spec.canonical};
  subject->encode(gradient, 1);
  subject->accumulate(sum);
  figures.error = relative_error(gradient, sum);
  uint64_t round = 1;
  figures.encode_s =
      best_seconds(options.iterations, [&](int) { subject->encode(gradient, ++round); });
  figures.decode_s = best_seconds(options.iterations, [&](int) { subject->accumulate(sum); });
  const auto elements = static_cast<double>(count);
  figures.payload_bytes = subject->payload_bytes();
  figures.encode_bound_s = encode_bound(spec, elements, *subject, rates);
  figures.decode_bound_s = decode_bound(spec, elements, *subject, rates);
  return figures;
}

// An embedding's: of every 256 rows one that is drawn.
LargeVector<float> row_sparse_gradient(size_t count, size_t row) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 1e-3F);
  LargeVector<float> values(count);
  for (size_t first = 0; first < count; first += 256 * row) {
    const size_t drawn = first + random() % 256 * row;
    for (size_t i = drawn; i < std::min(drawn + row, count); ++i) values[i] = normal(random);
  }
  return values;
}

Result<Rates> measure_rates() {
  const Result<std::vector<double>> rates =
      measure_streams({allowed_cores().front()}, stream_array_bytes());
  if (!rates.ok()) return rates.status();
  Rates found;
  for (size_t k = 0; k < kStreamKernels; ++k) {
    if (stream_kernels()[k].name == "read") found.read = rates.value()[k];
    if (stream_kernels()[k].name == "copy") found.copy = rates.value()[k];
    if (stream_kernels()[k].name == "add") found.add = rates.value()[k];
    if (stream_kernels()[k].name == "mix_2r2w") found.mix = rates.value()[k];
  }
  return found;
}

std::string option_text(const CodecOption& option) {
  std::string text = "      " + std::string(option.name) + "=" + std::string(option.default_text);
  for (const std::string_view choice : option.choices)
    text += (choice == option.choices.front() ? "  (" : "|") + std::string(choice);
  if (!option.choices.empty()) text += ")";
  return text + "  " + std::string(option.sentence);
}

void print_option(const CodecOption& option) {
  std::printf("%s\n", wrap_lines(option_text(option)).c_str());
}

int print_list() {
  for (const CodecRow* row : codec_rows()) {
    std::string name(row->name);
    name.resize(kSentenceColumn, ' ');
    std::printf("%s\n", wrap_lines(name + std::string(row->sentence)).c_str());
    for (const CodecOption& option : row->options) print_option(option);
  }
  std::printf("of every codec\n");
  for (const CodecOption& option : common_codec_options()) print_option(option);
  return kExitOk;
}

}  // namespace

int bench_codecs(const CodecBenchOptions& options) {
  if (options.list) return print_list();
  if (options.device != kProcessor) return bench_cuda_codecs(options);
  const Result<size_t> elements = parse_elements(options.elements);
  if (!elements.ok()) return fail(elements.status(), kExitUsage);
  const Result<std::vector<CompressionSpec>> specs = chosen_specs(options);
  if (!specs.ok()) return fail(specs.status(), kExitUsage);
  const Result<Rates> rates = measure_rates();
  if (!rates.ok()) return fail(rates.status(), kExitFailed);
  pin_to(allowed_cores().front());
  std::FILE* const to = table_stream(options.json);
  std::fprintf(to, "# gradbus %s bench codec: %zu elements of f32, one core, best of %d\n%s",
               GRADBUS_VERSION, elements.value(), options.iterations,
               commented(machine_text()).c_str());
  std::fprintf(to,
               "# GB/s of f32 input; what memory allows:\n"
               "# read %.1f, copy %.1f, add %.1f, mix %.1f GB/s\n",
               rates.value().read, rates.value().copy, rates.value().add, rates.value().mix);
  const LargeVector<float> gradient = normal_gradient(elements.value());
  CodecTable table(elements.value());
  for (const CompressionSpec& spec : specs.value()) {
    table.add(spec.codec->traits.by_rows
                  ? measure_codec(spec, row_sparse_gradient(elements.value(), row_of(spec)),
                                  options, rates.value())
                  : measure_codec(spec, gradient, options, rates.value()));
  }
  return table.finish(options.json);
}

}  // namespace gradbus
