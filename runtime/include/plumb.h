/* SPDX-License-Identifier: Apache-2.0 */
/* plumb.h: the C interface of libplumb, to describe, train and sample transformers. C99 and C++.
 *
 * These rules hold for every function:
 *
 * - Handles are opaque and may be freed in any order: a model keeps its runtime alive, and a
 *   trainer, a session or an evaluator its model. Free a handle once, while no call uses it.
 *   Freeing NULL does nothing.
 * - A function that can fail returns a plumb_status. If it is not PLUMB_OK (0) and the last
 *   argument is not NULL, *error becomes an error that the caller frees. Outputs keep their old
 *   values.
 * - int64_t counts elements, tokens, steps and bytes of models, and is an index of a list; int32_t
 *   is the id of a token, an enumerator, a boolean (0 is false, all other values are true) or the
 *   number of a thread, rank, sequence, line or column; size_t is the size of text or memory in
 *   bytes. A count that is negative or exceeds memory is PLUMB_STATUS_INVALID_ARGUMENT, and no
 *   element is read.
 * - Texts are UTF-8 and end with 0, as arguments and as results. Only a text that may contain 0, to
 *   tokenize or from tokens, has a size.
 * - A text or an array that becomes the caller's (char** text, int32_t** tokens) is freed by
 *   plumb_free. All other pointers that a call returns belong to the library, and live as long as
 *   is stated there. A result that is JSON has a JSON Schema, installed in share/plumb/schemas. Its
 *   fields stay, and more may be added.
 * - A list has a function for its number of elements, plumb_..._count, and one for the i-th, which
 *   fails with PLUMB_STATUS_OUT_OF_RANGE beyond the last. A list that a call computes is written to
 *   an array of the caller, of which only the first element's struct_size needs to be set: all
 *   have that size. The call returns the number of elements, also if it exceeds `capacity`, which
 *   may be 0, and -1 if there is an element to write and struct_size is not set.
 * - Texts, arrays and structs that a call gets are copied if they are needed after it: options,
 *   with the allocator, the executor and the communicator. Kept as a pointer are `context` and
 *   `user`, whose objects live as long as the handle, and a registered norm.
 * - A callback that returns a number returns 0 to continue. All other values end the call that it
 *   runs in, which then returns PLUMB_STATUS_CANCELLED; what it had done stays done.
 * - A struct begins with `struct_size`, which the caller sets to sizeof the struct, also for an
 *   output: it lets an old program run with a newer plumb. Each struct has an initializer that sets
 *   it: plumb_model_info info = PLUMB_MODEL_INFO_INIT.
 * - Options are passed by pointer. NULL means what the initializer PLUMB_..._OPTIONS_INIT contains.
 *   0 is the default of each field, except for a temperature.
 * - No function ends the process, installs a signal handler, prints, changes the locale or the
 *   floating-point mode, or throws. Callbacks must not throw either, and run in the default
 *   floating-point mode.
 * - Memory that is too small for a model is an error, but the process may end if an allocation of a
 *   few kilobytes fails. Saving reports a file size limit or a pipe without a reader as an error:
 *   SIGXFSZ and SIGPIPE do not reach the host. Reading a pipe without a writer is an error after
 *   two seconds.
 * - A call needs 256 KiB of stack for deeply nested formulas; 128 KiB suffice for usual ones.
 * - Thread-safety is stated at each handle below. Different handles are independent, except that no
 *   session may run while a trainer of its model does. */
#ifndef PLUMB_H_
#define PLUMB_H_

#include <stddef.h>
#include <stdint.h>

#include "plumb/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_MSC_VER)
#define PLUMB_API __declspec(dllimport)
#elif defined(__GNUC__)
#define PLUMB_API __attribute__((visibility("default")))
#else
#define PLUMB_API
#endif

#if defined(__GNUC__)
#define PLUMB_NODISCARD __attribute__((warn_unused_result))
#elif defined(__cplusplus) && __cplusplus >= 201703L
#define PLUMB_NODISCARD [[nodiscard]]
#else
#define PLUMB_NODISCARD
#endif

/* --- Version ---------------------------------------------------------------------------------- */

/* Version of this ABI, for plumb_runtime_create. Until 1.0 it is the minor version of plumb, 3 of
 * 0.3: libplumb.so.0.3 runs programs that were built for 0.3, and no others. */
#define PLUMB_ABI_VERSION 3u

/* Returns the version of plumb, "0.3.0", a static string. */
PLUMB_API const char* plumb_version(void);

/* --- Memory ----------------------------------------------------------------------------------- */

/* Frees a text or an array that a call made for the caller. */
PLUMB_API void plumb_free(void* memory);

/* --- Errors ----------------------------------------------------------------------------------- */

/* An error with its message. Immutable; any thread may read it. */
typedef struct plumb_error plumb_error;

/* Returns the status that the call returned; PLUMB_OK for NULL. */
PLUMB_API plumb_status plumb_error_code(const plumb_error* error);
/* Returns the whole message, "model.pbtxt:3:1: ...", which lives as long as the error. */
PLUMB_API const char* plumb_error_message(const plumb_error* error);
/* Finds the location with which the message begins. `*file` lives as long as the error; lines and
 * columns count from 1. Each output may be NULL.
 * Returns: 1, or 0 if the message has no location. */
PLUMB_API int32_t plumb_error_location(const plumb_error* error, const char** file, int32_t* line,
                                       int32_t* column);
/* Frees an error. */
PLUMB_API void plumb_error_free(plumb_error* error);

/* --- Runtime ---------------------------------------------------------------------------------- */

/* Plugins, placements and threads, shared by the models that are created with it.
 * Thread-safety: thread-compatible. Calls on a runtime, and calls that create something with it,
 * must not overlap. */
typedef struct plumb_runtime plumb_runtime;

enum {
  /* Flag: PLUMB_PLUGIN_PATH, PLUMB_PLACEMENT_PATH and OMP_NUM_THREADS are not read. */
  PLUMB_RUNTIME_NO_ENVIRONMENT = 1
};

/* Receives a message for the host's log, without a line break, on the calling thread, before the
 * call that caused it returns. */
typedef void (*plumb_log_fn)(void* user, int32_t level, const char* message);

/* The host's allocator, for everything of a model's size: weights, gradients, moments, caches,
 * workspaces. Names, plans and messages use malloc. A failed allocation makes the call fail with
 * PLUMB_STATUS_RESOURCE_EXHAUSTED.
 * Thread-safety: called by the thread that makes a call, and by any thread that frees a handle. */
typedef struct plumb_allocator {
  uint32_t struct_size;
  void* context;
  /* Returns `size` bytes, or NULL. `alignment` is a power of two that divides `size`. */
  void* (*allocate)(void* context, size_t size, size_t alignment);
  void (*release)(void* context, void* memory, size_t size);
} plumb_allocator;
#define PLUMB_ALLOCATOR_INIT \
  { sizeof(plumb_allocator), NULL, NULL, NULL }

/* The host's thread pool. `run` calls task(argument, i) exactly once for each i in 0 .. n - 1 (n is
 * at most options.threads), on any threads including the calling one, and returns when all are
 * done. Results are the same bits for any distribution. */
typedef struct plumb_executor {
  uint32_t struct_size;
  void* context;
  void (*run)(void* context, int32_t n, void (*task)(void* argument, int32_t i), void* argument);
} plumb_executor;
#define PLUMB_EXECUTOR_INIT \
  { sizeof(plumb_executor), NULL, NULL }

typedef struct plumb_runtime_options {
  uint32_t struct_size;
  uint32_t flags;
  int32_t threads;  /* max of a call; 0: OMP_NUM_THREADS, else the number of usable processors */
  plumb_log_fn log; /* NULL: messages are discarded */
  void* log_user;
  /* GEMM engine: "auto" (NULL), "onednn", "small" (built in), "pairs" (bf16 multiply), "widen"
   * (bf16 to f32) */
  const char* gemm;
  const plumb_allocator* allocator; /* NULL: plumb's own */
  /* NULL: plumb's own threads. They are shared by all runtimes of the process, start with the first
   * call that has work for them, and end with the last handle on a runtime. */
  const plumb_executor* executor;
  /* Absolute directories, separated by ':', that are searched for norms and placements before those
   * of the environment and of the installation; NULL: none. */
  const char* plugin_path;
  const char* placement_path;
  /* Directory under which the norms and placements of plumb are installed, for a program that links
   * plumb statically. NULL: found from the location of libplumb.so. */
  const char* install_prefix;
} plumb_runtime_options;
#define PLUMB_RUNTIME_OPTIONS_INIT \
  { sizeof(plumb_runtime_options), 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }

/* Creates a runtime. `abi_version` is PLUMB_ABI_VERSION. A process created by fork() needs its own:
 * calls on handles of the parent process fail with PLUMB_STATUS_FAILED_PRECONDITION, but the
 * handles may be freed.
 * Errors: PLUMB_STATUS_FAILED_PRECONDITION for a program that was built for another minor version;
 * PLUMB_STATUS_INVALID_ARGUMENT for an unknown engine or an invalid option;
 * PLUMB_STATUS_NOT_FOUND for "onednn" if oneDNN cannot be loaded ("auto" loads it on demand, and
 * only logs a warning). */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_runtime_create(uint32_t abi_version,
                                                            const plumb_runtime_options* options,
                                                            plumb_runtime** runtime,
                                                            plumb_error** error);
