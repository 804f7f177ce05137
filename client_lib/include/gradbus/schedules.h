/* gradbus/schedules.h: schedules by name, for registered tensors. A part of gradbus.h, which
 * includes it. */
#ifndef GRADBUS_SCHEDULES_H_
#define GRADBUS_SCHEDULES_H_

#include "gradbus/gradbus.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the fields priority, result_priority and budget_bytes of `spec` as a schedule orders tensor
 * `number` of `count`, numbered from 0 in the order in which backward finishes them. All ranks give
 * the same. `schedule` is "wfbp", "ddp", "fusion", "bytescheduler", "dear" or "auto", each also
 * with
 * ":budget=16M" (docs/concepts/schedules.md). NULL: GRADBUS_SCHEDULE, which `gradbus run
 * --schedule` and a policy set, else "auto".
 *
 * The caller decides which gradients share a tensor, so wfbp, ddp and fusion do the same here. Sets
 * *waits_in_forward to 1 if the schedule wants gradbus_wait() when the next forward pass needs the
 * result, and to 0 if it wants it at the end of backward. NULL is allowed.
 *
 * INVALID for an unknown name or option, for "mg-wfbp" and "mergecomp", whose tensors a coordinator
 * plans, and for a gradbus_tensor_spec from before priorities. `spec` is unchanged then. */
GRADBUS_API gradbus_code gradbus_apply_schedule(const char* schedule, uint32_t number,
                                                uint32_t count, gradbus_tensor_spec* spec,
                                                int* waits_in_forward);

#ifdef __cplusplus
}
#endif

#endif /* GRADBUS_SCHEDULES_H_ */
