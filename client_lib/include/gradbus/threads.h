/* gradbus/threads.h: which threads of a rank wait. A part of gradbus.h, which includes it. */
#ifndef GRADBUS_THREADS_H_
#define GRADBUS_THREADS_H_

#include "gradbus/gradbus.h"

#ifdef __cplusplus
extern "C" {
#endif

/* If all ranks wait for each other, the waits end with MISMATCH (GB-O903). A rank counts as blocked
 * when its main thread waits, or its only thread that begins operations. Waits of other threads end
 * by their deadlines, and so do all waits with gradbus_options.many_threads = 1. */

/* The calling thread begins operations, and waits for them, on behalf of another thread, which is
 * idle meanwhile. For languages whose threads must be interruptible. `thread`: what gettid()
 * returns there. */
GRADBUS_API void gradbus_act_for_thread(int64_t thread);

#ifdef __cplusplus
}
#endif

#endif /* GRADBUS_THREADS_H_ */
