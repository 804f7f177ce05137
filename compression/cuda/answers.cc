#include "compression/cuda/answers.h"

#include <cstdio>

namespace gradbus {
namespace {

thread_local char error_text[256] = "";

CudaResult result_of(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice: return CudaResult::kNoDriver;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable: return CudaResult::kNoDevice;
    case cudaErrorMemoryAllocation: return CudaResult::kOutOfMemory;
    default: return CudaResult::kFailed;
  }
}

}  // namespace

CudaResult refuse(const char* why) {
  std::snprintf(error_text, sizeof(error_text), "%s", why);
  return CudaResult::kInvalid;
}

CudaResult answer(CudaResult result, const char* what, const char* why) {
  if (result != CudaResult::kOk) std::snprintf(error_text, sizeof(error_text), "%s: %s", what, why);
  return result;
}

// "cudaMalloc: out of memory"; of a driver, its version and ours.
CudaResult answer(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return CudaResult::kOk;
  cudaGetLastError();  // so that the next call does not find it again
  const CudaResult result = result_of(error);
  int driver = 0;
  if (result == CudaResult::kNoDriver && cudaDriverGetVersion(&driver) == cudaSuccess) {
    if (driver == 0)
      std::snprintf(error_text, sizeof(error_text), "no NVIDIA driver (libcuda.so.1)");
    else
      std::snprintf(error_text, sizeof(error_text),
                    "the NVIDIA driver is for CUDA %d.%d, not %d.%d", driver / 1000,
                    driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    return result;
  }
  return answer(result, what, cudaGetErrorString(error));
}

CudaResult use(uint32_t device) {
  return answer(cudaSetDevice(static_cast<int>(device)), "cudaSetDevice");
}

const char* last_error() { return error_text; }

}  // namespace gradbus
