// Linked into every ThreadSanitizer build of a program that uses gRPC.
//
// Debian's gRPC is not instrumented. The sanitizer sees neither its locks nor the data that it
// passes between threads, and reports both. So calls from libraries without instrumentation are
// ignored, and so are reports with a gRPC frame. Our own code, such as the Desk behind one mutex,
// has tests with their own threads and without gRPC.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_suppressions();

const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }

const char* __tsan_default_suppressions() {
  return "race:^grpc::\n"
         "race:libgrpc\n"
         "race:libgpr.so\n"
         "race:libprotobuf\n"
         "race:libabsl_\n"
         "thread:libgpr.so\n"  // its thread, which it abandons at the end of the process
         "thread:nexting_thread\n";
}
