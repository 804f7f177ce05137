/* gradbus.h: the C interface of Gradbus, the gradient bus. It is stable: functions and fields are
 * only added (see "structs that grow" below).
 *
 * A process attaches to its node's agent as one rank of a job. It registers tensors, or passes
 * named buffers, starts collective operations on them and waits for the results.
 *
 *   gradbus_options options;
 *   gradbus_options_init(&options);            // defaults, then the environment
 *   gradbus_session* session;
 *   gradbus_init(&options, &session);
 *   gradbus_tensor_spec spec;
 *   gradbus_tensor_spec_init(&spec);
 *   spec.name = "grad"; ...
 *   gradbus_tensor* grad;
 *   gradbus_register(session, &spec, 1, &grad);
 *   float* data = gradbus_tensor_data(grad);   // lives in shared memory
 *   ... write the gradient ...
 *   gradbus_start(grad);
 *   gradbus_wait(grad, -1);                    // now data holds the mean
 *   gradbus_shutdown(session);
 *
 * Every function returns a gradbus_code; GRADBUS_OK is 0. After another code gradbus_last_error()
 * gives this thread's one-line message: what, who, and what to do next. No function throws or
 * aborts. Every wait ends with the result, with an error, or with GRADBUS_TIMEOUT.
 *
 * Threads: a session may be used by several threads; one tensor or handle by one thread at a time.
 */
#ifndef GRADBUS_GRADBUS_H_
#define GRADBUS_GRADBUS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GRADBUS_API __attribute__((visibility("default")))
#define GRADBUS_VERSION_MAJOR 0
#define GRADBUS_VERSION_MINOR 1
#define GRADBUS_VERSION_PATCH 0

typedef enum gradbus_code {
  GRADBUS_OK = 0,
  GRADBUS_BUSY = 1,
  GRADBUS_INVALID = 2,
  GRADBUS_MISMATCH = 3,
  GRADBUS_UNAVAILABLE = 4,
  GRADBUS_CLOSED = 5,
  GRADBUS_CORRUPT = 6,
  GRADBUS_TIMEOUT = 7,
  GRADBUS_PEER_LOST = 8,
  GRADBUS_EXHAUSTED = 9,
  GRADBUS_PERMISSION = 10,
  GRADBUS_VERSION_SKEW = 11,
  GRADBUS_INTERNAL = 12
} gradbus_code;

typedef enum gradbus_dtype {
  GRADBUS_F32 = 1,
  GRADBUS_F64 = 2,
  GRADBUS_F16 = 3,
  GRADBUS_BF16 = 4,
  GRADBUS_I32 = 5,
  GRADBUS_I64 = 6,
  GRADBUS_U8 = 7,
  GRADBUS_I8 = 8,
  GRADBUS_BOOL = 9, /* one byte, 0 or 1 */
  GRADBUS_I16 = 10,
  GRADBUS_U16 = 11,
  GRADBUS_U32 = 12,
  GRADBUS_U64 = 13,
  GRADBUS_DTYPE_WIDTH_ = -0x7fffffff - 1 /* an int wide, whatever the compiler; not a dtype */
} gradbus_dtype;

typedef enum gradbus_op {
  GRADBUS_SUM = 1,
  GRADBUS_AVERAGE = 2, /* sum / world size; integers: the wrapped sum, rounded to zero */
  GRADBUS_MIN = 3,     /* a NaN wins */
  GRADBUS_MAX = 4,     /* a NaN wins */
  GRADBUS_PRODUCT = 5,
  GRADBUS_BAND = 6,   /* integers, bool */
  GRADBUS_BOR = 7,    /* integers, bool */
  GRADBUS_ADASUM = 8, /* floats; all-reduce of private buffers only (Maleki et al. 2020) */
  GRADBUS_OP_WIDTH_ = -0x7fffffff - 1 /* as above */
} gradbus_op;

typedef enum gradbus_collective {
  GRADBUS_ALLREDUCE = 1,
  GRADBUS_BROADCAST = 2,
  GRADBUS_ALLGATHER = 3,
  GRADBUS_REDUCE = 4,
  GRADBUS_REDUCESCATTER = 5,
  GRADBUS_GATHER = 6,
  GRADBUS_SCATTER = 7,
  GRADBUS_ALLTOALL = 8,
  GRADBUS_COLLECTIVE_WIDTH_ = -0x7fffffff - 1 /* as above */
} gradbus_collective;

