#include "cli/bench/work.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>

#include "cli/bench/models.h"
#include "cli/options/number_range.h"
#include "common/errors.h"
#include "common/policy/sync_mode.h"

namespace gradbus {
namespace {

constexpr uint64_t kBytesMax = uint64_t{1} << 40;
constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8,
                             DType::kU8,  DType::kI16, DType::kU16, DType::kI32,  DType::kU32,
                             DType::kI64, DType::kU64, DType::kBool};
constexpr ReduceOp kOps[] = {ReduceOp::kSum,   ReduceOp::kAverage, ReduceOp::kMin,
                             ReduceOp::kMax,   ReduceOp::kProduct, ReduceOp::kBitAnd,
                             ReduceOp::kBitOr, ReduceOp::kAdasum};

Status bad_option(const std::string& what, const std::string& next) {
  return error("F100", "gradbus bench: " + what, next);
}

// The element of `all` whose name is `text`.
template <typename T, size_t kCount>
Result<T> by_name(const T (&all)[kCount], std::string_view (*name)(T), const std::string& text,
                  const char* option) {
  std::string known;
  for (const T& one : all) {
    if (name(one) == text) return one;
    known += (known.empty() ? "" : ", ") + std::string(name(one));
  }
  return bad_option(std::string(option) + " is \"" + text.substr(0, 40) + "\"",
                    "take one of: " + known);
}

// The power of 1024 that a unit stands for, or -1.
int unit_power(std::string unit) {
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const char* tail : {"IB", "B"})
    if (unit.ends_with(tail)) {
      unit.erase(unit.size() - std::string_view(tail).size());
      break;
    }
  if (unit.empty()) return 0;
  const size_t at = std::string_view("KMGT").find(unit);
  return unit.size() == 1 && at != std::string_view::npos ? static_cast<int>(at) + 1 : -1;
}

Status choose_op(const BenchOptions& options, BenchWork& work) {
  const std::string name(work.collective->name);
  Result<ReduceOp> op = by_name(kOps, reduce_op_name, options.op, "--op");
  if (!op.ok()) return op.status();
  if (!work.collective->reduces && op.value() != ReduceOp::kSum)
    return bad_option(name + " combines nothing, but --op " + options.op + " is given",
                      "leave out --op");
  work.op = work.collective->reduces ? op.value() : ReduceOp::kNone;
  if (!op_fits_dtype(work.op, work.dtype))
    return bad_option("--op " + options.op + " is not defined for " + options.dtype,
                      "choose another --op or --dtype");
  if (work.op != ReduceOp::kAdasum) return {};
  if (name == "all_reduce" && options.private_buffers && options.model.empty()) return {};
  return bad_option("adasum is an all_reduce of private buffers",
                    "gradbus bench all_reduce --op adasum --private");
}

Status choose_root(const BenchOptions& options, BenchWork& work) {
  work.root = options.root;
  if (!work.collective->rooted && options.root != 0)
    return bad_option(std::string(work.collective->name) + " has no root, but --root is given",
                      "leave out --root");
  if (options.root >= 0 && options.root < work.ranks) return {};
  return bad_option("--root is " + std::to_string(options.root),
                    "choose one of the ranks 0.." + std::to_string(work.ranks - 1));
}

// The coordinator says what is wrong with the codec itself.
Status check_codec(const BenchWork& work) {
  if (work.codec.empty()) return {};
  if (work.check)
    return bad_option("--check compares with the exact sum, which a codec does not give",
                      "leave out --check, or --codec");
  if (work.registered && work.collective->number == GRADBUS_ALLREDUCE) return {};
  return bad_option("--codec compresses an all_reduce of registered tensors",
                    "gradbus bench all_reduce --codec " + work.codec.substr(0, 40));
}

