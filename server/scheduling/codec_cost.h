// What compressing a group of gradients costs and saves: MergeComp's model (Wang et al. 2021).
//
// Pure; any thread. Encoding x bytes takes B + gamma x, and so does decoding. The payload has
// ratio * x bytes. How payloads travel decides how often they are decoded:
//
//   carrier      network                                  encoded    decoded
//   all_reduce   an all-reduce of the payload             x          x
//   all_gather   n payloads go to every node              x          n x
//   owners       a reduce-scatter and an all-gather       x + x/n    2 x
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"
#include "proto/numbers.h"
#include "server/scheduling/network.h"

namespace gradbus::scheduling {

enum class Carrier : uint8_t { kAllReduce, kAllGather, kOwners };

struct CodecCost {
  std::string name = "none";
  double ratio = 1;   // payload bytes to gradient bytes
  LinearCost encode;  // of gradient bytes
  LinearCost decode;  // of gradient bytes
  Carrier carrier = Carrier::kAllReduce;
  bool on_compute = false;  // coding delays computing (MergeComp on a GPU); else the agent codes

  bool is_dense() const { return name == "none"; }
};

double encode_us(const CodecCost& codec, double bytes, uint32_t nodes);
double decode_us(const CodecCost& codec, double bytes, uint32_t nodes);
// The time on the network. Reduce-scatter and all-gather by themselves need Carrier::kAllReduce.
double exchange_us(CollectiveKind kind, const CodecCost& codec, double bytes,
                   const Network& network);

// "none", "fp16", "topk:ratio=0.001,encode_us=50": a row of the table and what differs from it.
// Options: ratio, encode_us, encode_ns, decode_us, decode_ns, carrier, runs_on. GB-O910.
Result<CodecCost> parse_codec_cost(std::string_view text);

}  // namespace gradbus::scheduling
