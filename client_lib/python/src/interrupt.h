// Ctrl-C for threads that wait for the main thread's sake.
//
// Python raises KeyboardInterrupt in the main thread only, when that runs Python code. A compiled
// program of JAX or TensorFlow keeps the main thread in native code until threads of its own have
// performed its operations. So their waits must end first.
//
// Call from any Python thread, with or without the GIL.
#pragma once

namespace gradbus::python {

// From now on, or no longer, interrupts end the waits of this thread.
void stand_for_main_thread(bool stands);

// Whether Ctrl-C came since this thread stands for the main thread.
bool is_interrupted();

}  // namespace gradbus::python
