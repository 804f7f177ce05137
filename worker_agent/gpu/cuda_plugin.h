// Loads libgradbus_cuda.so on first use. No Gradbus binary links against it or CUDA. So a machine
// without them runs the same programs, and computes on its processor.
//
// Everything that can be missing is reported in one line: no file, another version, no driver, no
// GPU, no memory. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "compression/cuda/plugin.h"

namespace gradbus {

struct CudaPlugin {
  std::string file;
  const CudaTable* table = nullptr;  // has version kCudaAbi and all functions
};

// Returns GB-D620 when `file` cannot be loaded or is no plug-in, GB-D621 when it has another
// version.
Result<CudaPlugin> open_cuda_plugin(const std::string& file);

// Where to look for it: only at GRADBUS_CUDA_PLUGIN if that is set. Otherwise relative to a program
// of `program_directory`: in ../lib (also of a build), or where libraries are installed.
std::vector<std::string> cuda_plugin_places(const std::string& program_directory);

// The first of these that exists, for this program. Opened once and cached, also a failure.
Result<const CudaPlugin*> system_cuda_plugin();

// The error of a plug-in function that has just failed on this thread. GB-D622: no driver or GPU;
// GB-D623: no memory; GB-D624: anything else. `what`: "job digits: 64 MiB on GPU 0".
Status cuda_status(const CudaPlugin& plugin, CudaResult result, std::string_view what);

// Returns at least one, else GB-D622.
Result<std::vector<CudaDeviceInfo>> cuda_devices(const CudaPlugin& plugin);

// The directory of the running program, where installed files are looked for.
std::string program_directory();

}  // namespace gradbus
