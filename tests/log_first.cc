// Linked into every test program with threads: the log exists before any of them does.
//
// The log's registry is made at its first use, inside a library that is not built with
// ThreadSanitizer: the sanitizer does not see the guard that orders the making before another
// thread's use, and reports a race that is none. The daemons set up their log in main() before they
// start a thread; a test program has no such place but this.
#include <spdlog/spdlog.h>

namespace {
[[maybe_unused]] const spdlog::logger* const made_before_main = spdlog::default_logger_raw();
}  // namespace