/* Frees a runtime. */
PLUMB_API void plumb_runtime_free(plumb_runtime* runtime);
/* Returns the max number of threads of a call. */
PLUMB_API int32_t plumb_runtime_threads(const plumb_runtime* runtime);

/* Table of a norm (plumb/norm_plugin.h). */
struct plumb_norm_plugin;

/* Registers a norm that is linked into the program. `plugin` outlives the runtime. Norms on the
 * plugin path need not be registered.
 * Errors: PLUMB_STATUS_FAILED_PRECONDITION for a norm that violates the plugin ABI;
 * PLUMB_STATUS_ALREADY_EXISTS for a second norm with the same id, which may be one of plumb's. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_plugin_register(plumb_runtime* runtime,
                                                             const struct plumb_norm_plugin* plugin,
                                                             plumb_error** error);
/* Registers all norms of a plugin file, whose code runs with all rights of the process. A norm
 * whose id is taken is skipped with a warning.
 * Errors: PLUMB_STATUS_NOT_FOUND;
 * PLUMB_STATUS_FAILED_PRECONDITION for a file that is not a valid plugin. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_plugin_load(plumb_runtime* runtime, const char* path,
                                                         plumb_error** error);

/* Describes a norm, and loads its plugin if necessary. JSON, with the fields of plugin.schema.json.
 * plumb_runtime_describe lists all norms.
 * Errors: PLUMB_STATUS_NOT_FOUND, with a suggestion; those of plumb_plugin_load. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_plugin_describe(plumb_runtime* runtime, const char* id,
                                                             char** text, plumb_error** error);

/* A call of a norm's function, for a host that reports where the process ended by a fault, or where
 * it hangs. The strings live as long as the call. */
typedef struct plumb_plugin_call {
  uint32_t struct_size;
  int32_t thread;       /* index of the thread, from 0; plumb_plugin_calls only */
  const char* function; /* "forward", ...; "dlopen": the file is being loaded */
  const char* norm;     /* id of the norm, or ids of the file that is being loaded */
  const char* file;     /* "": linked into the program */
  uint64_t number;      /* index among the thread's calls; plumb_plugin_calls only */
} plumb_plugin_call;
#define PLUMB_PLUGIN_CALL_INIT \
  { sizeof(plumb_plugin_call), 0, NULL, NULL, NULL, 0 }

/* Finds the call of a norm that the calling thread is in.
 * Returns: 1, 0 if the thread is in no such call, or -1 if call->struct_size is not set.
 * Thread-safety: any thread, and signal handlers. */
PLUMB_API int32_t plumb_current_plugin_call(plumb_plugin_call* call);
/* Lists the norm calls that all threads of the process are in, at most `capacity` and at most 64.
 * Only calls[0].struct_size needs to be set; all elements have that size.
 * Returns: the number of calls, or -1 if it is not set.
 * Thread-safety: any thread, and signal handlers. */
PLUMB_API int32_t plumb_plugin_calls(plumb_plugin_call* calls, int32_t capacity);

/* Names the GEMM engines. Runtimes with equal strings round equally. Loads oneDNN, which
 * plumb_runtime_describe then reports. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_runtime_gemm(plumb_runtime* runtime, char** text,
                                                          plumb_error** error);

enum { PLUMB_SPEED_GEMM_F32 = 0, PLUMB_SPEED_GEMM_BF16 = 1, PLUMB_SPEED_READ = 2 };

/* Measures the peak speed of the machine with the runtime's threads, to compare plumb_model_work
 * with: floating-point operations per second of a product by oneDNN, in which each thread
 * multiplies 1,024 rows, or 2,048 of bf16, by a [2048, 2048] matrix; or bytes per second of one
 * pass that reads 512 MiB. Takes a moment; the runtime keeps the memory for the next measurement.
 * Errors: PLUMB_STATUS_UNIMPLEMENTED if oneDNN or the processor has no such product;
 * PLUMB_STATUS_RESOURCE_EXHAUSTED. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_runtime_measure_speed(plumb_runtime* runtime,
                                                                   int32_t what, double* per_second,
                                                                   plumb_error** error);

/* Reports the machine, the norms and placements that were found or refused, and problems: what
 * `plumb doctor` prints. JSON, with the fields of runtime.schema.json. Loads nothing and runs no
 * plugin's code. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_runtime_describe(plumb_runtime* runtime, char** text,
                                                              plumb_error** error);

/* --- Descriptions of models ------------------------------------------------------------------- */

/* A model's description (plumb.v1.Model in protobuf text format).
 * Thread-safety: thread-compatible. */
typedef struct plumb_spec plumb_spec;

/* Reads a description from a file, or from a text, for which `name` stands in messages.
 * Errors: PLUMB_STATUS_NOT_FOUND; PLUMB_STATUS_INVALID_ARGUMENT with a location, listing all syntax
 * errors. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_spec_from_file(const char* path, plumb_spec** spec,
                                                            plumb_error** error);
PLUMB_NODISCARD PLUMB_API plumb_status plumb_spec_from_text(const char* text, const char* name,
                                                            plumb_spec** spec, plumb_error** error);
/* Sets a field from text: ("n_layer", "8"), ("norm[0].attr[eps].number", "1e-6").
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_spec_set(plumb_spec* spec, const char* field,
                                                      const char* value, plumb_error** error);
/* Writes the description in protobuf text format. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_spec_text(const plumb_spec* spec, char** text,
                                                       plumb_error** error);
/* Frees a description. */
PLUMB_API void plumb_spec_free(plumb_spec* spec);

/* --- Models ----------------------------------------------------------------------------------- */

/* A model and its weights.
 * Thread-safety: functions that take it const, its sessions and its evaluators may run on several
 * threads at once, and sessions and evaluators may be created meanwhile; other functions need
 * exclusive access. */
typedef struct plumb_model plumb_model;