typedef struct gradbus_session gradbus_session;
typedef struct gradbus_tensor gradbus_tensor;
typedef struct gradbus_handle gradbus_handle;
typedef struct gradbus_mapping gradbus_mapping;

/* "0.1.0" */
GRADBUS_API const char* gradbus_version(void);

/* This thread's last error, "" when there was none. Valid until this thread's next call. */
GRADBUS_API const char* gradbus_last_error(void);

/* ---- structs that grow ----
 *
 * A struct begins with struct_bytes, its size when the caller was compiled. New fields are added at
 * its end only. NAME_init sets struct_bytes and the defaults. Fields that an older caller lacks
 * have their defaults. Fields that an older library does not know must be zero, else VERSION_SKEW.
 * The library never writes past the caller's struct. Elements of an array have one size. */
GRADBUS_API void gradbus_init_struct(void* object, size_t bytes);

/* ---- session ---- */

typedef struct gradbus_options {
  size_t struct_bytes;      /* set by gradbus_options_init */
  const char* socket_path;  /* NULL: GRADBUS_SOCKET, /run/gradbus/agent.sock,
                               $XDG_RUNTIME_DIR/gradbus/agent.sock */
  const char* job;          /* NULL: from the launcher's variables */
  int64_t rank;             /* -1: from the launcher's variables */
  int64_t world_size;       /* -1: from the launcher's variables */
  int64_t start_timeout_ms; /* waiting for all ranks; default 60000 */
  int64_t op_timeout_ms;    /* default deadline of a wait; default 1800000 */
  int32_t many_threads;     /* 1: threads begin operations in orders of their own (threads.h) */
} gradbus_options;

static inline void gradbus_options_init(gradbus_options* options) {
  gradbus_init_struct(options, sizeof(*options));
  options->rank = options->world_size = -1;
}

/* Attaches and waits until every rank of the job has attached. Rank and size come from the first
 * of: `options`, GRADBUS_RANK/SIZE/JOB, torchrun, Horovod, Open MPI, PMI, Slurm. Otherwise the
 * process is a world of one, which needs no daemon. options may be NULL. Errors: INVALID (a
 * variable is not a number, a rank is out of range), UNAVAILABLE (no agent), PERMISSION, MISMATCH
 * (rank taken, world sizes differ), VERSION_SKEW, TIMEOUT (names the missing ranks). */
GRADBUS_API gradbus_code gradbus_init(const gradbus_options* options, gradbus_session** session);

/* Leaves the job and frees everything. NULL is allowed. Operations still in flight are abandoned
 * (other ranks get an error for them). Calls of other threads with the session end with CLOSED, and
 * this call waits for that. Later calls with the session or its tensors return CLOSED, until 16
 * more sessions have ended; its handles are INVALID. Not for signal handlers. In a forked child it
 * does nothing; other calls with the parent's session return CLOSED there. gradbus_init may be
 * called again, also if the session had failed (docs/how-to/train-elastically.md). UNAVAILABLE,
 * PEER_LOST and MISMATCH may then mean that the call was too early. */
GRADBUS_API gradbus_code gradbus_shutdown(gradbus_session* session);

GRADBUS_API int32_t gradbus_rank(const gradbus_session* session); /* NULL: -1, "" */
GRADBUS_API int32_t gradbus_size(const gradbus_session* session);
GRADBUS_API int32_t gradbus_local_rank(const gradbus_session* session);
GRADBUS_API int32_t gradbus_local_size(const gradbus_session* session);
GRADBUS_API int32_t gradbus_cross_rank(const gradbus_session* session); /* this node's index */
GRADBUS_API int32_t gradbus_cross_size(const gradbus_session* session); /* nodes of the job */
GRADBUS_API const char* gradbus_job(const gradbus_session* session);
GRADBUS_API const char* gradbus_launcher(const gradbus_session* session); /* "torchrun", ... */

/* Copies the job's secret: random bytes that the coordinator made for this job and that only the
 * ranks of the job's owner get. Use it as the key of an HMAC over data that
 * ranks accept from each other only. A process set has its own secret. */
#define GRADBUS_JOB_SECRET_BYTES 32
GRADBUS_API gradbus_code gradbus_job_secret(const gradbus_session* session,
                                            uint8_t secret[GRADBUS_JOB_SECRET_BYTES]);
