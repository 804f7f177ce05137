// What a device needs to know to encode, add and decode payloads: plain data that crosses the
// plug-in's C ABI (plugin.h), so its layout is part of kCudaAbi.
//
// Payloads are those of the codecs in compression/codecs, byte for byte. A device keeps no more
// than they do: what it is given, it is given with every call.
//
// SELECTIONS. What codecs that select elements send has indices in a code of bits and a length that
// depends on them. So a device works with a list of the selection. The host converts the list to a
// payload and back (cuda_selection.h). A payload goes through host memory anyway. The list:
//
//   offset 0                u32  entries     selected elements
//   offset 4                u32  not_finite  the index of v's first NaN or Inf, or 2^32 - 1
//   offset 8                u32  bits        of that element, as f32
//   offset 12               u32  0
//   offset 16               f32  values[m]   m = CudaChoice::entries, of which `entries` are used
//   offset 16 + 4 * m       u32  indices[m]  ascending
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gradbus {

class Codec;
class LinearCodec;

enum class CudaFamily : uint8_t { kDense = 0, kBuckets = 1, kSigns = 2, kSelections = 3 };

// Which elements are selected: those of topk, threshold, dgc, randk.
enum class CudaRule : uint8_t { kLargest = 0, kThreshold = 1, kSampled = 2, kDrawn = 3 };

struct CudaCodec {
  uint8_t id = 0;      // CodecId, to the header of the payload
  uint8_t detail = 0;  // to the header of the payload
  CudaFamily family = CudaFamily::kDense;
  uint8_t dtype = 0;       // kDense: DType
  uint8_t kind = 0;        // kBuckets: CodeKind
  uint8_t bound = 0;       // kBuckets: Bound
  uint8_t bits = 8;        // kBuckets: of a code
  uint8_t stochastic = 0;  // kBuckets: 1 or 0
  uint8_t level = 0;       // kSigns: SignCodec::Level
  uint8_t rule = 0;        // kSelections: CudaRule
  uint8_t wire = 0;        // kSelections: WireType
  uint8_t momentum = 0;    // kSigns: 1 where the codec has one
  uint32_t levels = 0;     // kBuckets: the largest
  uint32_t bucket = 0;     // kBuckets, kSigns: elements that share a step or levels
  float top = 0;           // kBuckets
  float clip = 0;          // kBuckets
  float step = 0;          // kSigns
  float beta = 0;          // kSigns: of the momentum
  uint32_t key = 0;        // kThreshold: of the smallest magnitude that is sent
                           // (compression/kernels/select/select.h)
};
static_assert(sizeof(CudaCodec) == 40, "part of kCudaAbi");

// Of selections: how many, of this partition in this round.
struct CudaChoice {
  uint32_t entries = 0;     // kLargest, kDrawn: exactly; else at most
  uint32_t samples = 0;     // kSampled: of the partition,
  uint32_t stride = 0;      // ... so far apart
  uint32_t top = 0;         // ... of which this is the threshold's rank
  uint32_t candidates = 0;  // ... of more than these exactly `entries` are sent
  float factor = 1;         // kDrawn: what values are multiplied with
  // 1: the values travel in flight (LinearCodec). If the partition is not finite, its indices are
  // listed all the same. The first value is then `bits`, and all others are 0.
  uint32_t in_flight = 0;
  uint32_t unused = 0;
};

// EncodeInput (codec.h), in device memory. `payload` has cuda_payload_bytes(), and `workspace` has
// cuda_workspace_bytes(). Both are aligned to 16 bytes, float arrays to 4 bytes. The contents of
// the workspace do not matter, before or after.
struct CudaEncode {
  CudaCodec codec;
  const float* gradient = nullptr;  // null: zeros; one of the two is there
  float* residual = nullptr;        // null: no error feedback
  uint8_t* payload = nullptr;       // of selections: the list
  float* momentum = nullptr;        // of the codec: signum
  void* workspace = nullptr;        // null where no bytes are asked for
  uint64_t seed = 0;                // in flight: the shared one
  uint32_t count = 0;
  float decay = 1;
  CudaChoice choice = {};  // of selections
  // A word of the device (cuda_error_feedback.h), or null. Where it is 1, the residual has the
  // gradient already: v is the residual as it is.
  const uint32_t* taken = nullptr;
};

// to = or += scale * decoded, `payload` aligned to 16 bytes, all in memory of the device.
struct CudaApply {
  CudaCodec codec;
  const uint8_t* payload = nullptr;
  float* to = nullptr;
  uint32_t count = 0;
  float scale = 1;
  uint32_t add = 0;      // 1: +=; 2: = of sums in flight, which keeps the sign of a zero
  uint32_t entries = 0;  // of selections: the list's CudaChoice::entries
};
static_assert(sizeof(CudaChoice) == 32 && sizeof(CudaEncode) == 136 && sizeof(CudaApply) == 72,
              "part of kCudaAbi");

// Nothing where a device has no kernels for this codec: rows, and any with entropy=zstd; or others:
// powersgd and blocktopk (cuda_linear.h).
std::optional<CudaCodec> cuda_codec(const Codec& codec);
std::optional<CudaCodec> cuda_codec(const LinearCodec& codec);

// Of a codec that has a CudaCodec; all zeros but for those of selections.
CudaChoice cuda_choice(const Codec& codec, size_t count, uint64_t round, bool has_residual);
CudaChoice cuda_choice(const LinearCodec& codec, size_t count, bool has_residual);
// No round of a partition as long as the codec was made for needs a longer list or workspace.
CudaChoice cuda_choice_max(const Codec& codec, size_t count);

// Of the payload of `count` elements: payload_bytes_max() of the codec it was made of. Of
// selections: of a list of `entries`.
size_t cuda_payload_bytes(const CudaCodec& codec, size_t count, uint32_t entries = 0);

// Of what encoding writes down between two kernels; depends on codec, count and choice alone.
size_t cuda_workspace_bytes(const CudaEncode& input);

// False for what no codec is made of: kernels are not to be started with it.
bool is_possible(const CudaCodec& codec);
bool is_possible(const CudaCodec& codec, const CudaChoice& choice, uint32_t count);

}  // namespace gradbus