typedef struct plumb_model_info {
  uint32_t struct_size;
  int64_t n_layer, d_model, n_head, vocab_size, context_length;
  int64_t parameters;    /* number of trained elements */
  int64_t weight_bytes;  /* bytes of the parameters in f32 */
  int64_t cache_bytes;   /* bytes of one sequence's KV cache; half of it for PLUMB_WEIGHTS_BF16, but
                            for the states of linear attention */
  int32_t bidirectional; /* 1: each token sees those after it; such a model has no sessions */
  int32_t token_types;   /* number of token types; 0: none */
} plumb_model_info;
#define PLUMB_MODEL_INFO_INIT \
  { sizeof(plumb_model_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Creates a model without weights: resolves the placements, norms and formulas of `spec`, which is
 * not kept.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT and others for errors of the description, with locations.
 */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_create(plumb_runtime* runtime,
                                                          const plumb_spec* spec,
                                                          plumb_model** model, plumb_error** error);
/* Frees the handle; trainers, sessions and evaluators keep the model. */
PLUMB_API void plumb_model_free(plumb_model* model);
/* Returns the dimensions and sizes of the model in *info. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_get_info(const plumb_model* model,
                                                            plumb_model_info* info,
                                                            plumb_error** error);

/* Describes the resolved model: what `plumb describe` prints. JSON, with the fields of
 * model.schema.json. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_describe(const plumb_model* model, char** text,
                                                            plumb_error** error);
/* Writes a self-contained description, which includes the placements and imports it refers to. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_text(const plumb_model* model, char** text,
                                                        plumb_error** error);

/* Lists the norms of the model's layers. JSON, model_norms.schema.json: {ID: version}. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_norms(const plumb_model* model, char** text,
                                                         plumb_error** error);

/* Stages that plumb_model_explain prints. */
enum {
  /* Stages of a training step. */
  PLUMB_EXPLAIN_GRAPH = 0,     /* graph of the forward pass */
  PLUMB_EXPLAIN_GRADIENTS = 1, /* with gradients */
  PLUMB_EXPLAIN_OPTIMIZED = 2,
  PLUMB_EXPLAIN_MEMORY_PLAN = 3,
  PLUMB_EXPLAIN_EXECUTABLE = 4,
  PLUMB_EXPLAIN_PROMPT = 5,    /* graph of a prompt or, for seq 1, of a decoding step */
  PLUMB_EXPLAIN_PROBES = 6,    /* probe points, with a star before the default ones */
  PLUMB_EXPLAIN_UPDATES = 7,   /* how the recipe updates each tensor */
  PLUMB_EXPLAIN_SVG = 8,       /* data flow of a layer of each kind, as an SVG file */
  PLUMB_EXPLAIN_LAYER_SVG = 9, /* data flow of options.layer, as an SVG file */
  PLUMB_EXPLAIN_PYTORCH = 10   /* the model as a Python module for PyTorch */
};

typedef struct plumb_explain_options {
  uint32_t struct_size;
  int32_t stage;      /* PLUMB_EXPLAIN_GRAPH, ... */
  int64_t layer;      /* from 0; PLUMB_EXPLAIN_LAYER_SVG only */
  int64_t batch, seq; /* sequences (0: 1), and tokens of each (0: the model's context_length) */
  const char* recipe; /* see plumb_trainer_options */
} plumb_explain_options;
#define PLUMB_EXPLAIN_OPTIONS_INIT \
  { sizeof(plumb_explain_options), 0, 0, 1, 0, NULL }

/* Prints a stage of the compiler, for people: the text changes with each version.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT, also for a layer that does not exist, and for a program
 * too large to be addressed. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_explain(const plumb_model* model,
                                                           const plumb_explain_options* options,
                                                           char** text, plumb_error** error);

enum { PLUMB_PASS_TRAINING = 0, PLUMB_PASS_FEED = 1 };

typedef struct plumb_work {
  uint32_t struct_size;
  /* Floating-point operations of the matrix products: 6 per weight and token of training, 2 of
   * feeding, and those of unmasked attention (PaLM, arXiv:2204.02311, appendix B). */
  double flops;
  /* bytes of weights that a decoding step reads; 0 for a bidirectional model, which has none */
  int64_t weight_bytes;
} plumb_work;
#define PLUMB_WORK_INIT \
  { sizeof(plumb_work), 0.0, 0 }

/* Counts the min work of a pass over one sequence of `tokens` tokens: forward and backward, of
 * which the tensors that `recipe` freezes have no part (NULL: all are trained), or feeding a
 * session, which computes the logits of the last token only. `weights`, as in
 * plumb_session_options, determines weight_bytes.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT, also for `tokens` outside 1 .. context_length. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_work(const plumb_model* model, int32_t pass,
                                                        int64_t tokens, int32_t weights,
                                                        const char* recipe, plumb_work* work,
                                                        plumb_error** error);

/* Lists the names that plumb_trainer_probe takes, one per line, in the order of the data flow. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_probe_points(const plumb_model* model,
                                                                char** text, plumb_error** error);

/* Draws the weights from a seed, as `plumb train` does.
 * Errors: PLUMB_STATUS_FAILED_PRECONDITION while the model has a trainer;
 * PLUMB_STATUS_RESOURCE_EXHAUSTED. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_init(plumb_model* model, uint64_t seed,
                                                        plumb_error** error);
/* Reads the weights from a safetensors file with plumb's names, in f32, which plumb_model_save or
 * plumb_trainer_save wrote; or from the content of one in memory, which is not kept. From a file of
 * PLUMB_STATE_OPTIMIZER tensors alone it reads the average of the weights (the recipe's ema_decay).
 *
 * If `left` is NULL, the file has all tensors of the model and no others. Otherwise those that both
 * have are read, and the model keeps the others, such as a new head, or the base of an adapter:
 * *left becomes the tensors that only one of them has, one per line: "missing: head.weight" is not
 * in the file, "surplus: value.weight" not in the model. Of a file of plumb_trainer_save only the
 * weights count.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT lists missing, unknown and misshapen tensors;
 * PLUMB_STATUS_FAILED_PRECONDITION while the model has a trainer, and, with `left`, if it has no
 * weights yet. The weights are unchanged. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_load(plumb_model* model, const char* path,
                                                        char** left, plumb_error** error);
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_load_memory(plumb_model* model, const void* data,
                                                               size_t size, plumb_error** error);
/* Maps the weights of a file, like plumb_model_load but without reading it: a page is read at its
 * first use and shared by all processes that map the file, until this process writes to it. Tensors
 * whose offset is not a multiple of 64 bytes are copied; plumb's files have none if every dimension
 * is a multiple of 16. A trainer copies all tensors.
 * Requires: the file is not truncated or changed while the model lives; it may be replaced.
 * Errors: those of plumb_model_load; PLUMB_STATUS_FAILED_PRECONDITION while the model has a
 * trainer, sessions or evaluators. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_map(plumb_model* model, const char* path,
                                                       plumb_error** error);

/* Location of one of the model's tensors in a file. */
typedef struct plumb_tensor_in_file {
  uint32_t struct_size;
  int32_t dtype;    /* PLUMB_DTYPE_F32, PLUMB_DTYPE_BF16 or PLUMB_DTYPE_F16; little-endian */
  const char* name; /* the name that plumb_model_tensor reports */
  const char* path;
  int64_t offset; /* first element, in bytes from the beginning of the file; row-major */
} plumb_tensor_in_file;
#define PLUMB_TENSOR_IN_FILE_INIT \
  { sizeof(plumb_tensor_in_file), 0, NULL, NULL, 0 }

/* Maps tensors that are stored anywhere in files, such as checkpoints of other programs, like
 * plumb_model_map. All elements have the struct_size of tensors[0]. Matrices stay in their files,
 * 16-bit ones only for PLUMB_WEIGHTS_BF16 of bf16; other uses make f32 copies of these at the first
 * use. Buffers of norms get their initial values.
 * Errors: those of plumb_model_map. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_map_tensors(plumb_model* model,
                                                               const plumb_tensor_in_file* tensors,
                                                               int64_t count, plumb_error** error);
/* Saves weights and buffers as safetensors: all of them if `tensors` is NULL, else those with a
 * name that matches it, in which * is any text: "*.lora_*" saves the adapter `lora` alone, for
 * plumb_model_load with `left`. Replaces the file atomically: whatever happens it holds the old
 * content or the new.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT if nothing matches. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_save(const plumb_model* model, const char* path,
                                                        const char* tensors, plumb_error** error);

/* Creates a model without the adapter of `model`, with its updates added to the weights that they
 * adapt, in f32. It computes the same, except for rounding.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT for a model without an adapter, or whose adapter does
 * anything else than add low-rank updates, each of them of linears of its own and to a projection
 * of a layer that shares no parameters and has no convolution; PLUMB_STATUS_RESOURCE_EXHAUSTED. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_merge(const plumb_model* model,
                                                         plumb_model** merged, plumb_error** error);

/* View of a tensor: row-major, not a copy. */
typedef struct plumb_tensor {
  uint32_t struct_size;
  const char* name; /* "layers.0.attention.q.weight"; lives as long as `data` */
  int32_t dtype;    /* PLUMB_DTYPE_F32 */
  int32_t rank;     /* 1 .. 4 */
  int64_t shape[4]; /* 1 beyond the rank */
  float* data;
} plumb_tensor;
#define PLUMB_TENSOR_INIT \
  { sizeof(plumb_tensor), NULL, 0, 0, {0, 0, 0, 0}, NULL }

/* Returns the number of parameters. */
PLUMB_API int64_t plumb_model_tensor_count(const plumb_model* model);
/* Returns the index of the parameter with a name, also for its gradients; -1: there is none. */
PLUMB_API int64_t plumb_model_find_tensor(const plumb_model* model, const char* name);
/* Returns the i-th parameter in *tensor, of which the first tensor->struct_size bytes are filled
 * in. Its data may be written while nothing else uses the model (see plumb_model_changed). The
 * pointers live as long as the model, but end when the weights get another layout: by
 * plumb_model_map and plumb_model_map_tensors, and by plumb_trainer_create with dtype BF16, after
 * such a trainer, or with mapped weights.
 * Errors: PLUMB_STATUS_OUT_OF_RANGE; PLUMB_STATUS_FAILED_PRECONDITION without weights, and for a
 * matrix that was trained in bf16, which plumb_model_read_tensor returns. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_tensor(const plumb_model* model, int64_t i,
                                                          plumb_tensor* tensor,
                                                          plumb_error** error);

/* Copies the elements [begin, begin + count) of the i-th parameter to `to`, in f32. Includes
 * matrices that were trained in bf16, of which all bits of f32 are stored.
 * Errors: PLUMB_STATUS_OUT_OF_RANGE; PLUMB_STATUS_FAILED_PRECONDITION without weights. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_model_read_tensor(const plumb_model* model, int64_t i,
                                                               int64_t begin, int64_t count,
                                                               float* to, plumb_error** error);

/* Makes sessions and evaluators use new weights. Call it after writing to tensors, before they run
 * again. */
PLUMB_API void plumb_model_changed(plumb_model* model);

/* --- Tokenizers ------------------------------------------------------------------------------- */

/* Converts text to token ids and back. Immutable; any thread. */
typedef struct plumb_tokenizer plumb_tokenizer;

/* Size and special tokens. The arrays live as long as the tokenizer. */
typedef struct plumb_tokenizer_info {
  uint32_t struct_size;
  int32_t begin; /* begins a document of training data; -1: none */
  int32_t end;   /* ends one, and begins one in tokenizers of characters and bytes; -1: none */
  int64_t vocab_size;
  /* The tokens to put before those of plumb_tokenizer_encode in a prompt: those that the file's
   * post-processor puts before a text, such as <s>, or `end` of a tokenizer of characters or bytes.
   */
  const int32_t* prefix;
  int64_t prefix_count;
  /* The tokens that end a generated text, for plumb_sample_options; `end` is the first. */
  const int32_t* end_tokens;
  int64_t end_token_count;
} plumb_tokenizer_info;
#define PLUMB_TOKENIZER_INFO_INIT \
  { sizeof(plumb_tokenizer_info), 0, 0, 0, NULL, 0, NULL, 0 }

enum { PLUMB_TOKENIZER_CHARACTERS = 0, PLUMB_TOKENIZER_BYTES = 1 };

/* Creates a tokenizer. PLUMB_TOKENIZER_CHARACTERS has a token for each character in `text`, line
 * breaks included, ordered by code point. PLUMB_TOKENIZER_BYTES has the token b for byte b, and
 * ignores `text`. `with_begin_end` adds a last token that begins and ends a document. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_tokenizer_create(int32_t kind, const char* text,
                                                              size_t size, int32_t with_begin_end,
                                                              plumb_tokenizer** tokenizer,
                                                              plumb_error** error);
/* Reads a tokenizer from the text of a tokenizer.json, of a run or of a published model. Its
 * special tokens are guessed. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_tokenizer_from_json(const char* json,
                                                                 plumb_tokenizer** tokenizer,
                                                                 plumb_error** error);
/* Reads a tokenizer from the directory of a run or of a published model. Special tokens are taken
 * from the first of generation_config.json, config.json, tokenizer_config.json and
 * special_tokens_map.json that names them.
 * Errors: PLUMB_STATUS_NOT_FOUND. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_tokenizer_from_directory(const char* path,
                                                                      plumb_tokenizer** tokenizer,
                                                                      plumb_error** error);
/* Writes the tokenizer as a tokenizer.json. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_tokenizer_json(const plumb_tokenizer* tokenizer,
                                                            char** text, plumb_error** error);
/* Returns the size and the special tokens. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_tokenizer_get_info(const plumb_tokenizer* tokenizer,
                                                                plumb_tokenizer_info* info,
                                                                plumb_error** error);
/* Converts text to ids. *count becomes their number, which may exceed `size`.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT for a character that is not in the vocabulary. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_tokenizer_encode(const plumb_tokenizer* tokenizer,
                                                              const char* text, size_t size,
                                                              int32_t** tokens, int64_t* count,
                                                              plumb_error** error);
/* Converts ids to text; begin/end tokens have none. The text of a tokenizer of bytes may contain 0
 * and invalid UTF-8; *size (may be NULL) becomes its length. The texts of single tokens do not
 * concatenate to the text of all tokens: use a plumb_decoder for tokens that arrive one by one.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT for an id that is not in the vocabulary. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_tokenizer_decode(const plumb_tokenizer* tokenizer,
                                                              const int32_t* tokens, int64_t count,
                                                              char** text, size_t* size,
                                                              plumb_error** error);
/* Frees a tokenizer; its decoders keep what they need. */
PLUMB_API void plumb_tokenizer_free(plumb_tokenizer* tokenizer);

/* Converts tokens that arrive one by one, as from plumb_session_generate, to text. The returned
 * texts concatenate to what plumb_tokenizer_decode returns for all tokens at once, to the byte.
 * Thread-safety: thread-compatible. */
typedef struct plumb_decoder plumb_decoder;

/* Creates a decoder that begins after the `count` tokens of a prompt (may be 0), whose text is not
 * returned: it only decides how the next text begins, with a space or the rest of a character.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT for an id that is not in the vocabulary. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_decoder_create(const plumb_tokenizer* tokenizer,
                                                            const int32_t* prompt, int64_t count,
                                                            plumb_decoder** decoder,
                                                            plumb_error** error);
/* Sets *text and *size (each may be NULL) to the text that `tokens` complete, "" if more tokens
 * must come: a character may need several. The text ends with a 0 that *size does not count, and
 * lives until the next call on the decoder.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT for an id that is not in the vocabulary; the decoder is
 * unchanged.
 */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_decoder_next(plumb_decoder* decoder,
                                                          const int32_t* tokens, int64_t count,
                                                          const char** text, size_t* size,
                                                          plumb_error** error);
/* Returns the text that was held back, with the bytes of an incomplete character unchanged. The
 * decoder then begins a new text without a prompt. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_decoder_finish(plumb_decoder* decoder,
                                                            const char** text, size_t* size,
                                                            plumb_error** error);
/* Makes the text end before the first occurrence of one of `texts`, however tokens split it. Text
 * that may become one of them is held back. count 0 removes them.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT for a string that is empty or not UTF-8. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_decoder_stop_at(plumb_decoder* decoder,
                                                             const char* const* texts,
                                                             int64_t count, plumb_error** error);
/* Returns 1 once the text has reached such a string, after which plumb_decoder_next returns ""
 * until plumb_decoder_finish; else 0. */
PLUMB_API int32_t plumb_decoder_stopped(const plumb_decoder* decoder);
/* Frees a decoder. */
PLUMB_API void plumb_decoder_free(plumb_decoder* decoder);

/* --- Ranks ------------------------------------------------------------------------------------ */

/* Carries messages between the processes (ranks) of a job, on one machine or several, by MPI
 * (libplumb-mpi.so of the command line) or any other transport. Each rank makes the same calls of
 * plumb, with a communicator of the same job, which is called from one thread at a time.
 *
 * Functions that can fail return a plumb_status, PLUMB_STATUS_UNAVAILABLE if a rank or the network
 * failed.
 *
 * Messages with one tag between two ranks arrive in the order in which their sends were started. A
 * rank may send to itself. Messages may be empty, or longer than 2 GiB. */
typedef struct plumb_communicator {
  uint32_t struct_size;
  void* context;
  int32_t rank;     /* 0 .. size - 1 */
  int32_t size;     /* number of ranks, 1 .. 1048576 */
  const char* host; /* name of this rank's machine, for messages */

  /* Starts to send to rank `to`, and returns at once with `*transfer`, which is never NULL. `data`
   * stays valid until the transfer is over. */
  plumb_status (*start_send)(void* context, int32_t to, int32_t tag, const void* data, size_t size,
                             void** transfer);
  /* Starts to receive from rank `from`, likewise. `size` is that of the message; otherwise `test`
   * or `wait` fails with PLUMB_STATUS_INTERNAL. */
  plumb_status (*start_receive)(void* context, int32_t from, int32_t tag, void* data, size_t size,
                                void** transfer);
  /* Sets *over to 1 if the transfer is over, else to 0. Returns at once. Progresses other
   * transfers, too. */
  plumb_status (*test)(void* context, void* transfer, int32_t* over);
  /* Waits until the transfer is over. A transfer ceases to exist after `wait`, after `test` has set
   * *over to 1, and after a failure of either. */
  plumb_status (*wait)(void* context, void* transfer);
  /* Sets *found to 1 if a message with this tag has arrived from any rank and no receive was
   * started for it, and then *from and *size; else *found to 0. Returns at once. */
  plumb_status (*probe)(void* context, int32_t tag, int32_t* found, int32_t* from, size_t* size);
  /* Returns when all ranks have called it. */
  plumb_status (*barrier)(void* context);
  /* Ends the job: all ranks exit with `code` as soon as possible. May return. */
  void (*abort)(void* context, int32_t code);
  /* Returns a message about the last failure on this rank, which lives until the next call, or
   * NULL. */
  const char* (*error)(void* context);
} plumb_communicator;
#define PLUMB_COMMUNICATOR_INIT \
  { sizeof(plumb_communicator), NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }

/* --- Training --------------------------------------------------------------------------------- */

/* Trains a model's weights; the model's sessions use the new weights after each step.
 * Thread-safety: thread-compatible, except for plumb_trainer_cancel. A callback may call
 * plumb_trainer_cancel, and one that fills batches or receives a step any function that takes the
 * trainer const. In the middle of a step, in a loss or probe callback, states and gradients belong
 * to no step: functions that return or save them fail with PLUMB_STATUS_FAILED_PRECONDITION, as
 * those do that change the trainer in any callback, and plumb_trainer_probes lists none. */
typedef struct plumb_trainer plumb_trainer;

/* Rows of a micro-batch, whose loss the host computes: all of them, unless the recipe's units or
 * the number of ranks divide it. */
typedef struct plumb_loss {
  uint32_t struct_size;
  int64_t step;        /* the current step, from 1 */
  int64_t micro_batch; /* index in the step, from 0 */
  int64_t first_row;   /* index in the micro-batch, from 0 */
  int64_t rows, seq, vocab_size;
  const int32_t* inputs;  /* [rows, seq]; with the recipe's masked_tokens, masked */
  const int32_t* targets; /* [rows, seq]; -1: none. Their meaning is up to the callback. */
  const float* logits;    /* [rows, seq, vocab_size], also in bf16 training */
  float* gradient; /* output: derivative of `loss` by each logit, in the same shape; zeroed */
  double loss;     /* output; 0 */
} plumb_loss;
#define PLUMB_LOSS_INIT \
  { sizeof(plumb_loss), 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 0.0 }

/* Computes a loss, such as a distillation, a preference loss or a cross-entropy with a weight for
 * each token: sets loss->loss and loss->gradient. The loss of a step, which plumb_step_info
 * reports and the gradients belong to, is the sum over all calls of the step, on all ranks: to
 * train on a mean, divide both by the number of targets, say, of the whole step. Balance losses of
 * experts are added to what is minimized, as their mean over the calls.
 *
 * Called once for each micro-batch or part of one, on the thread of the step. It may call functions
 * on other models. A step that fails because a number is not finite repeats the call. */
typedef int32_t (*plumb_loss_fn)(void* user, plumb_loss* loss);

typedef struct plumb_trainer_options {
  uint32_t struct_size;
  /* 1: draws the weights from the recipe's seed, like plumb_model_init, in the layout that is
   * trained; the model need not have any. */
  int32_t draw_weights;
  /* Number of ranks for plumb_trainer_plan, which reports the one that needs most; 0: the
   * communicator's, or 1. */
  int32_t ranks;
  /* plumb.v1.Train in protobuf text format: batch_size, learning_rate, ...; NULL: its defaults. Its
   * fields for data, evaluation, checkpoints and divergence apply to runs in a directory, and have
   * no effect here. */
  const char* recipe;
  int64_t seq;     /* max tokens of a sequence; 0: the model's context_length */
  int64_t reserve; /* bytes that must fit into memory next to the trainer, for an evaluator, say */
  /* The processes that train together; NULL: this one alone. Each rank computes its units of every
   * step. Without units in the recipe there is one per micro-batch, or as many as the ranks need if
   * there are more ranks than micro-batches. Losses and weights are those of one process with the
   * same units, to the bit.
   *
   * Requires: all ranks create the same trainer with equal weights, and make the same calls of
   * plumb_trainer_step, plumb_trainer_step_with_callback, plumb_trainer_run and
   * plumb_trainer_share_states.
   *
   * Errors: a failure of one rank is returned on all, "rank 2 on host b: ...".
   * PLUMB_STATUS_UNAVAILABLE: a rank is gone, and the trainer cannot be used any more. */
  const plumb_communicator* communicator;
  plumb_loss_fn loss; /* computes the loss; NULL: it is the mean cross-entropy of the targets */
  void* loss_user;
} plumb_trainer_options;
#define PLUMB_TRAINER_OPTIONS_INIT \
  { sizeof(plumb_trainer_options), 0, 0, NULL, 0, 0, NULL, NULL, NULL }

/* Memory of a trainer in bytes. All of it is allocated from the first step to the last. */
typedef struct plumb_trainer_memory {
  uint32_t struct_size;
  int64_t weights;     /* in f32 */
  int64_t gradients;   /* with the sums over units if a step has several */
  int64_t moments;     /* optimizer states (AdamW: m and v), and the average for ema_decay */
  int64_t norm_states; /* with copies from before the step and before the unit */
  int64_t inputs;      /* ids and positions of a step's micro-batches and of a unit, the loss */
  int64_t workspace;   /* activations, their gradients and scratch of a unit with options.seq */
  int64_t total;
  int64_t exchange; /* gradients received from other ranks */
} plumb_trainer_memory;
#define PLUMB_TRAINER_MEMORY_INIT \
  { sizeof(plumb_trainer_memory), 0, 0, 0, 0, 0, 0, 0, 0 }

typedef struct plumb_step_info {
  uint32_t struct_size;
  int64_t step;   /* 1 for the first */
  int64_t tokens; /* number of targets */
  double loss; /* mean over the targets, before the update, in nats; or the sum of options.loss */
  double gradient_norm; /* L2 norm of all gradients (frozen tensors have none), before clipping */
  double learning_rate;
  double seconds;
} plumb_step_info;
#define PLUMB_STEP_INFO_INIT \
  { sizeof(plumb_step_info), 0, 0, 0.0, 0.0, 0.0, 0.0 }

/* Fills the micro-batches of a step: inputs[n] and targets[n], as in plumb_trainer_step. `step`
 * counts from 1. */
typedef int32_t (*plumb_batch_fn)(void* user, int64_t step, int32_t* inputs, int32_t* targets,
                                  int64_t n);
/* Receives the results of a step. */
typedef int32_t (*plumb_step_fn)(void* user, const plumb_step_info* info);

/* Writes a complete recipe, for a host that reads or stores it: `recipe`, with `count` fields set.
 * settings[2 * i] is the name of a field ("learning_rate", "data.val_fraction"), and
 * settings[2 * i + 1] its value as text. The result contains every field whose default is not zero.
 * `name` stands for the file in messages.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT, listing all errors of syntax or of range. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_recipe_text(const char* recipe, const char* name,
                                                         const char* const* settings, int64_t count,
                                                         char** text, plumb_error** error);

/* Computes the memory of a trainer without allocating it. Needs no weights.
 * Errors: those of plumb_trainer_create for the options. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_plan(const plumb_model* model,
                                                          const plumb_trainer_options* options,
                                                          plumb_trainer_memory* memory,
                                                          plumb_error** error);

/* Creates a trainer for a model, which may have only one at a time. With dtype BF16 it gives the
 * matrices another layout, in which plumb_model_tensor cannot return them.
 * Errors: PLUMB_STATUS_FAILED_PRECONDITION without weights, while the model has another trainer, or
 * while it has sessions or evaluators and the layout must change; PLUMB_STATUS_INVALID_ARGUMENT for
 * the recipe, and for more ranks than units or sequences; PLUMB_STATUS_RESOURCE_EXHAUSTED if memory
 * cannot hold the step and options.reserve, before any is allocated;
 * PLUMB_STATUS_FAILED_PRECONDITION if recipes, models or weights of ranks differ. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_create(plumb_model* model,
                                                            const plumb_trainer_options* options,
                                                            plumb_trainer** trainer,
                                                            plumb_error** error);
/* Frees a trainer; the model keeps the trained weights. */
PLUMB_API void plumb_trainer_free(plumb_trainer* trainer);

/* Returns the number of ids in a step: gradient_accumulation_steps x batch_size x seq. */
PLUMB_API int64_t plumb_trainer_step_tokens(const plumb_trainer* trainer);
/* Returns the number of completed steps. */
PLUMB_API int64_t plumb_trainer_steps(const plumb_trainer* trainer);
/* Returns the memory, as plumb_trainer_plan does. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_get_memory(const plumb_trainer* trainer,
                                                                plumb_trainer_memory* memory,
                                                                plumb_error** error);

/* Does one optimizer step on inputs [micro-batch, row, position] and targets of the same shape: the
 * id of the next token, or -1 for one that does not count for the loss, such as those of a prompt
 * (PyTorch's ignore_index). The loss is the mean over all others. Rows of a bidirectional model may
 * end in inputs of -1, padding that no token sees. With the recipe's masked_tokens, targets are
 * chosen from the inputs and the given ones are not read. `info` may be NULL.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT for n other than plumb_trainer_step_tokens, an id outside
 * the vocabulary, or no target at all; PLUMB_STATUS_ABORTED if the loss or a gradient is not
 * finite, with the name of the first such tensor. The trainer is then unchanged. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_step(plumb_trainer* trainer,
                                                          const int32_t* inputs,
                                                          const int32_t* targets, int64_t n,
                                                          plumb_step_info* info,
                                                          plumb_error** error);

/* Fills micro-batch `i` (from 0) of a step: inputs and targets [batch_size, *seq], as in
 * plumb_trainer_step. *seq is options.seq and may be made smaller. */
typedef int32_t (*plumb_micro_batch_fn)(void* user, int64_t i, int32_t* inputs, int32_t* targets,
                                        int64_t* seq);
/* Does one step, like plumb_trainer_step, on micro-batches that a callback fills and that may
 * differ in length, for sequences shorter than options.seq. All are filled before the first pass,
 * since the loss is the mean over all targets; a micro-batch may have no target. The first one of
 * each length takes longer, because its program is compiled.
 * Errors: those of plumb_trainer_step. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_step_with_callback(plumb_trainer* trainer,
                                                                        plumb_micro_batch_fn fill,
                                                                        void* user,
                                                                        plumb_step_info* info,
                                                                        plumb_error** error);

/* Does steps until the recipe's max_steps, unless a callback or plumb_trainer_cancel ends the run.
 * `step` may be NULL.
 * Errors: those of plumb_trainer_step; PLUMB_STATUS_CANCELLED. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_run(plumb_trainer* trainer,
                                                         plumb_batch_fn batch, plumb_step_fn step,
                                                         void* user, plumb_error** error);
/* Ends plumb_trainer_run before its next step; without a run, the next one ends at once.
 * Thread-safety: any thread, and signal handlers. */
PLUMB_API void plumb_trainer_cancel(plumb_trainer* trainer);

/* Returns the gradient of the last step's mean loss for the i-th parameter, before clipping, summed
 * over units and ranks. Valid until the next step. Otherwise like plumb_model_tensor.
 * Errors: PLUMB_STATUS_OUT_OF_RANGE; PLUMB_STATUS_FAILED_PRECONDITION before the first step, and
 * for a parameter that a rule freezes. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_gradient(const plumb_trainer* trainer,
                                                              int64_t i, plumb_tensor* tensor,
                                                              plumb_error** error);

/* Saves weights, norm states, moments and the number of steps as one safetensors file, which is
 * replaced atomically.
 * Errors: PLUMB_STATUS_ABORTED if a number is not finite; nothing is written then. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_save(const plumb_trainer* trainer,
                                                          const char* path, plumb_error** error);
/* Loads a file of plumb_trainer_save into a trainer of the same model, which then continues to the
 * same bits as the one that was saved. Logs a warning if the file describes the model differently.
 * Errors: those of plumb_model_load, also if its recipe froze other tensors or gave them other
 * optimizers; nothing has changed then. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_load(plumb_trainer* trainer, const char* path,
                                                          plumb_error** error);

/* Returns the learning rate of the next step. */
PLUMB_API double plumb_trainer_learning_rate(const plumb_trainer* trainer);
/* Multiplies the scheduled learning rate by `scale` (initially 1) from now on. The scale is not
 * saved.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT for a scale that is negative or not finite. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_scale_learning_rate(plumb_trainer* trainer,
                                                                         double scale,
                                                                         plumb_error** error);
/* Checks that all weights, moments and norm states are finite: an update may overflow although its
 * gradient was finite. Reads all of them.
 * Errors: PLUMB_STATUS_ABORTED with the name of the first one that is not. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_check(const plumb_trainer* trainer,
                                                           plumb_error** error);

/* State that a trainer holds between steps, tensor by tensor, for a host that stores it in its own
 * files. Writing all of it back and calling plumb_trainer_set_steps continues to the same bits. */
enum {
  PLUMB_STATE_MODEL = 0, /* weights, indexed as by plumb_model_tensor, then norms' buffers */
  /* Optimizer states (AdamW: "m.NAME" and "v.NAME" of each weight that is not frozen), then
   * averages ("ema.NAME" of each weight). */
  PLUMB_STATE_OPTIMIZER = 1
};
/* Returns the number of tensors of a kind; 0 for an unknown kind. */
PLUMB_API int64_t plumb_trainer_state_count(const plumb_trainer* trainer, int32_t kind);
/* Returns the i-th tensor, like plumb_model_tensor; it may be written to between steps. `data` is
 * NULL for a matrix that is trained in bf16. Names and data live as long as the trainer.
 * Errors: PLUMB_STATUS_OUT_OF_RANGE beyond the last one. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_state(const plumb_trainer* trainer,
                                                           int32_t kind, int64_t i,
                                                           plumb_tensor* tensor,
                                                           plumb_error** error);
/* Copies the elements [begin, begin + count) of a state tensor to `to`. Includes matrices trained
 * in bf16, whose f32 values are exact except for payloads of NaN.
 * Errors: PLUMB_STATUS_OUT_OF_RANGE. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_read_state(const plumb_trainer* trainer,
                                                                int32_t kind, int64_t i,
                                                                int64_t begin, int64_t count,
                                                                float* to, plumb_error** error);
/* Copies `from` to these elements. Errors: those of plumb_trainer_read_state. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_write_state(plumb_trainer* trainer,
                                                                 int32_t kind, int64_t i,
                                                                 int64_t begin, int64_t count,
                                                                 const float* from,
                                                                 plumb_error** error);
/* Sets the number of completed steps, from which the schedule, AdamW's bias correction and
 * max_steps continue.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT for a negative number, or more than 2^53. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_set_steps(plumb_trainer* trainer,
                                                               int64_t steps, plumb_error** error);

/* Lets rank 0 write the state of all ranks, to load it. All ranks call it. Rank 0 calls `use`, in
 * which it writes states, loads and sets steps as if it were alone. Afterwards all ranks have its
 * states, its number of steps and its scale of the learning rate. Without a communicator it only
 * calls `use`. Steps are not allowed in it. To read or save states, a rank needs no other.
 * Errors: PLUMB_STATUS_CANCELLED on all ranks if `use` returns nonzero. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_share_states(plumb_trainer* trainer,
                                                                  int32_t (*use)(void* user),
                                                                  void* user, plumb_error** error);

enum {
  PLUMB_PROBE_ACTIVATION = 0,
  /* gradient of the step's loss with respect to an activation of a unit */
  PLUMB_PROBE_GRADIENT = 1,
  PLUMB_PROBE_PARAMETER = 2,
  PLUMB_PROBE_PARAMETER_GRADIENT = 3 /* see plumb_trainer_gradient */
};

