// What calls of CUDA have answered, as the plug-in says it to others: a CudaResult, and a text for
// last_error() that is this thread's own.
#pragma once

#include <cuda_runtime_api.h>

#include "compression/cuda/plugin.h"

namespace gradbus {

CudaResult refuse(const char* why);                      // kInvalid
CudaResult answer(cudaError_t error, const char* what);  // `what`: the function, for the text
CudaResult answer(CudaResult result, const char* what, const char* why);
CudaResult use(uint32_t device);  // by this thread's next calls
const char* last_error();

}  // namespace gradbus