/* The compression that the job's policy (GRADBUS_COMPRESSION; `gradbus run --compression`,
 * `--policy`) gives to a gradient with this name, elements and dimensions (0: unknown); "none":
 * dense. Frameworks ask before they fuse gradients into a tensor. Valid until gradbus_shutdown. */
GRADBUS_API gradbus_code gradbus_compression_for(const gradbus_session* session, const char* tensor,
                                                 uint64_t elements, uint32_t dims,
                                                 const char** compression);

typedef enum gradbus_mode_kind {
  GRADBUS_SYNC = 1,
  GRADBUS_DELAYED = 2,
  /* These exchange parameters, not gradients: gradbus_register refuses them. */
  GRADBUS_AVERAGING = 3,
  GRADBUS_LOCALSGD = 4,
  GRADBUS_DILOCO = 5,
  GRADBUS_PS_SYNC = 6, /* shards sum; in the other PS modes shards hold the parameters */
  GRADBUS_PS_ASYNC = 7,
  GRADBUS_PS_SSP = 8,
  GRADBUS_PS_QUORUM = 9,
  GRADBUS_GOSSIP = 10,                       /* as AVERAGING */
  GRADBUS_MODE_KIND_WIDTH_ = -0x7fffffff - 1 /* as above */
} gradbus_mode_kind;
typedef enum gradbus_topology {
  GRADBUS_RANDOM = 1,                       /* pairs, in the same random order on all ranks */
  GRADBUS_RING = 2,                         /* both neighbours */
  GRADBUS_TOPOLOGY_WIDTH_ = -0x7fffffff - 1 /* as above */
} gradbus_topology;
typedef struct gradbus_mode {
  size_t struct_bytes; /* set by gradbus_mode_init */
  gradbus_mode_kind kind;
  uint32_t delay;        /* DELAYED: steps between a gradient and its use */
  double dc;             /* DELAYED: lambda of the delay compensation, 0: none; refused as above */
  double dc_decay;       /* DELAYED: decay of the mean square that adapts lambda; below 0: none */
  uint32_t period_steps; /* LOCALSGD, DILOCO: H; GOSSIP: every; AVERAGING: every, 0 with every_ms */
  uint32_t period_ms;    /* AVERAGING: every_ms, 0 with every */
  double outer_lr;       /* DILOCO: the outer optimizer; LOCALSGD: 1, and momentum 0 */
  double outer_momentum;
  uint32_t fragments;        /* DILOCO: parts that are exchanged in turn; LOCALSGD: 1 */
  uint32_t overlap;          /* DILOCO: steps that an exchange may take in the background */
  gradbus_topology topology; /* GOSSIP: the choice of partners */
  uint32_t seed;             /* GOSSIP: of the order of random pairs */
  int32_t wait;              /* GOSSIP: a step waits for the partners' previous step */
  char text[256];            /* for gradbus_tensor_spec, without options that have their default */
} gradbus_mode;
static inline void gradbus_mode_init(gradbus_mode* mode) {
  gradbus_init_struct(mode, sizeof(*mode));
}
/* Parses `asked`. If it is NULL, returns the mode that the job's policy (GRADBUS_MODE; `gradbus run
 * --mode` and `--policy`) gives to the gradient, as above. INVALID names the error in the text. */
GRADBUS_API gradbus_code gradbus_mode_for(const gradbus_session* session, const char* tensor,
                                          uint64_t elements, uint32_t dims, const char* asked,
                                          gradbus_mode* mode);

/* ---- modes that change while the job runs ---- */

typedef struct gradbus_mode_change {
  size_t struct_bytes; /* set by gradbus_mode_change_init */
  char group[256];     /* a pattern of parameters' names: see gradbus_glob_matches */
  char mode[256];      /* as gradbus_mode_for takes it */
} gradbus_mode_change;
static inline void gradbus_mode_change_init(gradbus_mode_change* change) {
  gradbus_init_struct(change, sizeof(*change));
}
/* The next change that was requested with `gradbus mode JOB GROUP MODE` and that every rank has
 * received, in the order of the requests; *found is 0 if there is none. The call is a fence: all
 * ranks of the job make it at the same point of the training. It changes nothing by itself. The
 * caller ends what is in flight (gradbus_drain), registers the group's tensors under other names in
 * the new mode, and uses those, as PyTorch's DistributedOptimizer does in flush(). The mode
 * "placement=N" means that the job's shards have changed (how-to/use-a-parameter-server.md). */