/* A tensor of a step, with statistics of its finite elements. */
typedef struct plumb_probe {
  uint32_t struct_size;
  int32_t kind;     /* PLUMB_PROBE_ACTIVATION, ... */
  int64_t step;     /* the current step, from 1 */
  const char* name; /* "layers.3.attention.residual", "layers.0.mlp.up.weight" */
  double rms, max /* absolute value */, mean;
  int64_t nonfinite, elements; /* number of NaN or infinite elements; of all elements */
  int32_t dtype;               /* PLUMB_DTYPE_F32, PLUMB_DTYPE_BF16 */
  int32_t rank;
  int64_t shape[4]; /* 1 beyond the rank; activations: [rows, positions, width] */
  const void* data; /* until the callback returns; NULL: a matrix trained in bf16 */
  double norm;      /* L2 norm */
} plumb_probe;
#define PLUMB_PROBE_INIT \
  { sizeof(plumb_probe), 0, 0, NULL, 0.0, 0.0, 0.0, 0, 0, 0, 0, {0, 0, 0, 0}, NULL, 0.0 }

/* Receives the probed tensors during a step, on its thread: activations and gradients as they are
 * computed, in every micro-batch; then, before the update, parameters. If it ends the call, it does
 * so after the step. */
typedef int32_t (*plumb_probe_fn)(void* user, const plumb_probe* probe);

