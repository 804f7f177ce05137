// Linked into every ThreadSanitizer build of a program that uses gRPC.
//
// Debian's gRPC is not instrumented: the sanitizer sees neither its locks nor what it hands from
// thread to thread, and reports both. So calls from libraries without instrumentation are ignored,
// and so are reports with a gRPC frame. What is ours, the Desk behind one mutex for example, has
// tests with threads of their own and no gRPC in between.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_suppressions();

const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }

const char* __tsan_default_suppressions() {
  return "race:^grpc::\n"
         "race:libgrpc\n"
         "race:libgpr.so\n"
         "race:libprotobuf\n"
         "race:libabsl_\n"
         "thread:libgpr.so\n"  // its own, which it lets go of at the end of the process
         "thread:nexting_thread\n";
}