GRADBUS_API gradbus_code gradbus_next_mode_change(gradbus_session* session,
                                                  gradbus_mode_change* change, int* found);
/* Reports this rank's loss of a step, any number of times. `gradbus status --json` shows their
 * number and their sum. The coordinator's rule (--loss-percent) returns a job to mode sync if
 * losses jump, or if one is not finite. The call takes nanoseconds and never waits. */
GRADBUS_API gradbus_code gradbus_report_loss(gradbus_session* session, double loss);
/* 1 if `text` matches: * is any text, ? is any character. */
GRADBUS_API int gradbus_glob_matches(const char* glob, const char* text);

/* ---- registered tensors: reductions in place, the hot path ---- */

typedef struct gradbus_tensor_spec {
  size_t struct_bytes; /* set by gradbus_tensor_spec_init */
  const char* name;    /* unique in the job, at most 255 bytes; the same on every rank */
  uint64_t count;      /* elements; may be 0 */
  gradbus_dtype dtype;
  gradbus_op op;
  /* The fields below may be zero. */
  gradbus_collective collective; /* 0: all-reduce; also REDUCE (the root's data is the result, the
                                    others' is undefined), REDUCESCATTER (this rank's shard of its
                                    data is the result, the rest is undefined) */
  int32_t root;                  /* REDUCE */
  double prescale, postscale;    /* floats: inputs times prescale, result times postscale; 0: 1 */
  uint64_t row_elements;         /* REDUCESCATTER: see gradbus_shard; 0: 1 */
  const char* compression; /* ALLREDUCE of F32 by SUM or AVERAGE, between nodes: "topk:ratio=0.01";
                              "none": dense; NULL: the policy of the job (GRADBUS_COMPRESSION) */
  uint64_t columns; /* compression: elements per row of the tensor seen as a matrix; 0: a vector */
  const char* mode; /* ALLREDUCE: "delayed:k=1", "ps:async,lr=0.1" (docs/concepts/modes.md); NULL:
                       "sync". GRADBUS_MODE is not used: call gradbus_mode_for. UNAVAILABLE if a
                       mode needs shards and there are none */
  /* ALLREDUCE: UUID of the GPU for this rank's elements (16 bytes), not with mode delayed nor some
     compressions; NULL: shared memory */
  const unsigned char* device;
  uint32_t priority, result_priority; /* 0 to 2^20: sums, or results, of smaller ones go first */
  uint64_t budget_bytes; /* mode sync: of rounds in flight (concepts/schedules.md); 0: no limit */
} gradbus_tensor_spec;
static inline void gradbus_tensor_spec_init(gradbus_tensor_spec* spec) {
  gradbus_init_struct(spec, sizeof(*spec));
}

/* Registers `n` tensors. Returns when every rank has registered the same ones, in any order.
 * MISMATCH names the tensor, the ranks and both values. `tensors` receives n pointers owned by the
 * session. A known name with the same spec returns the same tensor; another spec registers anew. */
GRADBUS_API gradbus_code gradbus_register(gradbus_session* session,
                                          const gradbus_tensor_spec* specs, size_t n,
                                          gradbus_tensor** tensors);

/* Ends this rank's use of the tensor. Its memory is free for other tensors once every rank has
 * unregistered it or has left (docs/concepts/tensor-lifetime.md). Never waits. BUSY before the last
 * round has been waited for, or results of mode "delayed:k" have been drained. Afterwards calls
 * with `tensor` return INVALID, and the name may be registered again at once, as another tensor. */
GRADBUS_API gradbus_code gradbus_unregister(gradbus_tensor* tensor);
/* The same for ad-hoc operations of this name. BUSY while one is in flight; INVALID without any. */
GRADBUS_API gradbus_code gradbus_unregister_name(gradbus_session* session, const char* name);

/* This rank's elements, 128-byte aligned, initially zero: input before start, result after wait. */
GRADBUS_API void* gradbus_tensor_data(gradbus_tensor* tensor);

/* Keeps the memory of a tensor, all its slots, mapped until gradbus_mapping_free, also after
 * gradbus_unregister and gradbus_shutdown. An unregistered tensor is released when its last mapping
 * is freed. Freeing NULL is allowed. */
GRADBUS_API gradbus_code gradbus_tensor_mapping(gradbus_tensor* tensor, gradbus_mapping** mapping);
GRADBUS_API void gradbus_mapping_free(gradbus_mapping* mapping);