/* Probes step 1, every `every`-th step and steps that diverge, from now on; every 0 turns probes
 * off. `points` are names, in which * and ? are wildcards, with the prefix "grad." for a gradient
 * and "param." for a parameter and its gradient, or groups: "default" (also without names),
 * "attention", "sublayers". Losses and weights stay the same bits. `probe` may be NULL, as
 * plumb_trainer_get_probe also returns the statistics. With several ranks each probes its own
 * units.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT for an unknown point, also one of a frozen parameter. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_probe(plumb_trainer* trainer, int64_t every,
                                                           const char* const* points, int64_t count,
                                                           plumb_probe_fn probe, void* user,
                                                           plumb_error** error);

/* Lists statistics of all points over all micro-batches of the last step, with gradients of the
 * step's mean loss; of a step that diverged, those of its bad micro-batch; none if it was not
 * probed. Points are ordered: activations, their gradients, then each parameter and its gradient.
 * `rank` is 0 and `data` NULL. Names live until plumb_trainer_probe. */
PLUMB_API int64_t plumb_trainer_probes(const plumb_trainer* trainer, plumb_probe* probes,
                                       int64_t capacity);

/* A row of a profile, summed over the profiled steps. */
typedef struct plumb_profile_row {
  uint32_t struct_size;
  int32_t in_graph; /* 1: an op of the step's graph; 0: a stage outside of it */
  const char* name;
  int64_t runs;
  double seconds;
  double flops; /* needed by the op's algorithm; 0 for memory-bound ops */
  double bytes; /* sum over the op's operands; 0 outside of the graph */
} plumb_profile_row;
#define PLUMB_PROFILE_ROW_INIT \
  { sizeof(plumb_profile_row), 0, NULL, 0, 0.0, 0.0, 0.0 }

