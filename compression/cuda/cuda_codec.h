// What a device needs to know to encode, add and decode payloads: plain data that crosses the
// plug-in's C ABI (plugin.h), so its layout is part of kCudaAbi.
//
// Payloads are those of the codecs in compression/codecs, byte for byte. A device keeps no more
// than they do: what it is given, it is given with every call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gradbus {

class Codec;

enum class CudaFamily : uint8_t { kDense = 0, kBuckets = 1, kSigns = 2 };

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
  uint8_t unused[3] = {};
  uint32_t levels = 0;  // kBuckets: the largest
  uint32_t bucket = 0;  // kBuckets, kSigns: elements that share a step or levels
  float top = 0;        // kBuckets
  float clip = 0;       // kBuckets
  float step = 0;       // kSigns
};
static_assert(sizeof(CudaCodec) == 32, "part of kCudaAbi");

// EncodeInput (codec.h), in memory of the device. `payload` is aligned to 16 bytes and holds
// cuda_payload_bytes(). Float arrays are aligned to 4 bytes.
struct CudaEncode {
  CudaCodec codec;
  const float* gradient = nullptr;  // null: zeros; one of the two is there
  float* residual = nullptr;        // null: no error feedback
  uint8_t* payload = nullptr;
  uint64_t seed = 0;
  uint32_t count = 0;
  float decay = 1;
};

// to = or += scale * decoded, `payload` aligned to 16 bytes, all in memory of the device.
struct CudaApply {
  CudaCodec codec;
  const uint8_t* payload = nullptr;
  float* to = nullptr;
  uint32_t count = 0;
  float scale = 1;
  uint32_t add = 0;  // 1: +=
  uint32_t unused = 0;
};
static_assert(sizeof(CudaEncode) == 72 && sizeof(CudaApply) == 64, "part of kCudaAbi");

// Nothing where a device has no kernels for this codec: those that select elements, powersgd,
// signum, and any with entropy=zstd.
std::optional<CudaCodec> cuda_codec(const Codec& codec);

// Of the payload of `count` elements: payload_bytes_max() of the codec it was made of.
size_t cuda_payload_bytes(const CudaCodec& codec, size_t count);

// False for what no codec is made of: kernels are not to be started with it.
bool is_possible(const CudaCodec& codec);

}  // namespace gradbus