/* Posts this rank's data. Never blocks. BUSY until the last round has been waited for. */
GRADBUS_API gradbus_code gradbus_start(gradbus_tensor* tensor);
/* OK: the result is ready, or nothing was started. BUSY: not yet. Else the operation's error. */
GRADBUS_API gradbus_code gradbus_test(gradbus_tensor* tensor);
/* timeout_ms < 0: the session's op_timeout_ms. After TIMEOUT the operation is still in flight and
 * can be waited for again; other errors are final for the job. */
GRADBUS_API gradbus_code gradbus_wait(gradbus_tensor* tensor, int64_t timeout_ms);

/* ---- mode "delayed:k": the result of k steps before ----
 *
 * The calls are the same, but the data moves. A tensor has k + 1 slots of memory. gradbus_start
 * sends the data at gradbus_tensor_data. gradbus_wait returns when the result of k steps before is
 * ready. gradbus_tensor_data then returns the slot of that result, which also takes the input of
 * the next step. So ask for the address after every wait. The first k results are zeros. */
GRADBUS_API uint32_t gradbus_tensor_delay(const gradbus_tensor* tensor);    /* k; 0: synchronous */
GRADBUS_API uint32_t gradbus_tensor_slot(const gradbus_tensor* tensor);     /* now: 0..k */
GRADBUS_API void* gradbus_slot_data(gradbus_tensor* tensor, uint32_t slot); /* NULL above k */
/* The age in steps of the result in the current slot; -1: zeros, of no step. If shards hold the
 * parameters: how many steps of other nodes lie between the parameters that this node's gradient
 * was computed with and the step that used the gradient. */
GRADBUS_API int64_t gradbus_staleness(const gradbus_tensor* tensor);
/* Returns results in flight, before an evaluation or a checkpoint and at the end. If *found is 1,
 * gradbus_tensor_data has the oldest result that no step has used. *found is 0 if none is left.
 * Call it until then, on every rank. The next k results are zeros. GPU memory stays as it is. */
GRADBUS_API gradbus_code gradbus_drain(gradbus_tensor* tensor, int64_t timeout_ms, int32_t* found);

/* ---- modes "ps:async", "ps:ssp", "ps:quorum": shards hold the parameters ----
 *
 * The first round sets them. Every rank passes the same parameters; those of rank 0's node count,
 * and all ranks get them. After that, gradbus_start sends a gradient and gradbus_wait returns the
 * parameters after the step. F32, SUM or AVERAGE. Each node makes one step, on the sum or the mean
 * of its ranks. For optimizer=lamb a tensor is a layer, so register each layer as a tensor.
 */

/* Sets the rate of this tensor's steps from the next gradbus_start on; the initial rate is the
 * mode's lr=. Every rank of a node passes the same rate. INVALID unless finite and at least 0. */
GRADBUS_API gradbus_code gradbus_set_learning_rate(gradbus_tensor* tensor, double rate);
/* Begins a round that makes no step and ignores the data. gradbus_wait returns the newest
 * parameters. Every rank of the node calls it. */
GRADBUS_API gradbus_code gradbus_start_pull(gradbus_tensor* tensor);
/* State that shards store of a tensor: the parameters (part 0), the optimizer's vectors (sgd with
 * momentum, adagrad: 1; adam, adamw, lamb: 2), then each element's count of steps. All are dense
 * and exact. Returns the number of parts; 0 if no shard holds parameters. */
GRADBUS_API uint32_t gradbus_optimizer_state_parts(const gradbus_tensor* tensor);
/* Begins a round that makes no step. gradbus_wait returns that part in place of the parameters;
 * pull them next. Every rank of the node calls it, while no rank of the job makes steps. */
GRADBUS_API gradbus_code gradbus_start_read_optimizer_state(gradbus_tensor* tensor, uint32_t part);
/* Replaces the part by the sum of the data of the ranks on rank 0's node: rank 0 passes the values,
 * the others minus zeros. Every rank of the job calls it, after its first round and while none
 * makes steps. The part is complete when rank 0 has waited. */
GRADBUS_API gradbus_code gradbus_start_write_optimizer_state(gradbus_tensor* tensor, uint32_t part);

/* ---- the residual state of a tensor's compression ----
 * Error feedback keeps on each node what has not been sent yet. Every rank reads and writes its
 * share. They may be added or split, as long as the sum over all ranks of the job stays the same.
 * For F32 all-reduces, compressed or not; the elements are those of gradbus_tensor_data. */