/* Starts a new profile of the following steps, whose results do not change; on 0 ends it. A step
 * that is probed is one row. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_trainer_profile(plumb_trainer* trainer, int32_t on,
                                                             plumb_error** error);
/* Lists the rows of the profile up to now; none before plumb_trainer_profile. Row 0 is the total
 * ("step", with the number of steps in `runs`); then come the ops, the longest first, the stages,
 * and the rest of the time, "other". Names live until the next call. */
PLUMB_API int64_t plumb_trainer_profile_rows(plumb_trainer* trainer, plumb_profile_row* rows,
                                             int64_t capacity);

/* --- Sampling --------------------------------------------------------------------------------- */

/* Sequences that grow token by token, each with its part of a KV cache.
 * Thread-safety: thread-compatible, except for plumb_session_cancel. A callback may call
 * plumb_session_cancel and functions that take the session const; others fail with
 * PLUMB_STATUS_FAILED_PRECONDITION. */
typedef struct plumb_session plumb_session;

enum { PLUMB_WEIGHTS_F32 = 0, PLUMB_WEIGHTS_BF16 = 1, PLUMB_WEIGHTS_INT8 = 2 };

typedef struct plumb_session_options {
  uint32_t struct_size;
  int32_t sequences; /* number of sequences, 1 (also for 0) to 64 */
  /* Format to compute with: PLUMB_WEIGHTS_F32, ... The converted weights are shared by the model's
   * sessions. */
  int32_t weights;
} plumb_session_options;
#define PLUMB_SESSION_OPTIONS_INIT \
  { sizeof(plumb_session_options), 1, 0 }

/* Creates a session.
 * Errors: PLUMB_STATUS_FAILED_PRECONDITION without weights, and for a bidirectional model;
 * PLUMB_STATUS_INVALID_ARGUMENT; PLUMB_STATUS_RESOURCE_EXHAUSTED. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_session_create(plumb_model* model,
                                                            const plumb_session_options* options,
                                                            plumb_session** session,
                                                            plumb_error** error);
/* Frees a session. */
PLUMB_API void plumb_session_free(plumb_session* session);

/* Appends tokens to a sequence (from 0). A prefix that several sequences of a session share is
 * computed once if they are fed one after the other.
 * Errors: PLUMB_STATUS_OUT_OF_RANGE if the sequence does not exist or would outgrow context_length;
 * PLUMB_STATUS_INVALID_ARGUMENT for no tokens, or an id outside the vocabulary;
 * PLUMB_STATUS_FAILED_PRECONDITION if a norm needs statistics over tokens; PLUMB_STATUS_CANCELLED
 * after plumb_session_cancel. Nothing is appended then. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_session_feed(plumb_session* session, int32_t sequence,
                                                          const int32_t* tokens, int64_t count,
                                                          plumb_error** error);
/* Appends one token, as plumb_session_generate does: a sequence with a full context restarts with
 * the newer half of its tokens, including this one (context_length / 2 of them).
 * Errors: those of plumb_session_feed, but never for a full context. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_session_append(plumb_session* session,
                                                            int32_t sequence, int32_t token,
                                                            plumb_error** error);
/* Appends tokens[s] to each sequence s, in one pass over the weights. `count` is the number of
 * sequences. If tokens[s] is -1, sequence s keeps its tokens and has no logits until it is fed: so
 * sequences may end, and others begin (plumb_session_truncate, plumb_session_feed), between tokens.
 * Errors: those of plumb_session_feed, also for a full sequence without a token. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_session_feed_batch(plumb_session* session,
                                                                const int32_t* tokens,
                                                                int64_t count, plumb_error** error);
/* Returns the logits [vocab_size] of the token after the last one fed, or NULL if none was fed.
 * Valid until the next call on the session. */
