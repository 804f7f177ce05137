// What a device needs to know to do for a partition what ErrorFeedback does
// (compression/error_feedback.h), and for a tensor what reduce() does (common/kernels/reduce.h):
// plain data that crosses the plug-in's C ABI, as cuda_codec.h's, and so part of kCudaAbi.
//
// MOMENTUM. Before encode(): remember() takes the gradient into momentum and residual, unless it is
// not finite, and says in a word of the device whether it did. encode() is given the gradient and
// that word (CudaEncode::taken): of a gradient that was taken it sees the residual alone, of
// another one what is not finite. After it, whatever the codec: forget() sets the momentum of what
// was selected to 0, and momentum and residual of what has overflowed.
#pragma once

#include <cstdint>
#include <optional>

namespace gradbus {

struct ErrorFeedbackOptions;

// What `taken` becomes.
inline constexpr uint32_t kCudaNotTaken = 0;    // the gradient is not finite
inline constexpr uint32_t kCudaOverflowed = 1;  // a sum with it is not
inline constexpr uint32_t kCudaTaken = 2;

// One step of momentum correction: vectors of `count` f32 in memory of the device.
struct CudaMomentum {
  const float* gradient = nullptr;
  float* momentum = nullptr;
  float* residual = nullptr;
  uint32_t* taken = nullptr;  // one of those above
  uint32_t count = 0;
  float factor = 0.9F;  // of the momentum
  float decay = 1;      // of the residual
  uint32_t nesterov = 0;
};

// The end of a round: momentum factor masking, after a list (cuda_codec.h) of this partition, and
// of an overflow.
struct CudaForget {
  const uint8_t* list = nullptr;  // with room for `entries`; null: nothing is masked
  float* momentum = nullptr;
  float* residual = nullptr;
  const uint32_t* taken = nullptr;  // as remember() has left it
  uint32_t count = 0;
  uint32_t entries = 0;
};

inline constexpr uint32_t kCudaRankBuffersMax = 16;

// targets[t][i] = what reduce() makes of sources[s][i], bit for bit; a target may be a source.
// Aligned to their elements, each in memory that the stream's device can reach.
struct CudaReduce {
  const void* sources[kCudaRankBuffersMax] = {};
  void* targets[kCudaRankBuffersMax] = {};
  double prescale = 1;
  double postscale = 1;
  uint32_t source_count = 0;
  uint32_t target_count = 0;
  uint32_t count = 0;  // elements
  uint32_t divisor = 1;
  uint32_t dtype = 0;  // DType
  uint32_t op = 0;     // ReduceOp
};
static_assert(sizeof(CudaMomentum) == 48 && sizeof(CudaForget) == 40 && sizeof(CudaReduce) == 296,
              "part of kCudaAbi");

// The step that this memory makes of each gradient, but for the pointers. Nothing where a device
// has none: no momentum, or gradients clipped by their norm.
std::optional<CudaMomentum> cuda_momentum(const ErrorFeedbackOptions& options);

// False for what no reduction is like.
bool is_possible(const CudaReduce& input);

}  // namespace gradbus
