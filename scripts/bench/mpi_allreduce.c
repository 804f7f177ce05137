// Times MPI_Allreduce (f32, sum, in place) the way scripts/bench times every other entrant, and
// prints one JSON array from rank 0. Compiled once against Open MPI and once against MPICH.
//
//   mpi_allreduce ITERATIONS WARMUP SECONDS sizes BYTES...   one row per size
//   mpi_allreduce ITERATIONS WARMUP SECONDS storm FILE       one row per form; a line is a count
//
// A sample is the slowest rank's time, begun at a barrier, of one operation; under kBatchBytesMax
// of as many in a row as fill kBatchSeconds, divided by their number, so that neither clock nor
// barrier is part of it: as `gradbus bench` does. SECONDS bounds what one row may take: fewer
// samples are taken when they would not fit (never under kSamplesMin); 0 means no bound. Every row
// is also checked against the known sum, before and after the timed samples.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  kBatchMax = 128,
  kBatchBytesMax = 64 << 10,
  kSamplesMin = 3,
  kSamplesMax = 100000,
  kTensorsMax = 4096
};

static const double kBatchSeconds = 200e-6;

typedef struct {
  int rank, size, iterations, warmup;
  double seconds;
} Setup;

// One buffer, seen as `tensors` parts that lie behind each other.
typedef struct {
  float* data;
  const int* counts;
  int tensors;
  long total;
  int batch;  // operations of a sample
} Work;

typedef void (*Exchange)(const Work* work);