// Delayed results lie elsewhere each time, and modes of parameters are the trainer's.
Status check_mode(const BenchWork& work) {
  if (work.mode.empty()) return {};
  const Result<SyncMode> mode = parse_mode(work.mode);
  if (!mode.ok()) return mode.status();
  if (!mode.value().on_shards() && mode.value().kind != SyncMode::Kind::kSync)
    return bad_option("--mode " + work.mode.substr(0, 40) + " is no mode of shards",
                      "choose sync or one of ps:sync ps:async ps:ssp ps:quorum");
  if (work.check && mode.value().holds_parameters())
    return bad_option("--check compares with a sum, and this mode brings parameters",
                      "leave out --check");
  if (work.registered && work.collective->number == GRADBUS_ALLREDUCE) return {};
  return bad_option("--mode is for an all_reduce of registered tensors",
                    "gradbus bench all_reduce --mode " + work.mode.substr(0, 40));
}

Status choose_memory(const BenchOptions& options, BenchWork& work) {
  if (options.memory == "host") return {};
  if (options.memory != "cuda")
    return bad_option("--memory is \"" + options.memory.substr(0, 40) + "\"",
                      "take one of: host, cuda");
  work.on_device = true;
  if (work.registered && work.collective->number == GRADBUS_ALLREDUCE && work.mode.empty())
    return {};
  return bad_option("--memory cuda is for an all_reduce of registered tensors, in mode sync",
                    "gradbus bench all_reduce --memory cuda");
}

Status choose_model(const BenchOptions& options, BenchWork& work) {
  work.model = options.model;
  if (options.model.empty())
    return options.fuse.empty() ? Status()
                                : bad_option("--fuse groups the tensors of a model",
                                             "add --model, or leave out --fuse");
  if (work.collective->name != "all_reduce")
    return bad_option("--model exchanges gradients, by all_reduce",
                      "gradbus bench all_reduce --model " + options.model.substr(0, 40));
  if (Result<Model> model = load_model(options.model); !model.ok()) return model.status();
  if (options.fuse.empty()) return {};
  Result<uint64_t> fuse = parse_bytes(options.fuse, "--fuse");
  if (!fuse.ok()) return fuse.status();
  work.fuse_bytes = fuse.value();
  return {};
}

Status choose_sizes(const BenchOptions& options, BenchWork& work) {
  if (work.collective->number == kBarrier) {
    work.sizes = {0};
    return {};
  }
  Result<uint64_t> first = parse_bytes(options.bytes_min, "-b");
  Result<uint64_t> last = parse_bytes(options.bytes_max, "-e");
  if (!first.ok()) return first.status();
  if (!last.ok()) return last.status();
  if (first.value() > last.value())
    return bad_option("-b " + options.bytes_min + " is more than -e " + options.bytes_max,
                      "give the smaller size with -b");
  work.sizes = sizes_between(first.value(), last.value(), options.factor);
  return {};
}

}  // namespace

Result<uint64_t> parse_bytes(const std::string& text, const char* option) {
  uint64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const int power = problem == std::errc() ? unit_power({end, text.data() + text.size()}) : -1;
  if (power >= 0 && number <= kBytesMax >> (10 * power)) return number << (10 * power);
  return bad_option(std::string(option) + " is \"" + text.substr(0, 40) + "\"",
                    "give bytes as 4, 64K, 256M or 1G, at most 1T");
}

std::vector<uint64_t> sizes_between(uint64_t first, uint64_t last, uint64_t factor) {
  std::vector<uint64_t> sizes;
  for (uint64_t size = first; size <= last; size = std::max<uint64_t>(size * factor, 1))
    sizes.push_back(size);
  return sizes;
}

Result<BenchWork> make_work(const BenchOptions& options, int ranks) {
  BenchWork work;
  Result<const BenchCollective*> collective = find_collective(options.collective);
  if (!collective.ok()) return collective.status();
  work.collective = collective.value();
  Result<DType> dtype = by_name(kDTypes, dtype_name, options.dtype, "--dtype");
  if (!dtype.ok()) return dtype.status();
  work.dtype = dtype.value();
  work.ranks = ranks;
  work.iterations = options.iterations;
  work.warmup = options.warmup;
  work.check = options.check;
  work.registered = work.collective->registers && !options.private_buffers;
  work.json = options.json;
  work.codec = options.codec;
  work.mode = options.mode;
  work.seed = options.seed;
  GRADBUS_RETURN_IF_ERROR(choose_op(options, work));
  GRADBUS_RETURN_IF_ERROR(choose_root(options, work));
  GRADBUS_RETURN_IF_ERROR(choose_model(options, work));
  GRADBUS_RETURN_IF_ERROR(check_codec(work));
  GRADBUS_RETURN_IF_ERROR(check_mode(work));
  GRADBUS_RETURN_IF_ERROR(choose_memory(options, work));
  GRADBUS_RETURN_IF_ERROR(choose_sizes(options, work));
  return work;
}

