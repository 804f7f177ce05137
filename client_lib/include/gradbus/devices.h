/* gradbus/devices.h: elements of tensors in memory of GPUs. A part of gradbus.h, which includes it.
 */
#ifndef GRADBUS_DEVICES_H_
#define GRADBUS_DEVICES_H_

#include "gradbus/gradbus.h"

#ifdef __cplusplus
extern "C" {
#endif

/* This rank's elements in memory of its GPU, initially zero: three IPC handles of CUDA. This
 * process opens them (cudaIpcOpenMemHandle, cudaIpcOpenEventHandle), and closes them before
 * gradbus_shutdown. Use the handle of the memory if gradbus_tensor_device_memory returns LEGACY, as
 * it does unless gradbus_try_device was called. Record `ready` on the stream that writes the
 * elements, then call gradbus_start, which does not wait for it. After gradbus_wait, make the
 * streams that use the result wait for `done`. gradbus_tensor_data is not used. UNAVAILABLE if a
 * device was requested but the elements are in shared memory; gradbus_last_error() gives the
 * reason. (All ranks of a node must request it, and their GPUs must reach each other's memory.)
 * INVALID if no device was requested, or this process is alone. */
typedef struct gradbus_device_rank_buffer {
  size_t struct_bytes; /* set by gradbus_device_rank_buffer_init */
  unsigned char memory[64];
  unsigned char ready[64];
  unsigned char done[64];
} gradbus_device_rank_buffer;
static inline void gradbus_device_rank_buffer_init(gradbus_device_rank_buffer* rank_buffer) {
  gradbus_init_struct(rank_buffer, sizeof(*rank_buffer));
}
GRADBUS_API gradbus_code gradbus_tensor_device_rank_buffer(const gradbus_tensor* tensor,
                                                           gradbus_device_rank_buffer* rank_buffer);

/* How a process opens GPU memory of the agent. */
typedef enum gradbus_sharing {
  GRADBUS_SHARING_LEGACY = 1,     /* cudaIpcOpenMemHandle, of the handle */
  GRADBUS_SHARING_DESCRIPTOR = 2, /* cuMemImportFromShareableHandle, of the file descriptor; then
                                     cuMemMap of all bytes, and cuMemSetAccess */
  GRADBUS_SHARING_FABRIC = 3,     /* the same, of the fabric handle */
  GRADBUS_SHARING_WIDTH_ = -0x7fffffff - 1
} gradbus_sharing;

typedef struct gradbus_device_memory {
  gradbus_sharing sharing;
  int32_t descriptor; /* DESCRIPTOR: the session's, which closes it; else -1 */
  uint64_t bytes;     /* DESCRIPTOR, FABRIC: of the mapping, at least those of the elements */
  unsigned char handle[64];
  uint64_t reserved[8]; /* zero: this struct is a part of others, so it keeps its size */
} gradbus_device_memory;

/* The memory of gradbus_tensor_device_rank_buffer. */
GRADBUS_API gradbus_code gradbus_tensor_device_memory(const gradbus_tensor* tensor,
                                                      gradbus_device_memory* memory);

/* Call it before tensors are registered on a GPU. It returns a piece of GPU memory for each way in
 * which the agent can share it, and an event. This process opens and closes them, and reports the
 * result with gradbus_device_tried: for each memory NULL, or the reason why it could not be opened.
 * The memory of the trial ends then. Tensors are shared in the first way that all ranks of the node
 * can open. If there is none, they are in shared memory. If `count` is 0, the agent has no memory
 * to try, and gradbus_device_tried is not needed. */
typedef struct gradbus_device_trial {
  size_t struct_bytes; /* set by gradbus_device_trial_init */
  uint64_t count;
  gradbus_device_memory memory[3];
  unsigned char event[64];
} gradbus_device_trial;
static inline void gradbus_device_trial_init(gradbus_device_trial* trial) {
  gradbus_init_struct(trial, sizeof(*trial));
}
GRADBUS_API gradbus_code gradbus_try_device(gradbus_session* session, const unsigned char* device,
                                            gradbus_device_trial* trial);
GRADBUS_API gradbus_code gradbus_device_tried(gradbus_session* session, const unsigned char* device,
                                              const char* const* why_not);

#ifdef __cplusplus
}
#endif
#endif /* GRADBUS_DEVICES_H_ */
