// A rank of two whose gradients change while agents and shards encode, sum and decode them, with
// every codec, error feedback, communicator and mode of shards. Each has a job of its own, because
// a payload of nonsense may end its job. It may end nothing else: each next job starts.
//
// Prints how many jobs there were, and how many ended before their last round. Status 4: a job did
// not start.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "compression/registry.h"
#include "gradbus/gradbus.hpp"

namespace {

constexpr uint64_t kCount = 20'000;
constexpr int kRounds = 12;

struct Exchange {
  std::string compression;
  std::string mode;
};

// Its name, with options that select something of kCount elements.
std::string with_options(const gradbus::CodecRow& row) {
  std::string text = std::string(row.name) + ":";
  for (const auto& option : row.options) {
    if (option.name == "ratio") text += "ratio=0.1,";
    if (option.name == "value") text += "value=0.5,";
    if (option.name == "block") text += "block=64,";
  }
  return text;
}

// As the coordinator accepts it.
bool accepts(const gradbus::CompressionSpec& spec, const Exchange& exchange) {
  const bool coded = spec.codec->make != nullptr;
  if (exchange.mode == "ps:sync") return coded;
  if (!exchange.mode.empty()) return coded && gradbus::contracts(spec);
  if (spec.communicator() != gradbus::Communicator::kAllReduce) return coded;
  return gradbus::is_linear(spec) || gradbus::is_mergeable(spec);
}

void add(std::vector<Exchange>& exchanges, const Exchange& exchange) {
  const auto spec = gradbus::parse_compression(exchange.compression);
  if (spec.ok() && accepts(spec.value(), exchange)) exchanges.push_back(exchange);
}

std::vector<Exchange> all_exchanges() {
  std::vector<Exchange> exchanges;
  for (const gradbus::CodecRow* const row : gradbus::codec_rows()) {
    const std::string codec = with_options(*row);
    const bool dense = row->id == gradbus::CodecId::kDense;
    for (const char* const memory : {"ef=none", "ef=residual", "ef=dgc"})
      for (const char* const way : {"allreduce", "allgather", "ps"})
        if (!dense) add(exchanges, {codec + memory + ",communicator=" + way, ""});
    for (const char* const mode : {"ps:sync", "ps:async,lr=0.1", "ps:ssp,max_staleness=2,lr=0.1"})
      dense ? exchanges.push_back({"none", mode}) : add(exchanges, {codec + "ef=auto", mode});
  }
  return exchanges;
}

gradbus::Session join(const std::string& job) {
  gradbus_options options;
  gradbus_options_init(&options);
  options.job = job.c_str();
  options.rank = std::atoi(std::getenv("GRADBUS_RANK"));
  options.world_size = std::atoi(std::getenv("GRADBUS_SIZE"));
  return gradbus::Session(options);
}

gradbus::Tensor register_one(gradbus::Session& session, const Exchange& exchange) {
  gradbus_tensor_spec spec;
  gradbus_tensor_spec_init(&spec);
  spec.name = "x";
  spec.count = kCount;
  spec.dtype = GRADBUS_F32;
  spec.op = GRADBUS_SUM;
  spec.columns = 100;
  spec.compression = exchange.compression.c_str();
  spec.mode = exchange.mode.empty() ? nullptr : exchange.mode.c_str();
  return session.register_tensor(spec);
}

// Of any magnitude below 2; rarely NaN or Inf, because codecs stop at these.
float any_value(std::mt19937& random) {
  constexpr uint32_t kBelowTwo = 0xbfffffff;
  constexpr uint32_t kNotFinite[] = {0x7fc00000, 0x7f800000, 0xff800000};
  const uint32_t bits = random();
  const bool rarely = random() % (1 << 14) == 0;
  return std::bit_cast<float>(rarely ? kNotFinite[bits % std::size(kNotFinite)] : bits & kBelowTwo);
}

// Until `stops`: any element, at any time.
void change(std::span<float> elements, const std::atomic<bool>& stops) {
  std::mt19937 random(7);
  while (!stops.load())
    std::atomic_ref(elements[random() % elements.size()])
        .store(any_value(random), std::memory_order_relaxed);
}

// Whether all rounds were done.
bool exchange_rounds(gradbus::Tensor& tensor) {
  try {
    for (int round = 0; round < kRounds; ++round) {
      std::fill_n(tensor.data<float>(), kCount, 1.0F);
      tensor.start();
      tensor.wait();
    }
    return true;
  } catch (const gradbus::Error& problem) {
    std::printf("ended: %s\n", problem.what());
    return false;
  }
}

bool run_job(const std::string& job, const Exchange& exchange) {
  gradbus::Session session = join(job);
  gradbus::Tensor tensor = register_one(session, exchange);
  std::atomic<bool> stops{false};
  std::thread changes([&] { change({tensor.data<float>(), kCount}, stops); });
  const bool done = exchange_rounds(tensor);
  stops.store(true);
  changes.join();
  return done;
}

}  // namespace

int main() {
  int jobs = 0;
  int ended = 0;
  for (const Exchange& exchange : all_exchanges()) {
    try {
      ended += run_job("scribble-" + std::to_string(jobs++), exchange) ? 0 : 1;
    } catch (const gradbus::Error& problem) {
      std::printf("%s@%s: %s\n", exchange.compression.c_str(), exchange.mode.c_str(),
                  problem.what());
      return 4;
    }
  }
  std::printf("%d jobs, %d ended\n", jobs, ended);
  return 0;
}
