/* A rank in C that test_c_abi.py compiles with older and newer forms of gradbus.h. FUTURE: the
 * header has a field `future` at the end of each struct, and a dtype GRADBUS_FUTURE. OLDER: the
 * last field of each struct is missing. Prints "ok". */
#include <gradbus/gradbus.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      printf("line %d: %s: %s\n", __LINE__, #condition, gradbus_last_error()); \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

static const unsigned char kGuard[64] = {0xab, 0xcd, 0xef, 1, 2, 3};

static void read_mode(gradbus_session* session) {
  struct {
    gradbus_mode mode;
    unsigned char guard[64];
  } space;
  memcpy(space.guard, kGuard, sizeof(kGuard));
  gradbus_mode_init(&space.mode);
  CHECK(gradbus_mode_for(session, "w", 10, 1, "delayed:k=3", &space.mode) == GRADBUS_OK);
  CHECK(space.mode.kind == GRADBUS_DELAYED && space.mode.delay == 3);
  CHECK(space.mode.struct_bytes == sizeof(space.mode));
  CHECK(memcmp(space.guard, kGuard, sizeof(kGuard)) == 0);
#ifdef FUTURE
  CHECK(space.mode.future == 0);
#endif
}

static void apply_schedule(void) {
  struct {
    gradbus_tensor_spec spec;
    unsigned char guard[64];
  } space;
  int waits_in_forward = -1;
  memcpy(space.guard, kGuard, sizeof(kGuard));
  gradbus_tensor_spec_init(&space.spec);
#ifdef OLDER
  CHECK(gradbus_apply_schedule("dear", 0, 3, &space.spec, NULL) == GRADBUS_VERSION_SKEW);
#else
  CHECK(gradbus_apply_schedule("dear:budget=4K", 0, 3, &space.spec, &waits_in_forward) ==
        GRADBUS_OK);
  CHECK(space.spec.priority == 0 && space.spec.result_priority == 3 && waits_in_forward == 1);
  CHECK(space.spec.budget_bytes == 4096);
#endif
  CHECK(memcmp(space.guard, kGuard, sizeof(kGuard)) == 0);
  CHECK(gradbus_apply_schedule("deer", 0, 3, &space.spec, &waits_in_forward) != GRADBUS_OK);
}

static void use_tensors(gradbus_session* session) {
  static const char* const kNames[3] = {"a", "b", "c"};
  gradbus_tensor_spec specs[3];
  gradbus_tensor* tensors[3];
  for (int i = 0; i < 3; ++i) {
    gradbus_tensor_spec_init(&specs[i]);
    specs[i].name = kNames[i];
    specs[i].count = 10 + (uint64_t)i;
    specs[i].dtype = GRADBUS_F32;
    specs[i].op = GRADBUS_SUM;
  }
#ifdef FUTURE
  specs[2].future = 1;
  CHECK(gradbus_register(session, specs, 3, tensors) == GRADBUS_VERSION_SKEW);
  CHECK(strstr(gradbus_last_error(), "gradbus_tensor_spec") != NULL);
  specs[2].future = 0;
  specs[2].dtype = GRADBUS_FUTURE;
  CHECK(gradbus_register(session, specs, 3, tensors) == GRADBUS_INVALID);
  CHECK(strstr(gradbus_last_error(), "tensor \"c\": dtype number 14 is unknown") != NULL);
  specs[2].dtype = GRADBUS_F32;
#endif
  CHECK(gradbus_register(session, specs, 3, tensors) == GRADBUS_OK);
  for (int i = 0; i < 3; ++i) {
    float* data = gradbus_tensor_data(tensors[i]);
    data[9 + i] = (float)(1 + i);
    CHECK(gradbus_start(tensors[i]) == GRADBUS_OK);
    CHECK(gradbus_wait(tensors[i], -1) == GRADBUS_OK);
    CHECK(data[9 + i] == (float)((1 + i) * gradbus_size(session)));
    CHECK(gradbus_unregister(tensors[i]) == GRADBUS_OK);
    CHECK(gradbus_start(tensors[i]) == GRADBUS_INVALID);
  }
}

static void use_operations(gradbus_session* session) {
  gradbus_operation operations[2];
  int32_t data[2] = {3, 4};
  gradbus_handle* handle;
  for (int i = 0; i < 2; ++i) {
    gradbus_operation_init(&operations[i], GRADBUS_ALLREDUCE);
    operations[i].in = operations[i].out = &data[i];
    operations[i].count = 1;
    operations[i].dtype = GRADBUS_I32;
  }
#ifdef FUTURE
  operations[1].future = 7;
  CHECK(gradbus_start_operations(session, operations, 2, &handle) == GRADBUS_VERSION_SKEW);
  operations[1].future = 0;
  operations[1].dtype = GRADBUS_FUTURE;
  CHECK(gradbus_start_operations(session, operations, 2, &handle) == GRADBUS_INVALID);
  CHECK(strstr(gradbus_last_error(), "dtype number 14 is unknown") != NULL);
  CHECK(strstr(gradbus_last_error(), "install") != NULL);
  operations[1].dtype = GRADBUS_I32;
#endif
  CHECK(gradbus_start_operations(session, operations, 2, &handle) == GRADBUS_OK);
  CHECK(gradbus_handle_wait(handle, -1) == GRADBUS_OK);
  gradbus_handle_free(handle);
  CHECK(data[0] == 3 * gradbus_size(session) && data[1] == 4 * gradbus_size(session));
  CHECK(gradbus_run_operation(session, &operations[1], NULL) == GRADBUS_OK);
}

int main(void) {
  gradbus_options options;
  gradbus_session* session = NULL;
  gradbus_options_init(&options);
#ifdef FUTURE
  options.future = 1;
  CHECK(gradbus_init(&options, &session) == GRADBUS_VERSION_SKEW && session == NULL);
  options.future = 0;
#endif
  CHECK(gradbus_init(&options, &session) == GRADBUS_OK);
  read_mode(session);
  apply_schedule();
  use_tensors(session);
  use_operations(session);
  gradbus_mode_change change;
  int found = 1;
  gradbus_mode_change_init(&change);
  CHECK(gradbus_next_mode_change(session, &change, &found) == GRADBUS_OK && found == 0);
  gradbus_shutdown(session);
  printf("ok\n");
  return 0;
}
