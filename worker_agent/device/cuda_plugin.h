// libgradbus_cuda.so, loaded when it is first asked for: nothing of Gradbus links against it or
// CUDA, so a machine without either runs the same programs, and computes on its processor.
//
// Whatever is missing is one line: no file, a file of another version, no driver, no GPU, no
// memory. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "compression/cuda/plugin.h"

namespace gradbus {

struct CudaPlugin {
  std::string file;
  const CudaTable* table = nullptr;  // of kCudaAbi, no function missing
};

// GB-D620 when `file` cannot be loaded or is no plug-in, GB-D621 when it is of another version.
Result<CudaPlugin> open_cuda_plugin(const std::string& file);

// Where it is looked for: at GRADBUS_CUDA_PLUGIN and nowhere else, if that is set; or beside a
// program of `program_directory`: in ../lib (of a build, too), or where libraries are installed.
std::vector<std::string> cuda_plugin_places(const std::string& program_directory);

// The first of these that is there, for this program. Opened once and kept; a failure is, too.
Result<const CudaPlugin*> system_cuda_plugin();

// What a function of the plug-in has just answered on this thread. GB-D622: no driver or GPU;
// GB-D623: no memory; GB-D624: anything else. `what`: "job digits: 64 MiB on GPU 0".
Status cuda_status(const CudaPlugin& plugin, CudaResult result, std::string_view what);

// At least one, else GB-D622.
Result<std::vector<CudaDeviceInfo>> cuda_devices(const CudaPlugin& plugin);

// Of the program that runs: what is installed with it lies there.
std::string program_directory();

}  // namespace gradbus
