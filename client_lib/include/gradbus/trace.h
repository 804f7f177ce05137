/* gradbus/trace.h: this rank in a trace of its job. A part of gradbus.h, which includes it. */
#ifndef GRADBUS_TRACE_H_
#define GRADBUS_TRACE_H_

#include "gradbus/gradbus.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 1 while somebody records a trace of the job: `gradbus trace`, `gradbus run --timeline`. */
GRADBUS_API int gradbus_tracing(gradbus_session* session);
/* Adds a piece of this rank's training loop to the trace: "forward", "backward", "step" or the name
 * of a layer. The trace keeps the last 40 bytes of a name. Times are CLOCK_MONOTONIC, in
 * nanoseconds. Without a trace the call does nothing and takes nanoseconds. GB-O900: no name, or an
 * end before the begin. */
GRADBUS_API gradbus_code gradbus_trace(gradbus_session* session, const char* name,
                                       uint64_t begin_ns, uint64_t end_ns);
/* The time in nanoseconds for which threads of this rank have waited for other ranks, since it
 * joined the job: its exposed communication. Waits of a few microseconds are not counted. */
GRADBUS_API uint64_t gradbus_waited_ns(gradbus_session* session);

#ifdef __cplusplus
}
#endif

#endif /* GRADBUS_TRACE_H_ */