PLUMB_API const float* plumb_session_logits(const plumb_session* session, int32_t sequence);
/* Returns the number of tokens in a sequence; -1 if the sequence does not exist. */
PLUMB_API int64_t plumb_session_length(const plumb_session* session, int32_t sequence);
/* Removes all but the first `length` tokens of a sequence. It has no logits until more tokens are
 * fed. If tokens have left a layer's window or a shift's reach that becomes visible again, or a
 * layer is linear attention, the next feed computes the sequence again.
 * Errors: PLUMB_STATUS_OUT_OF_RANGE. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_session_truncate(plumb_session* session,
                                                              int32_t sequence, int64_t length,
                                                              plumb_error** error);

/* Makes the sequence `to` a copy of `from`: tokens, caches and logits, to continue both.
 * Errors: PLUMB_STATUS_OUT_OF_RANGE. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_session_copy(plumb_session* session, int32_t from,
                                                          int32_t to, plumb_error** error);

/* Options of plumb_session_generate. NULL and the initializer sample from the model's distribution
 * until the context is full. */
typedef struct plumb_sample_options {
  uint32_t struct_size;
  int64_t max_tokens; /* max tokens to draw, also beyond the context; 0: until it is full */
  int64_t top_k;      /* sample from the k most likely tokens; 0: from all */
  int64_t vocabulary; /* only ids below this are drawn; 0: all of the model's */
  /* Divides the logits. 0: takes the most likely token, and ignores top_k and top_p. */
  double temperature;
  double top_p; /* sample from the fewest likeliest tokens with this total probability; 0: 1 */
  uint64_t seed, index; /* random stream; samples of one seed differ by their index */
  int64_t drawn;        /* number of tokens already drawn from the stream */
  /* Drawing one of these ends the text; it is not passed to the callback. */
  const int32_t* end_tokens;
  int64_t end_token_count;
} plumb_sample_options;
#define PLUMB_SAMPLE_OPTIONS_INIT \
  { sizeof(plumb_sample_options), 0, 0, 0, 1.0, 1.0, 0, 0, 0, NULL, 0 }

/* Reasons why plumb_session_generate ended. */
enum {
  PLUMB_FINISH_NONE = 0,   /* it failed, or was not called */
  PLUMB_FINISH_STOP = 1,   /* an end token was drawn, or the callback ended the call */
  PLUMB_FINISH_LENGTH = 2, /* max_tokens were drawn */
  PLUMB_FINISH_CONTEXT = 3 /* the context is full, and max_tokens is 0 */
};

/* Receives each token as it is drawn. */
typedef int32_t (*plumb_token_fn)(void* user, int32_t token);

/* Draws tokens after those of a sequence, like `plumb sample`: passes each token to `token` and
 * appends it (plumb_session_append). The last one is passed but not appended: when `token` ends the
 * call, max_tokens are drawn or, if max_tokens is 0, the context is full. Draw i (from 0, or from
 * options->drawn) depends on logits, options and i only.
 * Errors: PLUMB_STATUS_FAILED_PRECONDITION for a sequence without logits; PLUMB_STATUS_CANCELLED if
 * `token` or plumb_session_cancel ended it. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_session_generate(plumb_session* session,
                                                              int32_t sequence,
                                                              const plumb_sample_options* options,
                                                              plumb_token_fn token, void* user,
                                                              plumb_error** error);
/* Returns the reason why the last plumb_session_generate ended, PLUMB_FINISH_STOP, ... */
PLUMB_API int32_t plumb_session_finish_reason(const plumb_session* session);
/* Ends plumb_session_generate before its next token, and plumb_session_feed before its next 512
 * tokens, of which none is appended then; if none of them is running, the next one ends at once.
 * Thread-safety: any thread, and signal handlers. */
PLUMB_API void plumb_session_cancel(plumb_session* session);

/* Starts a new profile of the passes that feed tokens, and drops the previous one; if `on` is 0,
 * ends the profile, whose rows stay readable. Results do not change. Each plumb_session_feed,
 * plumb_session_feed_batch and plumb_session_append is a step, and so is each token that
 * plumb_session_generate appends.
 * Errors: PLUMB_STATUS_FAILED_PRECONDITION inside a callback of the session. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_session_profile(plumb_session* session, int32_t on,
                                                             plumb_error** error);
/* Lists the rows, as for trainers. */
PLUMB_API int64_t plumb_session_profile_rows(plumb_session* session, plumb_profile_row* rows,
                                             int64_t capacity);

/* --- Evaluation ------------------------------------------------------------------------------- */

/* Computes the loss, logits and gradients of whole sequences, without changing the model.
 * Thread-safety: thread-compatible, except for plumb_evaluator_cancel. */
typedef struct plumb_evaluator plumb_evaluator;

typedef struct plumb_evaluator_options {
  uint32_t struct_size;
  int32_t weights; /* see plumb_session_options */
  int64_t rows;    /* number of sequences in a batch; 0: 1 */
  int64_t seq;     /* max tokens of a sequence; 0: the model's context_length */
  int32_t logits;  /* 1: compute them; needs memory for rows x seq x vocab_size floats */
  /* 1: compute them, with f32 weights. A run is then the forward and backward pass of a training
   * step: norms over tokens use the statistics of these tokens. Nothing is dropped out. */
  int32_t gradients;
} plumb_evaluator_options;
#define PLUMB_EVALUATOR_OPTIONS_INIT \
  { sizeof(plumb_evaluator_options), 0, 1, 0, 0, 0 }

/* Creates an evaluator.
 * Errors: PLUMB_STATUS_FAILED_PRECONDITION without weights; PLUMB_STATUS_INVALID_ARGUMENT;
 * PLUMB_STATUS_RESOURCE_EXHAUSTED. */
PLUMB_NODISCARD PLUMB_API plumb_status
plumb_evaluator_create(plumb_model* model, const plumb_evaluator_options* options,
                       plumb_evaluator** evaluator, plumb_error** error);
/* Frees an evaluator. */
PLUMB_API void plumb_evaluator_free(plumb_evaluator* evaluator);

/* Computes the memory of an evaluator in bytes, without allocating it. Excludes the weights, and
 * matrices that are converted to another format.
 * Errors: those of plumb_evaluator_create for the options. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_evaluator_plan(const plumb_model* model,
                                                            const plumb_evaluator_options* options,
                                                            int64_t* bytes, plumb_error** error);

/* Runs one pass over inputs [rows, n / rows] and the target of each, the token after it or -1 for
 * none. Rows of a bidirectional model may end in inputs of -1, padding that no token sees. `*loss`
 * becomes the mean over the targets, in nats. `targets` and `loss` may both be NULL if only logits
 * are wanted. Norms over tokens use their running statistics, unless options.gradients is 1.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT; PLUMB_STATUS_FAILED_PRECONDITION if neither a loss nor
 * logits are wanted; PLUMB_STATUS_CANCELLED. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_evaluator_run(plumb_evaluator* evaluator,
                                                           const int32_t* inputs,
                                                           const int32_t* targets, int64_t n,
                                                           double* loss, plumb_error** error);
/* Sets the token types of the inputs of all further runs, which must then have n inputs; n 0: all
 * have type 0, the initial state.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT for a type outside 0 .. token_types - 1. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_evaluator_set_types(plumb_evaluator* evaluator,
                                                                 const int32_t* types, int64_t n,
                                                                 plumb_error** error);
/* Returns the logits [rows, n / rows, vocab_size] of the last run, valid until the next one; NULL
 * if there was no run or options.logits is 0. */
PLUMB_API const float* plumb_evaluator_logits(const plumb_evaluator* evaluator);
/* Returns the loss of each target of the last run in nats, [rows, n / rows], 0 where there is none,
 * valid until the next run; NULL if there was no run or it had no targets. */
PLUMB_API const float* plumb_evaluator_losses(const plumb_evaluator* evaluator);
/* Ends plumb_evaluator_run before its next op; without a run, the next one ends at once.
 * Thread-safety: any thread, and signal handlers. */
PLUMB_API void plumb_evaluator_cancel(plumb_evaluator* evaluator);
/* Returns the gradient of the last run's loss for the i-th parameter, valid until the next run.
 * Otherwise like plumb_model_tensor.
 * Errors: PLUMB_STATUS_OUT_OF_RANGE; PLUMB_STATUS_FAILED_PRECONDITION without a run, or if
 * options.gradients is 0. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_evaluator_gradient(const plumb_evaluator* evaluator,
                                                                int64_t i, plumb_tensor* tensor,
                                                                plumb_error** error);
/* Probes each run from now on, with `points` and `probe` as in plumb_trainer_probe, and step 0;
 * probe NULL turns it off. Without options.gradients there are points of activations only, such as
 * the hidden states "layers.3.residual"; some activations of the training program are fused into
 * others and are no points.
 * Errors: PLUMB_STATUS_INVALID_ARGUMENT. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_evaluator_probe(plumb_evaluator* evaluator,
                                                             const char* const* points,
                                                             int64_t count, plumb_probe_fn probe,
                                                             void* user, plumb_error** error);

/* --- Runs and studies ------------------------------------------------------------------------- */