typedef enum gradbus_residual_state {
  GRADBUS_RESIDUAL = 1,                           /* of gradients, not sent yet */
  GRADBUS_MOMENTUM = 2,                           /* ef=dgc, signum */
  GRADBUS_RESIDUAL_STATE_WIDTH_ = -0x7fffffff - 1 /* as above */
} gradbus_residual_state;

/* Begins a round in which nothing is exchanged; gradbus_wait ends it. Every rank of the node calls
 * it, between two rounds. Then gradbus_tensor_data holds this rank's share, or zeros. */
GRADBUS_API gradbus_code gradbus_start_read_residual_state(gradbus_tensor* tensor,
                                                           gradbus_residual_state part);
/* Replaces the state: gradbus_tensor_data holds this rank's share, and the state of the node
 * becomes the sum of its ranks' shares. If the tensor has no such state (dense, or a job on one
 * node), a residual is added to the next round's input, and a momentum is dropped. */
GRADBUS_API gradbus_code gradbus_start_write_residual_state(gradbus_tensor* tensor,
                                                            gradbus_residual_state part);
/* Multiplies this node's residual by `factor` when the next round begins: old / new, when the
 * learning rate changes. Every rank of the node passes the same. INVALID unless finite, above 0. */
GRADBUS_API gradbus_code gradbus_scale_residual_state(gradbus_tensor* tensor, double factor);
/* The warm-up of a codec (topk, dgc) counts `rounds` as made, as after a checkpoint. Every rank of
 * the node passes the same number, before its next round. INVALID above 2^53. */
GRADBUS_API gradbus_code gradbus_continue_warm_up(gradbus_tensor* tensor, uint64_t rounds);

/* ---- operations on plain buffers; matched between ranks by name ----
 *
 * name NULL: matched by order among the unnamed operations of the same kind, dtype, count and op.
 * The first use of a name registers it; later uses cost no control message. Input is copied at
 * once (but see input_stays below). The output may be written at any time until the wait that ends
 * the handle returns. `in` may equal `out`. Then the buffer belongs to Gradbus until that wait
 * returns. Operations of one name run in the order in which they were started.
 *
 * On one node, large reductions pass through a small ring. They advance only while every rank is
 * inside this library and waits, for them or for anything else. */

GRADBUS_API gradbus_code gradbus_allreduce_async(gradbus_session* session, const char* name,
                                                 const void* in, void* out, uint64_t count,
                                                 gradbus_dtype dtype, gradbus_op op,
                                                 gradbus_handle** handle);
GRADBUS_API gradbus_code gradbus_broadcast_async(gradbus_session* session, const char* name,
                                                 void* data, uint64_t count, gradbus_dtype dtype,
                                                 int32_t root, gradbus_handle** handle);
/* Each rank passes `count` elements (0 and different counts are allowed). The result is read with
 * gradbus_handle_output after a successful gradbus_handle_wait. */
GRADBUS_API gradbus_code gradbus_allgather_async(gradbus_session* session, const char* name,
                                                 const void* in, uint64_t count,
                                                 gradbus_dtype dtype, gradbus_handle** handle);

/* As gradbus_test / gradbus_wait. */
GRADBUS_API gradbus_code gradbus_handle_test(gradbus_handle* handle);
GRADBUS_API gradbus_code gradbus_handle_wait(gradbus_handle* handle, int64_t timeout_ms);
/* All-gather: all blocks in rank order, and (optionally) `size` counts. BUSY before its end. */
GRADBUS_API gradbus_code gradbus_handle_output(gradbus_handle* handle, const void** data,
                                               uint64_t* bytes, const uint64_t** counts);
/* Frees the handle; an unfinished operation still completes in the background. NULL is allowed. */
GRADBUS_API void gradbus_handle_free(gradbus_handle* handle);

/* Blocking forms. */
GRADBUS_API gradbus_code gradbus_allreduce(gradbus_session* session, const char* name,
                                           const void* in, void* out, uint64_t count,
                                           gradbus_dtype dtype, gradbus_op op);
GRADBUS_API gradbus_code gradbus_broadcast(gradbus_session* session, const char* name, void* data,
                                           uint64_t count, gradbus_dtype dtype, int32_t root);
GRADBUS_API gradbus_code gradbus_barrier(gradbus_session* session);