static void die(const char* what) {
  fprintf(stderr, "mpi_allreduce: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 2);
}

static void* allocate(size_t bytes) {
  void* memory = NULL;
  if (posix_memalign(&memory, 4096, bytes > 0 ? bytes : 1) != 0) die("out of memory");
  return memory;
}

static void exchange_sequential(const Work* work) {
  float* at = work->data;
  for (int i = 0; i < work->tensors; at += work->counts[i++])
    MPI_Allreduce(MPI_IN_PLACE, at, work->counts[i], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void exchange_async(const Work* work) {
  static MPI_Request requests[kTensorsMax];
  static MPI_Status statuses[kTensorsMax];
  float* at = work->data;
  for (int i = 0; i < work->tensors; at += work->counts[i++])
    MPI_Iallreduce(MPI_IN_PLACE, at, work->counts[i], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                   &requests[i]);
  MPI_Waitall(work->tensors, requests, statuses);
}

static void exchange_fused(const Work* work) {
  MPI_Allreduce(MPI_IN_PLACE, work->data, (int)work->total, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

// Elements whose sum over the ranks is wrong, on all ranks together. Small whole numbers: exact in
// f32.
static long count_wrong(const Setup* setup, const Work* work, Exchange exchange) {
  for (long i = 0; i < work->total; ++i) work->data[i] = (float)(i % 1000 + setup->rank);
  exchange(work);
  long wrong = 0, all = 0;
  const int rank_sum = setup->size * (setup->size - 1) / 2;
  for (long i = 0; i < work->total; ++i)
    wrong += work->data[i] != (float)(i % 1000 * setup->size + rank_sum);
  MPI_Allreduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

static double sample(const Work* work, Exchange exchange) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  for (int i = 0; i < work->batch; ++i) exchange(work);
  return (MPI_Wtime() - began) / work->batch;
}

// Runs the warm-up and decides the batch; the same on every rank. Seconds of one operation.
static double warm_up(const Setup* setup, Work* work, Exchange exchange) {
  double best = sample(work, exchange);
  for (int i = 1; i < setup->warmup; ++i) {
    const double time = sample(work, exchange);
    if (time < best) best = time;
  }
  MPI_Bcast(&best, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  if (work->total * (long)sizeof(float) >= kBatchBytesMax) return best;
  const double fitting = best > 0 ? kBatchSeconds / best : kBatchMax;
  work->batch = fitting >= kBatchMax ? kBatchMax : (int)fitting + 1;
  return best;
}

// How many samples fit into the bound.
static int samples_that_fit(const Setup* setup, const Work* work, double one) {
  if (setup->seconds <= 0 || one <= 0) return setup->iterations;
  const double fit = setup->seconds / (one * work->batch);
  if (fit >= setup->iterations) return setup->iterations;
  return fit > kSamplesMin ? (int)fit : kSamplesMin;
}

static int by_value(const void* left, const void* right) {
  const double a = *(const double*)left, b = *(const double*)right;
  return (a > b) - (a < b);
}

// One row: `times` are sorted seconds.
static void print_row(const char* label, long bytes, int batch, const double* times, int count,
                      long wrong) {
  const int p50 = count / 2, p99 = (int)((count - 1) * 0.99 + 0.5);
  printf(
      "{\"form\":\"%s\",\"size\":%ld,\"samples\":%d,\"batch\":%d,\"time\":%.4f,\"time_p50\":%.4f,"
      "\"time_p99\":%.4f,\"#wrong\":%ld}",
      label, bytes, count, batch, times[0] * 1e6, times[p50] * 1e6, times[p99] * 1e6, wrong);
}

static void measure(const Setup* setup, Work* work, Exchange exchange, const char* label) {
  long wrong = count_wrong(setup, work, exchange);
  // Zeros stay zeros however often they are summed, so no sample meets an infinity.
  memset(work->data, 0, (size_t)work->total * sizeof(float));
  const double one = warm_up(setup, work, exchange);
  const int count = samples_that_fit(setup, work, one);
  double* mine = allocate((size_t)count * sizeof(double));
  double* slowest = allocate((size_t)count * sizeof(double));
  for (int i = 0; i < count; ++i) mine[i] = sample(work, exchange);
  MPI_Allreduce(mine, slowest, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  wrong += count_wrong(setup, work, exchange);
  qsort(slowest, (size_t)count, sizeof(double), by_value);
  if (setup->rank == 0)
    print_row(label, work->total * (long)sizeof(float), work->batch, slowest, count, wrong);
  free(mine);
  free(slowest);
}

static void run_sizes(const Setup* setup, int argc, char** argv) {
  for (int i = 0; i < argc; ++i) {
    const int count = (int)(atol(argv[i]) / (long)sizeof(float));
    Work work = {allocate((size_t)count * sizeof(float)), &count, 1, count, 1};
    if (setup->rank == 0 && i > 0) printf(",\n");
    measure(setup, &work, exchange_fused, "single");
    free(work.data);
  }
}

static int read_counts(const char* path, int* counts) {
  FILE* file = fopen(path, "r");
  if (file == NULL) die("cannot open the file of counts");
  int tensors = 0;
  while (tensors < kTensorsMax && fscanf(file, "%d", &counts[tensors]) == 1) ++tensors;
  fclose(file);
  if (tensors == 0) die("the file of counts is empty");
  return tensors;
}

static void run_storm(const Setup* setup, const char* path) {
  static int counts[kTensorsMax];
  Work work = {NULL, counts, read_counts(path, counts), 0, 1};
  for (int i = 0; i < work.tensors; ++i) work.total += counts[i];
  work.data = allocate((size_t)work.total * sizeof(float));
  measure(setup, &work, exchange_sequential, "sequential");
  if (setup->rank == 0) printf(",\n");
  measure(setup, &work, exchange_async, "async");
  if (setup->rank == 0) printf(",\n");
  measure(setup, &work, exchange_fused, "fused");
  free(work.data);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc < 6) die("usage: mpi_allreduce ITERATIONS WARMUP SECONDS sizes BYTES... | storm FILE");
  Setup setup = {0, 0, atoi(argv[1]), atoi(argv[2]), atof(argv[3])};
  if (setup.iterations < 1 || setup.iterations > kSamplesMax || setup.warmup < 1)
    die("ITERATIONS must be 1 to 100000 and WARMUP at least 1");
  MPI_Comm_rank(MPI_COMM_WORLD, &setup.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &setup.size);
  if (setup.rank == 0) printf("[");
  if (strcmp(argv[4], "storm") == 0)
    run_storm(&setup, argv[5]);
  else
    run_sizes(&setup, argc - 5, argv + 5);
  if (setup.rank == 0) printf("]\n");
  MPI_Finalize();
  return 0;
}
