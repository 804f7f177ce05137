// `gradbus bench codec --device cuda`: the kernels of each codec, timed by events on the device.
// What the host does is not in it: copies, and the index coding of selections
// (docs/design/gpu-codecs.md).
#pragma once

#include "cli/bench/codec_bench.h"

namespace gradbus {

// The exit code; GB-D620 without the plug-in, GB-D622 without a GPU.
int bench_cuda_codecs(const CodecBenchOptions& options);

}  // namespace gradbus