void declare_bench_options(CLI::App& app, BenchOptions& options) {
  app.add_option("-b,--begin", options.bytes_min, "first size in bytes: 4, 64K, 256M, 1G")
      ->capture_default_str();
  app.add_option("-e,--end", options.bytes_max, "last size")->capture_default_str();
  app.add_option("-f,--factor", options.factor, "factor from one size to the next")
      ->check(whole_range(2, 1024))
      ->capture_default_str();
  app.add_option("-n,--iterations", options.iterations,
                 "timed iterations of each size; default of bench codec: 5")
      ->check(whole_range(1, 10'000'000))
      ->capture_default_str();
  app.add_option("-w,--warmup", options.warmup, "operations before the timed ones")
      ->check(whole_range(0, 10'000'000))
      ->capture_default_str();
  app.add_flag("--check", options.check, "compare every element with the known result");
  app.add_flag("--private", options.private_buffers,
               "plain buffers instead of tensors in shared memory");
  app.add_option("--dtype", options.dtype, "f32 f64 f16 bf16 i8 u8 i16 u16 i32 u32 i64 u64 bool")
      ->capture_default_str();
  app.add_option("--op", options.op, "sum average min max product bit_and bit_or adasum")
      ->capture_default_str();
  app.add_option("--root", options.root, "root of broadcast, reduce, gather and scatter")
      ->capture_default_str();
  app.add_option("--model", options.model,
                 "all gradients of a step, in backward order: resnet50 vgg16 bert-base bert-large "
                 "gpt2");
  app.add_option("--fuse", options.fuse,
                 "with --model: joins neighbouring tensors up to this size");
  app.add_option("--codec", options.codec,
                 "compress between agents: topk:ratio=0.01 (gradbus bench codec --list)");
  app.add_option("--mode", options.mode, "sync, or through shards: ps:sync, ps:async,lr=0.1, ...");
  app.add_option("--memory", options.memory,
                 "memory of registered tensors: host, or cuda (GPUs, by the agents' plug-in)")
      ->capture_default_str();
  app.add_option(
      "--json", options.json,
      "write the rows to this file, too; -: to standard output, and the table to standard error");
  app.add_option("--seed", options.seed, "seed of the data that --check compares")
      ->capture_default_str();
}

std::vector<std::string> bench_words(const BenchOptions& options) {
  std::vector<std::string> words = {options.collective,
                                    "--begin=" + options.bytes_min,
                                    "--end=" + options.bytes_max,
                                    "--factor=" + std::to_string(options.factor),
                                    "--iterations=" + std::to_string(options.iterations),
                                    "--warmup=" + std::to_string(options.warmup),
                                    "--dtype=" + options.dtype,
                                    "--op=" + options.op,
                                    "--root=" + std::to_string(options.root),
                                    "--seed=" + std::to_string(options.seed)};
  if (options.check) words.emplace_back("--check");
  if (options.private_buffers) words.emplace_back("--private");
  if (!options.model.empty()) words.push_back("--model=" + options.model);
  if (!options.fuse.empty()) words.push_back("--fuse=" + options.fuse);
  if (!options.codec.empty()) words.push_back("--codec=" + options.codec);
  if (!options.mode.empty()) words.push_back("--mode=" + options.mode);
  if (options.memory != "host") words.push_back("--memory=" + options.memory);
  if (!options.json.empty()) words.push_back("--json=" + options.json);
  return words;
}

}  // namespace gradbus