/* ---- every collective, through one description ----
 *
 *   collective     in                          out                          handle's output
 *   ALLREDUCE      count                       count                        -
 *   REDUCE         count                       count (root; else ignored)   -
 *   REDUCESCATTER  count                       this rank's shard            -
 *   BROADCAST      root: count (NULL: in out)  count                        -
 *   SCATTER        root: count * size          count                        -
 *   ALLGATHER      count, may differ           -                            all blocks, rank order
 *   GATHER         count, may differ           -                            root: all blocks
 *   ALLTOALL       send_counts[r] for rank r   -                            blocks, by source rank
 *
 * Blocks of SCATTER have one size; what rank r gets begins at r * count. ALLTOALL without
 * send_counts sends count / size elements to each rank (count is a multiple of size). */
typedef struct gradbus_operation {
  size_t struct_bytes; /* set by gradbus_operation_init */
  gradbus_collective collective;
  const char* name; /* NULL: by order, as above */
  const void* in;
  void* out;
  uint64_t count; /* elements */
  gradbus_dtype dtype;
  gradbus_op op;              /* ALLREDUCE, REDUCE, REDUCESCATTER; default SUM */
  int32_t root;               /* default 0 */
  double prescale, postscale; /* floats: inputs times prescale, result times postscale; default 1 */
  uint64_t row_elements;      /* REDUCESCATTER: default 1 */
  const uint64_t* send_counts; /* ALLTOALL: elements for each rank, one block after the other */
  const char* compression;     /* ALLREDUCE: as in gradbus_tensor_spec; NULL: dense */
  int32_t input_stays;         /* 1: the caller does not change `in` until the wait ends: no copy */
  uint32_t dims;               /* numbers in `shape`; 0, 1: shapes are not compared */
  const uint64_t* shape; /* of the tensor, SCATTER: of what each rank gets; it divides `count`. Else
                            MISMATCH. GATHER, ALLGATHER, ALLTOALL: the first number may differ */
} gradbus_operation;

static inline void gradbus_operation_init(gradbus_operation* operation,
                                          gradbus_collective collective) {
  gradbus_init_struct(operation, sizeof(*operation));
  operation->collective = collective;
  operation->dtype = GRADBUS_F32;
  operation->op = GRADBUS_SUM;
  operation->prescale = operation->postscale = 1;
  operation->row_elements = 1;
}
/* Starts n operations under one handle, which ends when all have ended; n > 1: a grouped operation.
 * On an error none is started. */
GRADBUS_API gradbus_code gradbus_start_operations(gradbus_session* session,
                                                  const gradbus_operation* operations, size_t n,
                                                  gradbus_handle** handle);
/* Starts one and waits for it; `handle` (for the output) may be NULL. */
GRADBUS_API gradbus_code gradbus_run_operation(gradbus_session* session,
                                               const gradbus_operation* operation,
                                               gradbus_handle** handle);
/* As gradbus_handle_output, of the operation with this index in its group; `counts` is by rank. */
GRADBUS_API gradbus_code gradbus_handle_output_at(gradbus_handle* handle, size_t index,
                                                  const void** data, uint64_t* bytes,
                                                  const uint64_t** counts);
/* REDUCESCATTER: the rank's shard of a tensor of `count` elements. Rows of row_elements are never
 * cut; the first (rows % size) ranks have one more. INVALID when count is not a multiple of
 * row_elements. */
GRADBUS_API gradbus_code gradbus_shard(const gradbus_session* session, int32_t rank, uint64_t count,
                                       uint64_t row_elements, uint64_t* first, uint64_t* elements);

/* ---- process sets ----
 *
 * A session for some of the ranks. They are numbered from 0 in the order given. Its operations are
 * matched among them only. Every rank of `session` makes the call, members or not, with the same
 * list (else MISMATCH). `set` is NULL if this rank is not a member. Sets may overlap. End a set
 * with gradbus_shutdown, before `session`. */
GRADBUS_API gradbus_code gradbus_process_set(gradbus_session* session, const int32_t* ranks,
                                             size_t n, gradbus_session** set);

#ifdef __cplusplus
}
#endif
#include "gradbus/devices.h"
#include "gradbus/questions.h"
#include "gradbus/schedules.h"
#include "gradbus/threads.h"
#include "gradbus/trace.h"
#endif /* GRADBUS_GRADBUS_H_ */