/* The functions below write the same files, to the byte, as the command line does with the same
 * models, data, recipe and seeds. Paths are relative to the working directory. */

enum {
  /* Flag: the average of the weights (ema_decay of the recipe) instead of the weights. */
  PLUMB_RUN_AVERAGE = 1
};

/* Opens a run, trained or imported, or one of its checkpoints: its model with the weights of the
 * newest checkpoint, and its tokenizer, whose end tokens are those of the run. The weights are
 * mapped: they are read when they are used. `flags` is 0 or PLUMB_RUN_AVERAGE. `tokenizer` and
 * `step` may be NULL. *step becomes the number of completed steps, 0 for an imported run.
 * Errors: PLUMB_STATUS_NOT_FOUND if there is no such run, no average, or a norm is missing;
 * PLUMB_STATUS_DATA_LOSS for damaged files; those of plumb_tokenizer_from_directory, unless
 * `tokenizer` is NULL. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_run_open(plumb_runtime* runtime, const char* path,
                                                      uint32_t flags, plumb_model** model,
                                                      plumb_tokenizer** tokenizer, int64_t* step,
                                                      plumb_error** error);

/* A step of plumb_run_train. Strings live as long as the callback. */
typedef struct plumb_run_step {
  uint32_t struct_size;
  int64_t step;           /* number of completed steps */
  int64_t max_steps;      /* number of steps of the whole run */
  double loss;            /* mean over the targets of the step, in nats, before the update */
  double learning_rate;   /* peak of the tensors without a rule */
  double grad_norm;       /* global norm before clipping */
  int64_t tokens;         /* number of targets */
  double seconds;         /* duration of the step */
  double val_loss;        /* NaN unless the step ended with a validation */
  const char* checkpoint; /* path of the checkpoint written after the step, or "" */
  /* Lines about a loss spike or a diverged step since the last call, or "". */
  const char* incidents;
} plumb_run_step;
#define PLUMB_RUN_STEP_INIT \
  { sizeof(plumb_run_step), 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL }

/* Training of a run. */
typedef struct plumb_run_training {
  uint32_t struct_size;
  int32_t resume;              /* 1: continues the run, or begins it if there is none yet */
  const char* model;           /* file with a plumb.v1.Model; NULL if the run exists */
  const char* data;            /* file to train on; NULL if the run exists */
  const char* recipe;          /* file with a plumb.v1.Train; NULL: all defaults */
  const char* out;             /* directory of the run. Required. */
  const char* init;            /* run or checkpoint to start from; NULL: weights are drawn */
  const char* const* settings; /* fields to set: "model.n_layer=4", "train.max_steps=200" */
  int64_t settings_count;
  int64_t probe_every;             /* steps between probes, written to probes.jsonl; 0: none */
  const char* const* probe_points; /* as in `plumb train --probe-point`; none: the default points */
  int64_t probe_points_count;
  int64_t stop_at; /* step at which to stop with a checkpoint; 0: the run's last */
  /* Called after each step; NULL: not. If it ends the call, the run stops with a checkpoint. */
  int32_t (*on_step)(void* user, const plumb_run_step* step);
  void* user;
} plumb_run_training;
#define PLUMB_RUN_TRAINING_INIT                                                                \
  {                                                                                            \
    sizeof(plumb_run_training), 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, 0, 0, NULL, \
        NULL                                                                                   \
  }

/* Trains a run like `plumb train`. Warnings go to the runtime's log.
 * Errors: PLUMB_STATUS_CANCELLED if on_step stopped it;
 * PLUMB_STATUS_ABORTED if a step diverged, with the first tensor that is not finite;
 * PLUMB_STATUS_ALREADY_EXISTS for a directory that has a run, without `resume`;
 * PLUMB_STATUS_INVALID_ARGUMENT with a location for errors in files;
 * PLUMB_STATUS_RESOURCE_EXHAUSTED. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_run_train(plumb_runtime* runtime,
                                                       const plumb_run_training* training,
                                                       plumb_error** error);

/* --- Studies ---------------------------------------------------------------------------------- */

/* Progress of a study. */
typedef struct plumb_study_progress {
  uint32_t struct_size;
  int64_t runs;        /* number of runs of the study */
  int64_t ended;       /* number of them that have ended */
  int64_t reused;      /* number of those that had ended before, here or in the store */
  int64_t steps;       /* number of steps of runs that are trained here */
  int64_t steps_taken; /* number of those that have been taken */
} plumb_study_progress;
#define PLUMB_STUDY_PROGRESS_INIT \
  { sizeof(plumb_study_progress), 0, 0, 0, 0, 0 }

typedef struct plumb_study_options {
  uint32_t struct_size;
  int32_t overwrite; /* 1: runs of `out` whose inputs have changed are trained again */
  const char* out;   /* directory of the study. Required. */
  const char* store; /* directory of runs that studies share; NULL: none */
  /* Options of the study's runtimes, one for each run that is trained at the same time; `threads`
   * is the number that they divide. NULL: all defaults. Messages go to its log. */
  const plumb_runtime_options* runtime;
  /* Norms that are linked into the program; they are called on several threads at once. */
  const struct plumb_norm_plugin* const* norms;
  int64_t norms_count;
  const char* command; /* command that continues the study, for provenance.json; NULL: "" */
  /* Called several times a second on the calling thread during the training; NULL: not. */
  int32_t (*on_progress)(void* user, const plumb_study_progress* progress);
  void* user;
} plumb_study_options;
#define PLUMB_STUDY_OPTIONS_INIT \
  { sizeof(plumb_study_options), 0, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL }

/* Trains the runs of a study that `options->out` does not have yet and writes its tables and its
 * report, like `plumb compare`. `study` is a file with a plumb.v1.Study.
 * Errors: PLUMB_STATUS_CANCELLED if on_progress stopped it; the same call continues it;
 * PLUMB_STATUS_ALREADY_EXISTS if another process writes into the directory;
 * PLUMB_STATUS_INVALID_ARGUMENT with a location for errors in files, or for a directory that
 * holds another study or, without `overwrite`, runs that had other inputs. */
PLUMB_NODISCARD PLUMB_API plumb_status plumb_study_run(const char* study,
                                                       const plumb_study_options* options,
                                                       plumb_error** error);

/* --- Sizes ------------------------------------------------------------------------------------ */

/* No struct has padding at its end, where a later field could read undefined bytes of an old
 * program. A struct grows at its end, and its size here with it. */
#if UINTPTR_MAX == 0xffffffffffffffffu
PLUMB_STATIC_ASSERT(sizeof(plumb_allocator) == 32, "plumb_allocator");
PLUMB_STATIC_ASSERT(sizeof(plumb_executor) == 24, "plumb_executor");
PLUMB_STATIC_ASSERT(sizeof(plumb_runtime_options) == 80, "plumb_runtime_options");
PLUMB_STATIC_ASSERT(sizeof(plumb_plugin_call) == 40, "plumb_plugin_call");
PLUMB_STATIC_ASSERT(sizeof(plumb_model_info) == 80, "plumb_model_info");
PLUMB_STATIC_ASSERT(sizeof(plumb_explain_options) == 40, "plumb_explain_options");
PLUMB_STATIC_ASSERT(sizeof(plumb_work) == 24, "plumb_work");
PLUMB_STATIC_ASSERT(sizeof(plumb_tensor_in_file) == 32, "plumb_tensor_in_file");
PLUMB_STATIC_ASSERT(sizeof(plumb_tensor) == 64, "plumb_tensor");
PLUMB_STATIC_ASSERT(sizeof(plumb_tokenizer_info) == 56, "plumb_tokenizer_info");
PLUMB_STATIC_ASSERT(sizeof(plumb_communicator) == 96, "plumb_communicator");
PLUMB_STATIC_ASSERT(sizeof(plumb_loss) == 96, "plumb_loss");
PLUMB_STATIC_ASSERT(sizeof(plumb_trainer_options) == 64, "plumb_trainer_options");
PLUMB_STATIC_ASSERT(sizeof(plumb_trainer_memory) == 72, "plumb_trainer_memory");
PLUMB_STATIC_ASSERT(sizeof(plumb_step_info) == 56, "plumb_step_info");
PLUMB_STATIC_ASSERT(sizeof(plumb_probe) == 120, "plumb_probe");
PLUMB_STATIC_ASSERT(sizeof(plumb_profile_row) == 48, "plumb_profile_row");
PLUMB_STATIC_ASSERT(sizeof(plumb_session_options) == 12, "plumb_session_options");
PLUMB_STATIC_ASSERT(sizeof(plumb_sample_options) == 88, "plumb_sample_options");
PLUMB_STATIC_ASSERT(sizeof(plumb_evaluator_options) == 32, "plumb_evaluator_options");
PLUMB_STATIC_ASSERT(sizeof(plumb_run_step) == 88, "plumb_run_step");
PLUMB_STATIC_ASSERT(sizeof(plumb_run_training) == 112, "plumb_run_training");
PLUMB_STATIC_ASSERT(sizeof(plumb_study_progress) == 48, "plumb_study_progress");
PLUMB_STATIC_ASSERT(sizeof(plumb_study_options) == 72, "plumb_study_options");
#endif

#ifdef __cplusplus
}
#endif

#endif /* PLUMB_H_ */
