/* SPDX-License-Identifier: Apache-2.0 */
/* plumb.h: describe, train and sample transformers from a host program. C99 and C++.
 *
 * The rules, which hold for every function:
 *
 * - Handles are opaque and may be freed in any order: a model keeps its runtime, a trainer and a
 *   session their model. Freeing NULL does nothing. A handle is freed once, while no call uses it.
 * - A function that can fail returns a plumb_status, PLUMB_OK (0) or another, and with one, if its
 *   last argument is not NULL, an error there, which the caller frees. Outputs are then as before.
 * - No function ends the process, installs a signal handler, prints, changes the locale or the
 *   floating-point mode (which is a new process's in callbacks), or throws. A callback must not
 *   throw either. Too little memory for a model is an error, but the process may end where an
 *   allocation of a few kilobytes fails. A save that meets a limit of file size or a pipe without a
 *   reader is an error: SIGXFSZ and SIGPIPE do not reach the host. So is, after two seconds, reading
 *   a pipe that nobody writes to.
 * - A call wants a stack of 256 KiB where formulas nest deeply; 128 KiB do for what people write.
 * - Options are passed by pointer: NULL means all defaults, as 0 does in each field. `struct_size`
 *   is sizeof the struct, with which an old program runs on a new plumb.
 * - A number of elements, or a size, that no memory can hold is PLUMB_INVALID_ARGUMENT, before any
 *   element is read.
 * - Texts are UTF-8. A `const char*` argument ends with 0; where a length is passed it need not.
 * - A text that is returned goes to `buffer` of `capacity` bytes, cut and ended with 0, and
 *   `*needed` (may be NULL) is its length without the 0, so that capacity 0 asks for the length.
 * - Thread-safety is said by handle below. Different handles are independent of each other, but
 *   that no session may run while a trainer of its model does.
 */
#ifndef PLUMB_H_
#define PLUMB_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLUMB_API __attribute__((visibility("default")))
#define PLUMB_USE __attribute__((warn_unused_result))

/* --- Version ---------------------------------------------------------------------------------- */

/* What this header is: functions are added, and fields at the ends of structs, but none changes. */
#define PLUMB_ABI_VERSION 1u

/* That of the library, which may be newer than the header's. */
PLUMB_API uint32_t plumb_abi_version(void);
/* "0.1.0"; static. */
PLUMB_API const char* plumb_version(void);

/* --- Errors ----------------------------------------------------------------------------------- */

/* The numbers of absl::StatusCode and of gRPC. */
#ifndef PLUMB_STATUS_DEFINED /* by plumb/norm_plugin.h, alike */
#define PLUMB_STATUS_DEFINED
typedef int32_t plumb_status;
enum {
  PLUMB_OK = 0,
  PLUMB_CANCELLED = 1,           /* by a callback, or plumb_trainer_cancel, plumb_session_cancel */
  PLUMB_INVALID_ARGUMENT = 3,    /* a mistake in a text, an option or an argument */
  PLUMB_NOT_FOUND = 5,           /* a file, a plugin */
  PLUMB_RESOURCE_EXHAUSTED = 8,  /* memory, the disk, a limit of the process */
  PLUMB_FAILED_PRECONDITION = 9, /* not in this state of the handle */
  PLUMB_OUT_OF_RANGE = 11,       /* an index, or a sequence longer than the context */
  PLUMB_UNIMPLEMENTED = 12,
  PLUMB_INTERNAL = 13 /* a mistake of plumb's */
};
#endif
enum {
  PLUMB_ALREADY_EXISTS = 6,
  PLUMB_PERMISSION_DENIED = 7,
  PLUMB_ABORTED = 10,     /* a training step diverged */
  PLUMB_UNAVAILABLE = 14, /* a failure of the system */
  PLUMB_DATA_LOSS = 15    /* a damaged file */
};

/* Immutable; any thread. */
typedef struct plumb_error plumb_error;

PLUMB_API plumb_status plumb_error_code(const plumb_error* error);
/* All of it, for people: "model.pbtxt:3:1: ...". Lives as long as the error. */
PLUMB_API const char* plumb_error_message(const plumb_error* error);
/* 1 and the place that the message begins with, if it does, else 0. `*file` lives as long as the
 * error; lines and columns count from 1. Each may be NULL. */
PLUMB_API int plumb_error_location(const plumb_error* error, const char** file, int32_t* line,
                                   int32_t* column);
PLUMB_API void plumb_error_free(plumb_error* error);

/* --- Runtime ---------------------------------------------------------------------------------- */

/* Plugins, placements and threads. Calls on one runtime, or that create something with it, do not
 * overlap. */
typedef struct plumb_runtime plumb_runtime;

enum {
  /* Flag: PLUMB_PLUGIN_PATH, PLUMB_PLACEMENT_PATH and OMP_NUM_THREADS are not read. */
  PLUMB_NO_ENVIRONMENT = 1,
  /* Flag: norms get copies of their operands between canaries and unreadable pages. One that writes
   * outside of them fails the call, PLUMB_FAILED_PRECONDITION, with its name and the operand's; or,
   * far outside, it faults, and plumb_plugin_call_here says where. Slow; results are the same. */
  PLUMB_GUARD_PLUGINS = 2,
  /* Flag: from now on, in the whole process, a thread that calls a norm and has no alternate signal
   * stack (sigaltstack) gets one, so that the host's handler with SA_ONSTACK can tell of a norm
   * that overflowed the stack. */
  PLUMB_SIGNAL_STACKS = 4
};
#ifndef PLUMB_LOG_DEFINED /* by plumb/norm_plugin.h, alike */
#define PLUMB_LOG_DEFINED
enum { PLUMB_LOG_INFO = 0, PLUMB_LOG_WARNING = 1, PLUMB_LOG_ERROR = 2 };
#endif

/* A line for the host's log, without a line break; on the calling thread, before the call that it
 * is about returns. */
typedef void (*plumb_log_fn)(void* user, int32_t level, const char* message);

/* The host's memory, for all that has the size of a model: weights, gradients, moments, caches,
 * workspaces. Names, plans and messages are from malloc. Called by the thread that is in a call,
 * and by any that frees. A failure makes the call fail with PLUMB_RESOURCE_EXHAUSTED. */
typedef struct {
  size_t struct_size;
  void* context;
  /* `alignment` is a power of two that divides `size`. NULL: there is none. */
  void* (*allocate)(void* context, size_t size, size_t alignment);
  void (*release)(void* context, void* memory, size_t size);
} plumb_allocator;

/* The host's threads. `run` calls task(argument, i) once for each i in 0 .. n - 1 (n: at most
 * options.threads), on any threads, the calling one included, and returns when all are done; it
 * must not run two with the same i. Results are the same bits whatever the threads. */
typedef struct {
  size_t struct_size;
  void* context;
  void (*run)(void* context, int32_t n, void (*task)(void* argument, int32_t i), void* argument);
} plumb_executor;

typedef struct {
  size_t struct_size;
  uint32_t flags;
  int32_t threads;  /* of a call, at most; 0: one for each processor that the process may use */
  plumb_log_fn log; /* NULL: what there would be to say is not said */
  void* log_user;
  const char* gemm; /* the GEMM engine: "auto" (NULL), "onednn", "small", "pairs", "widen" */
  const plumb_allocator*
      allocator;                  /* NULL: plumb's own; copied, but not what `context` points to */
  const plumb_executor* executor; /* the same. Threads of plumb's own are shared by all runtimes of
                                     a process, begin with the first call that has work for them,
                                     and end with the last handle on a runtime */
  /* Absolute directories, ':' between them, that are searched for norms and for placements before
   * those of the environment and of the installed libplumb.so; NULL: none. */
  const char* plugin_path;
  const char* placement_path;
  /* Where plumb is installed, for a program that has it linked in: its norms and placements are
   * looked for below this directory. NULL: where libplumb.so lies. */
  const char* install_prefix;
} plumb_runtime_options;

/* Errors: PLUMB_INVALID_ARGUMENT for an engine that there is not; PLUMB_NOT_FOUND for "onednn"
 * where oneDNN cannot be loaded. "auto" loads it when a product first needs it, and does without,
 * with a warning, where it cannot.
 *
 * After fork() the child creates its own runtime: calls on handles of its parent's fail with
 * PLUMB_FAILED_PRECONDITION; they may be freed. */
PLUMB_USE PLUMB_API plumb_status plumb_runtime_create(const plumb_runtime_options* options,
                                                      plumb_runtime** runtime, plumb_error** error);
PLUMB_API void plumb_runtime_free(plumb_runtime* runtime);
/* Of a call, at most. */
PLUMB_API int32_t plumb_runtime_threads(const plumb_runtime* runtime);

/* Registers the norm of a plugin's file, or one that is linked into the program: a
 * `const plumb_norm_plugin*` (plumb/norm_plugin.h), which outlives the runtime. Norms on the plugin
 * path need neither. Errors: PLUMB_NOT_FOUND, PLUMB_FAILED_PRECONDITION for a file that is no
 * plugin or a norm that breaks its rules, PLUMB_ALREADY_EXISTS for a second one of the same id. */
PLUMB_USE PLUMB_API plumb_status plumb_plugin_register(plumb_runtime* runtime,
                                                       const void* norm_plugin,
                                                       plumb_error** error);
/* The same of all norms in a plugin's file, which runs with all rights of the process. */
PLUMB_USE PLUMB_API plumb_status plumb_plugin_load(plumb_runtime* runtime, const char* path,
                                                   plumb_error** error);

/* A norm as it describes itself; its plugin is loaded if need be. JSON; these fields stay, and more
 * may come:
 *
 *   id, version, vendor, license, doc, path    path "": linked into the program
 *   attributes  [{name, type, range, default, required, doc}]; range "": any value
 *   parameters  [{name, shape, init, offset, doc}], with default attributes; none where it needs
 *               some; shape as text, "[dim]"; offset: is added to it before use
 *   buffers     [the same], that are kept from training for evaluation
 *   traits      ["identity", "cross-row", "cross-row in evaluation", "scale-invariant",
 *               "shift-invariant", "approximate gradient", "in place", "residual extension"]
 *   dtypes      ["f32", "bf16", "f64"]
 *
 * Errors: PLUMB_NOT_FOUND, with a suggestion; as plumb_plugin_load. plumb_runtime_describe lists
 * all norms that there are. */
PLUMB_USE PLUMB_API plumb_status plumb_plugin_describe(plumb_runtime* runtime, const char* id,
                                                       char* buffer, size_t capacity,
                                                       size_t* needed, plumb_error** error);

/* A call of a norm's function: for a host that wants to say so when the process ends unexpectedly,
 * by a fault, by exit(), or by waiting for ever. The texts live as long as the call. */
typedef struct {
  size_t struct_size;
  const char* function; /* "forward"; "dlopen": the constructors of its file */
  const char* norm;     /* its id, or those of a file that is being loaded */
  const char* file;     /* "": linked into the program */
  uint64_t number;      /* of the thread's calls; plumb_plugin_calls only */
  int32_t thread;       /* from 0; the same */
  int32_t read_only;   /* 1: the address is in what may only be read; plumb_plugin_call_here only */
  const char* operand; /* that the address lies in or near, "saved"; "": none */
  int64_t bytes; /* before its first byte (negative), behind its last one (from 0), or in it */
} plumb_plugin_call;

/* 1 and the calling thread's call, 0 if it is in none; with PLUMB_GUARD_PLUGINS also where
 * `address` (may be NULL) lies that it had no right to. Any thread, and signal handlers. */
PLUMB_API int32_t plumb_plugin_call_here(const void* address, plumb_plugin_call* call);
/* The calls that all threads of the process are in, at most `capacity`; returns how many. Each
 * element's struct_size is that of calls[0]. Any thread, and signal handlers. */
PLUMB_API int32_t plumb_plugin_calls(plumb_plugin_call* calls, int32_t capacity);

/* The engines that multiply matrices: equal texts, equal rounding. Loads oneDNN, so that
 * plumb_runtime_describe has it. */
PLUMB_USE PLUMB_API plumb_status plumb_runtime_gemm(plumb_runtime* runtime, char* buffer,
                                                    size_t capacity, size_t* needed,
                                                    plumb_error** error);

enum { PLUMB_SPEED_GEMM_F32 = 0, PLUMB_SPEED_GEMM_BF16 = 1, PLUMB_SPEED_READ = 2 };

/* Measures what the machine could do, on the runtime's threads: floating-point operations a second
 * of one product of [2048, 2048] matrices by oneDNN, packed beforehand; or bytes a second of one
 * pass that only reads 512 MiB. What plumb_model_work says may be held against it. Takes a moment,
 * and the memory, which the runtime's handle keeps for the next time. Errors: PLUMB_UNIMPLEMENTED
 * where the machine has no such product. */
PLUMB_USE PLUMB_API plumb_status plumb_machine_speed(plumb_runtime* runtime, int32_t what,
                                                     double* per_second, plumb_error** error);

/* What the runtime runs on, what it found and refused, and what would go wrong or slow: what `plumb
 * doctor` prints. JSON; null where the system does not say. Loads nothing, and runs no plugin's
 * code. Free memory and the like differ from call to call, so leave some room beyond *needed. These
 * fields stay, and more may come:
 *
 *   plumb           {version, c_abi, norm_abi}
 *   processor       {name, vendor, family, model, instruction_sets [{name, has, used}], kernels,
 *                   gemm {engine, f32, bf16}}; used: by plumb's own kernels
 *   onednn          {wanted, state, file, version, isa, problem}; state: "loaded", "not needed
 *                   yet", "refused"
 *   libraries       {NAME: version}
 *   openmp          [file], of the OpenMP runtimes in the process
 *   threads         {machine, affinity, quota, available, used, because}
 *   plugins         {directories [{path, from, problem, norms}], others, dropped}; in the order of
 *                   the search; norms and others [{id, version, file, problem, shadowed}], version
 *                   null for one that is not loaded, shadowed: a file before it has the same norm;
 *                   dropped: entries of PLUMB_PLUGIN_PATH, and why
 *   placements      {directories [{path, problem, names}]}
 *   environment     [{name, value, problem}], of what is set
 *   memory          {limit, available, limited_by, machine, control_group, ulimit_v, ulimit_d,
 *                   stack, huge_pages}, in bytes; null: no limit
 *   disk            {directory, free}, of the current directory
 *   floating_point  {rounding, flush_to_zero, denormals_are_zero}, of the calling thread
 *   problems        [{fatal, what, do}]; fatal: plumb is of no use with it */
PLUMB_USE PLUMB_API plumb_status plumb_runtime_describe(plumb_runtime* runtime, char* buffer,
                                                        size_t capacity, size_t* needed,
                                                        plumb_error** error);

/* --- Descriptions of models --------------------------------------------------------------------
 */

/* A model's description (plumb.v1.Model) in protobuf text format. One thread at a time. */
typedef struct plumb_spec plumb_spec;

/* Errors: PLUMB_NOT_FOUND; PLUMB_INVALID_ARGUMENT with a location, for all mistakes of syntax at
 * once. `name` stands for the file in messages. */
PLUMB_USE PLUMB_API plumb_status plumb_spec_from_file(const char* path, plumb_spec** spec,
                                                      plumb_error** error);
PLUMB_USE PLUMB_API plumb_status plumb_spec_from_text(const char* text, size_t size,
                                                      const char* name, plumb_spec** spec,
                                                      plumb_error** error);
/* ("n_layer", "8"), ("norm[0].attr[0].number", "1e-6"). */
PLUMB_USE PLUMB_API plumb_status plumb_spec_set(plumb_spec* spec, const char* field,
                                                const char* value, plumb_error** error);
PLUMB_USE PLUMB_API plumb_status plumb_spec_text(const plumb_spec* spec, char* buffer,
                                                 size_t capacity, size_t* needed,
                                                 plumb_error** error);
PLUMB_API void plumb_spec_free(plumb_spec* spec);

/* --- Models ----------------------------------------------------------------------------------- */

/* A model and its weights. Functions that take it const, and sessions and evaluators on it, which
 * may be created meanwhile, may run on several threads at once; the others exclude all of them. */
typedef struct plumb_model plumb_model;

typedef struct {
  size_t struct_size;
  int64_t n_layer, d_model, n_head, vocab_size, context_length;
  int64_t parameters;   /* trained numbers */
  int64_t weight_bytes; /* of them in f32 */
  int64_t cache_bytes;  /* of the KV cache of one sequence; with PLUMB_WEIGHTS_BF16 it takes half */
  int32_t bidirectional; /* 1: it is; there are no sessions on it */
  int32_t token_types;   /* 0: it has none */
} plumb_model_info;

/* Resolves placements, norms and formulas; draws or reads no weights. Errors: the author's, with
 * locations; `spec` is not kept. */
PLUMB_USE PLUMB_API plumb_status plumb_model_create(plumb_runtime* runtime, const plumb_spec* spec,
                                                    plumb_model** model, plumb_error** error);
PLUMB_API void plumb_model_free(plumb_model* model);
/* Fills as much as info->struct_size says, which the caller sets. */
PLUMB_API void plumb_model_get_info(const plumb_model* model, plumb_model_info* info);

/* What the description comes to: what `plumb describe` prints. JSON; these fields stay, and more
 * may come:
 *
 *   name
 *   dims            {n_layer, n_head, n_kv_head, d_model, d_ff, head_dim, vocab_size,
 *                   context_length}
 *   positions       learned(..), rope(theta=10000, ..), alibi(..), none
 *   tied            whether the head's matrix is the embedding's
 *   bidirectional   whether a token sees those after it
 *   token_types     how many there are; 0: the model has none
 *   init_rules      number of rules for initial values in the description
 *   begin, end      [statement], before the first layer and after the last
 *   layers          [{first, last, placement, doc, equations, scalars, norms, jacobian}], of
 *                   layers, counted from 0, that share a block; equations, scalars, norms: [text];
 *                   jacobian: of the first, (I + J_mlp J_norm) (I + J_attention J_norm)
 *   norm_sites      norms that are applied in a forward pass
 *   identity_route  from the embedding to the last layer's output: none, through 1 norm, ...
 *   norms_before_head  on that route, after the last layer
 *   tensors         [{name, shape, dtype, init, role, elements}], in the order of
 *                   plumb_model_tensor; role: weight, norm, learned
 *   buffers         [the same], statistics that norms keep from training: saved, not trained
 *   totals          {parameters, active_parameters, tensors, buffer_elements, weight_bytes,
 *                   cache_bytes}; active_parameters: without experts that a token does not take;
 *                   weight_bytes: in f32; cache_bytes: as in plumb_model_info */
PLUMB_USE PLUMB_API plumb_status plumb_model_describe(const plumb_model* model, char* buffer,
                                                      size_t capacity, size_t* needed,
                                                      plumb_error** error);
/* The description with all that it refers to inside of it, placements and imports, so that it means
 * the same without their files. */
PLUMB_USE PLUMB_API plumb_status plumb_model_text(const plumb_model* model, char* buffer,
                                                  size_t capacity, size_t* needed,
                                                  plumb_error** error);

/* The norms that its layers have: JSON, {ID: version}. */
PLUMB_USE PLUMB_API plumb_status plumb_model_norms(const plumb_model* model, char* buffer,
                                                   size_t capacity, size_t* needed,
                                                   plumb_error** error);

typedef struct {
  size_t struct_size;
  /* What is to be seen of a training step's program: "graph", with "grad"ients, "optimized", its
   * memory "plan", the "exec"utable; "prompt": of a prompt, or, for a seq of 1, a step of decoding;
   * "probes": what can be probed, a star before what is by default; or how the recipe "updates"
   * each tensor. Or the data flow of its blocks as an SVG file: "svg", a layer of each kind;
   * "svg:3", layer 3 alone, from 0. */
  const char* stage;
  int64_t batch, seq; /* sequences, and tokens of each; 0: 1, the model's context_length */
  const char* recipe; /* as plumb_trainer_options */
  size_t recipe_size;
} plumb_explain_options;

/* What the compiler makes of the model, for people: the text is another with each version. The work
 * is done in each call: a large buffer at once is cheaper than asking for the size. Errors:
 * PLUMB_INVALID_ARGUMENT; a program too large to be addressed. */
PLUMB_USE PLUMB_API plumb_status plumb_model_explain(const plumb_model* model,
                                                     const plumb_explain_options* options,
                                                     char* buffer, size_t capacity, size_t* needed,
                                                     plumb_error** error);

enum { PLUMB_PASS_TRAINING = 0, PLUMB_PASS_FEED = 1 };

typedef struct {
  size_t struct_size;
  double flops; /* of matrix products: 6 a weight and token of training, 2 of feeding, and those of
                   attention, as if no mask hid any of it (PaLM, arXiv:2204.02311, appendix B) */
  int64_t weight_bytes; /* that a step of decoding reads */
} plumb_work;

/* The least work of a pass over one sequence of `tokens` tokens: forward and backward, or feeding a
 * session, whose logits are the last token's alone. `weights` as plumb_session_options, for
 * weight_bytes. */
PLUMB_USE PLUMB_API plumb_status plumb_model_work(const plumb_model* model, int32_t pass,
                                                  int64_t tokens, int32_t weights, plumb_work* work,
                                                  plumb_error** error);

/* The names that plumb_trainer_probe takes, one a line, in the order of the data. */
PLUMB_USE PLUMB_API plumb_status plumb_model_probe_points(const plumb_model* model, char* buffer,
                                                          size_t capacity, size_t* needed,
                                                          plumb_error** error);

/* Weights drawn from a seed: the same as those that `plumb train` begins with. */
PLUMB_USE PLUMB_API plumb_status plumb_model_init(plumb_model* model, uint64_t seed,
                                                  plumb_error** error);
/* Weights from a safetensors file with plumb's names, f32, plumb_trainer_save's included, or from
 * the content of one in memory, of which nothing is kept. Errors: PLUMB_INVALID_ARGUMENT lists what
 * is missing, surplus or misshapen, and the weights are as before. */
PLUMB_USE PLUMB_API plumb_status plumb_model_load(plumb_model* model, const char* path,
                                                  plumb_error** error);
PLUMB_USE PLUMB_API plumb_status plumb_model_load_memory(plumb_model* model, const void* data,
                                                         size_t size, plumb_error** error);
/* As plumb_model_load, but the weights stay in the file: a page is read when it is first used, and
 * shared by all processes that map the file, until something is written to it here. Tensors that do
 * not lie at a multiple of 64 bytes are copied; in files of plumb's none does, if every dimension
 * is a multiple of 16. The file must not be cut or changed while the model lives (replacing it does
 * no harm). A trainer copies all. Errors too: PLUMB_FAILED_PRECONDITION while the model has a
 * trainer, sessions or evaluators. Of a file of PLUMB_STATE_OPTIMIZER, the average of the weights
 * that a recipe's ema_decay keeps. */
PLUMB_USE PLUMB_API plumb_status plumb_model_map(plumb_model* model, const char* path,
                                                 plumb_error** error);

enum { PLUMB_F16 = 1u << 3 }; /* IEEE 754 binary16, of files only */

/* Where one of a model's tensors lies in a file. */
typedef struct {
  size_t struct_size;
  const char* name; /* of plumb_model_tensor */
  const char* path;
  int64_t
      offset; /* of its first element, in bytes from the file's beginning; row-major from there */
  int32_t dtype; /* PLUMB_F32, PLUMB_BF16, PLUMB_F16; little-endian */
} plumb_tensor_in_file;

/* As plumb_model_map, of tensors anywhere in files, as in the checkpoints of other programs; each
 * element's struct_size is that of tensors[0]. Matrices stay in their files: of 16 bits, too, where
 * PLUMB_WEIGHTS_BF16 of bf16 are computed with; f32 of all of them are made when they are first
 * asked for. Buffers of norms are as a new model has them. Errors: as plumb_model_map. */
PLUMB_USE PLUMB_API plumb_status plumb_model_map_tensors(plumb_model* model,
                                                         const plumb_tensor_in_file* tensors,
                                                         size_t count, plumb_error** error);
/* Replaces the file at once: whatever happens it holds the old content or the new. */
PLUMB_USE PLUMB_API plumb_status plumb_model_save(const plumb_model* model, const char* path,
                                                  plumb_error** error);

#ifndef PLUMB_DTYPE_DEFINED /* by plumb/norm_plugin.h, alike */
#define PLUMB_DTYPE_DEFINED
enum { PLUMB_F32 = 1u << 0, PLUMB_BF16 = 1u << 1, PLUMB_F64 = 1u << 2 };
#endif

/* A tensor where it lies: row-major, without a copy. */
typedef struct {
  size_t struct_size;
  const char* name; /* "layers.0.attention.q.weight"; lives as long as `data` */
  int32_t dtype;    /* PLUMB_F32 */
  int32_t rank;     /* 1 or 2 */
  int64_t shape[4]; /* 1 beyond the rank */
  float* data;
} plumb_tensor;

PLUMB_API size_t plumb_model_tensor_count(const plumb_model* model);
/* The i-th parameter, which may be written to while nothing else uses the model. The pointers live
 * as long as the model, but until the weights are laid out anew: by plumb_model_map, and by a
 * plumb_trainer_create with dtype BF16, after one, or of mapped weights. Fills as much as
 * tensor->struct_size says. Errors: PLUMB_OUT_OF_RANGE; PLUMB_FAILED_PRECONDITION without weights,
 * and for a matrix of a model that was trained in bf16. */
PLUMB_USE PLUMB_API plumb_status plumb_model_tensor(const plumb_model* model, size_t i,
                                                    plumb_tensor* tensor, plumb_error** error);

/* After tensors were written to, before a session or an evaluator runs again: they take the new
 * weights. */
PLUMB_API void plumb_model_changed(plumb_model* model);

/* --- Tokenizers ------------------------------------------------------------------------------- */

/* Text to token ids and back. Immutable; any thread. */
typedef struct plumb_tokenizer plumb_tokenizer;

enum { PLUMB_CHARACTERS = 0, PLUMB_BYTES = 1 };

/* PLUMB_CHARACTERS: a token for each character in `text` (line breaks count), in the order of code
 * points. PLUMB_BYTES: token b is byte b, and `text` is not looked at. `with_begin_end` adds a last
 * token that begins and ends a document. */
PLUMB_USE PLUMB_API plumb_status plumb_tokenizer_create(int32_t kind, const char* text, size_t size,
                                                        int32_t with_begin_end,
                                                        plumb_tokenizer** tokenizer,
                                                        plumb_error** error);
/* From the text of a run's tokenizer.json, or of one that a model is published with. */
PLUMB_USE PLUMB_API plumb_status plumb_tokenizer_from_json(const char* json, size_t size,
                                                           plumb_tokenizer** tokenizer,
                                                           plumb_error** error);
/* From a directory: a run, or a published model, whose special tokens are those that its
 * generation_config.json, config.json, tokenizer_config.json or special_tokens_map.json says, in
 * this order. From a text alone they are guessed. Errors: PLUMB_NOT_FOUND. */
PLUMB_USE PLUMB_API plumb_status plumb_tokenizer_from_directory(const char* path,
                                                                plumb_tokenizer** tokenizer,
                                                                plumb_error** error);
PLUMB_USE PLUMB_API plumb_status plumb_tokenizer_json(const plumb_tokenizer* tokenizer,
                                                      char* buffer, size_t capacity, size_t* needed,
                                                      plumb_error** error);
PLUMB_API int32_t plumb_tokenizer_vocab_size(const plumb_tokenizer* tokenizer);
/* The token that ends a document of training data; -1 without one. With characters and bytes it
 * begins one, too. */
PLUMB_API int32_t plumb_tokenizer_begin_end(const plumb_tokenizer* tokenizer);
/* The token that begins a document of training data; -1 without one. */
PLUMB_API int32_t plumb_tokenizer_begin(const plumb_tokenizer* tokenizer);
/* The tokens each of which ends a text that a model generates, that one first: for the end_tokens
 * of plumb_sample_options. At most `capacity` ids go to `tokens`; *needed is how many there are. */
PLUMB_USE PLUMB_API plumb_status plumb_tokenizer_end_tokens(const plumb_tokenizer* tokenizer,
                                                            int32_t* tokens, size_t capacity,
                                                            size_t* needed, plumb_error** error);
/* The tokens that a prompt begins with, before those of plumb_tokenizer_encode: what the file's
 * post-processor puts before a text, <s> for example, or the begin/end token of a tokenizer of
 * characters or bytes. At most `capacity` ids go to `tokens`; *needed is how many there are. */
PLUMB_USE PLUMB_API plumb_status plumb_tokenizer_prefix(const plumb_tokenizer* tokenizer,
                                                        int32_t* tokens, size_t capacity,
                                                        size_t* needed, plumb_error** error);
/* At most `capacity` ids go to `tokens`; *needed is how many there are, which may be more than the
 * text has bytes. Errors: PLUMB_INVALID_ARGUMENT for a character that is not in the vocabulary. */
PLUMB_USE PLUMB_API plumb_status plumb_tokenizer_encode(const plumb_tokenizer* tokenizer,
                                                        const char* text, size_t size,
                                                        int32_t* tokens, size_t capacity,
                                                        size_t* needed, plumb_error** error);
/* The text of some tokens, which for bytes need not be UTF-8 and may hold 0. A begin/end token has
 * none. The texts of single tokens, put together, are not the text of all: tokens that come one by
 * one are for plumb_decoder. Errors: PLUMB_INVALID_ARGUMENT for an id that is not in the
 * vocabulary. */
PLUMB_USE PLUMB_API plumb_status plumb_tokenizer_decode(const plumb_tokenizer* tokenizer,
                                                        const int32_t* tokens, size_t count,
                                                        char* buffer, size_t capacity,
                                                        size_t* needed, plumb_error** error);
PLUMB_API void plumb_tokenizer_free(plumb_tokenizer* tokenizer);

/* Makes text of tokens that come one by one, as from plumb_session_generate. The texts that it
 * gives, put together, are what plumb_tokenizer_decode makes of all tokens at once, to the byte.
 * One thread at a time. */
typedef struct plumb_decoder plumb_decoder;

/* Begins a text after the `count` tokens of a prompt (may be none), whose text is not given again:
 * a space, or the rest of a character, depends on what came before. Errors:
 * PLUMB_INVALID_ARGUMENT for an id that is not in the vocabulary. */
PLUMB_USE PLUMB_API plumb_status plumb_decoder_create(const plumb_tokenizer* tokenizer,
                                                      const int32_t* prompt, size_t count,
                                                      plumb_decoder** decoder, plumb_error** error);
/* Sets *text and *size (each may be NULL) to the text that is complete with `tokens`, "" where more
 * must come: a character may be spread over several tokens. The text ends with 0, which *size does
 * not count, and lives until the next call on the decoder. Errors: PLUMB_INVALID_ARGUMENT for an
 * id that is not in the vocabulary; the decoder is as before. */
PLUMB_USE PLUMB_API plumb_status plumb_decoder_next(plumb_decoder* decoder, const int32_t* tokens,
                                                    size_t count, const char** text, size_t* size,
                                                    plumb_error** error);
/* The same of the text that was held back; bytes of a character that is not whole are as they are.
 * The decoder then begins a new text, after no prompt. */
PLUMB_USE PLUMB_API plumb_status plumb_decoder_finish(plumb_decoder* decoder, const char** text,
                                                      size_t* size, plumb_error** error);
/* From now on a text ends before the first of the `count` texts that it contains, wherever tokens
 * begin and end; what may still become one of them is held back. Copies the texts; with none, texts
 * do not end. Errors: PLUMB_INVALID_ARGUMENT for one that is empty or not UTF-8. */
PLUMB_USE PLUMB_API plumb_status plumb_decoder_stop_at(plumb_decoder* decoder,
                                                       const char* const* texts, size_t count,
                                                       plumb_error** error);
/* 1 once the text has come to such a text, after which plumb_decoder_next gives "" until
 * plumb_decoder_finish; else 0. */
PLUMB_API int32_t plumb_decoder_stopped(const plumb_decoder* decoder);
PLUMB_API void plumb_decoder_free(plumb_decoder* decoder);

/* --- Ranks ------------------------------------------------------------------------------------ */

/* Carries messages between the processes (ranks) of one job, on one machine or on several: by MPI,
 * as libplumb-mpi.so does for the command line, or by anything else. Every rank makes the same
 * calls of plumb with a communicator of the same job. plumb calls it from one thread at a time,
 * within the call that it was given to, and no copy of it is kept afterwards; a trainer keeps what
 * it was created with, which must live as long.
 *
 * A function that can fail returns PLUMB_OK or another plumb_status: PLUMB_UNAVAILABLE where a rank
 * or the network is gone. `error` says more of the last failure on this rank.
 *
 * Messages of one tag between two ranks arrive in the order in which their sends were started. A
 * rank may send to itself. Messages may be empty, or longer than 2 GiB. */
typedef struct {
  size_t struct_size;
  void* context;
  int32_t rank;     /* 0 .. size - 1 */
  int32_t size;     /* of the job, in ranks: 1 .. 1048576 */
  const char* host; /* the name of this rank's machine, for messages */

  /* Start to send to rank `to`, or to receive from rank `from`, and return at once with
   * `*transfer`, which is never NULL. The data stay where they are until it is over. A receive has
   * the size of its message: another is an error, PLUMB_INTERNAL, of `test` or `wait`. */
  plumb_status (*start_send)(void* context, int32_t to, int32_t tag, const void* data, size_t size,
                             void** transfer);
  plumb_status (*start_receive)(void* context, int32_t from, int32_t tag, void* data, size_t size,
                                void** transfer);
  /* Whether it is over, to `*over`; at once. Carries on the other transfers, too. */
  plumb_status (*test)(void* context, void* transfer, int32_t* over);
  /* Returns when it is over. After this, after `*over` was 1 and after a failure of either there is
   * no such transfer any more. */
  plumb_status (*wait)(void* context, void* transfer);
  /* Whether a message of this tag has arrived, from anyone, for which no receive was started, to
   * `*found`; from whom, and its size. At once. */
  plumb_status (*probe)(void* context, int32_t tag, int32_t* found, int32_t* from, size_t* size);
  /* Returns when all ranks have called it. */
  plumb_status (*barrier)(void* context);
  /* Ends the job: all ranks exit with `code` as soon as possible. Need not return. */
  void (*abort)(void* context, int32_t code);
  /* What failed last, for people; until the next call. NULL: it says nothing. */
  const char* (*error)(void* context);
} plumb_communicator;

/* --- Training --------------------------------------------------------------------------------- */

/* The training of a model's weights, which sessions see after each step. One thread at a time, but
 * for plumb_trainer_cancel. A callback may call that, and the step callback what takes the trainer
 * const; what would change the trainer fails with PLUMB_FAILED_PRECONDITION. */
typedef struct plumb_trainer plumb_trainer;

typedef struct {
  size_t struct_size;
  const char* recipe; /* plumb.v1.Train in protobuf text format: batch_size, learning_rate, ...;
                         NULL: its defaults. What it says of data, evaluation, checkpoints and
                         divergence is for runs in a directory, and has no effect */
  size_t recipe_size;
  int64_t seq; /* tokens of a sequence, at most; 0: the model's context_length */
  /* 1: the weights are drawn from the recipe's seed, as by plumb_model_init, in the form that is
   * trained; the model need not have any. */
  int32_t draw_weights;
  int64_t reserve; /* bytes that memory must hold beside the trainer: of an evaluator, say */
  /* The processes that train together; NULL: this one alone. Each computes its units of every step
   * (the recipe's units; if it says none and there are more ranks than micro-batches, as many as
   * these ranks need), and all have the losses and weights that one process with these units would
   * have, to the bit. Every rank creates the same trainer, of the same weights, and calls
   * plumb_trainer_step, or _step_filled or _run, and plumb_trainer_share_states as often as the
   * others. Where one fails all do, with its message, "rank 2 on host b: ..."; PLUMB_UNAVAILABLE: a
   * rank is gone, and the trainer is of no use any more. */
  const plumb_communicator* communicator;
  int32_t ranks; /* for plumb_trainer_plan: of so many, the one that takes most; 0: one, or the
                    communicator's */
} plumb_trainer_options;

/* The memory of a trainer, in bytes; all of it is taken from the first step to the last. */
typedef struct {
  size_t struct_size;
  int64_t weights;     /* f32; with dtype BF16 and shard, bf16 of the matrices that others own */
  int64_t gradients;   /* with their sums over units, where a step has several */
  int64_t moments;     /* AdamW's two */
  int64_t norm_states; /* with copies from before the step and before the unit */
  int64_t inputs;      /* ids and positions of a step's micro-batches and of a unit, the loss */
  int64_t workspace;   /* activations, their gradients, scratch: of a unit of options.seq */
  int64_t total;
  int64_t exchange; /* of several ranks: gradients that come from others */
} plumb_trainer_memory;

typedef struct {
  size_t struct_size;
  int64_t step;         /* 1 for the first */
  int64_t tokens;       /* targets */
  double loss;          /* mean over all targets of the step, before the update, in nats */
  double gradient_norm; /* of all gradients, before clipping */
  double learning_rate;
  double seconds;
} plumb_step_info;

/* Fills a step's micro-batches: inputs[n] and targets[n], as plumb_trainer_step has them. `step`
 * counts from 1. Returns 0; or 1: there is no more, the run ends. */
typedef int32_t (*plumb_batch_fn)(void* user, int64_t step, int32_t* inputs, int32_t* targets,
                                  size_t n);
/* After a step. Returns 0 to go on, else the run ends with PLUMB_CANCELLED. */
typedef int32_t (*plumb_step_fn)(void* user, const plumb_step_info* info);

/* A recipe in full, for a host that reads or keeps it: `text`, then settings[2 * i], a field
 * ("learning_rate", "data.val_fraction"), set to the text settings[2 * i + 1], for i < count, which
 * may be 0. Every field whose default is not zero is said in it. `name` stands for the file in
 * messages. Errors: PLUMB_INVALID_ARGUMENT, for all mistakes of syntax, or of range, at once. */
PLUMB_USE PLUMB_API plumb_status plumb_recipe_text(const char* text, size_t size, const char* name,
                                                   const char* const* settings, size_t count,
                                                   char* buffer, size_t capacity, size_t* needed,
                                                   plumb_error** error);

/* What a trainer would take; takes none of it, and needs no weights. Errors: as
 * plumb_trainer_create for the options, but for memory. */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_plan(const plumb_model* model,
                                                    const plumb_trainer_options* options,
                                                    plumb_trainer_memory* memory,
                                                    plumb_error** error);

/* Errors: PLUMB_FAILED_PRECONDITION without weights, while the model has another trainer, or, with
 * dtype BF16, sessions (it lays the matrices out anew, and plumb_model_tensor has them no more);
 * PLUMB_INVALID_ARGUMENT for the recipe, and for more ranks than it has units or sequences;
 * PLUMB_RESOURCE_EXHAUSTED where memory does not hold the step and options.reserve, before any is
 * taken. Of several ranks: PLUMB_FAILED_PRECONDITION where recipes, models or weights differ. */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_create(plumb_model* model,
                                                      const plumb_trainer_options* options,
                                                      plumb_trainer** trainer, plumb_error** error);
PLUMB_API void plumb_trainer_free(plumb_trainer* trainer);

/* Ids in a step: gradient_accumulation_steps x batch_size x seq of the recipe. */
PLUMB_API size_t plumb_trainer_step_tokens(const plumb_trainer* trainer);
PLUMB_API int64_t plumb_trainer_steps(const plumb_trainer* trainer); /* done */
/* As plumb_trainer_plan. */
PLUMB_API void plumb_trainer_get_memory(const plumb_trainer* trainer, plumb_trainer_memory* memory);

/* One optimizer step on inputs [micro-batch, row, position] and the target of each, the token after
 * it; -1: none, not part of the loss. The rows of a bidirectional model may end in inputs of -1,
 * padding that no token sees; with a recipe's masked_tokens its targets are chosen from the inputs,
 * and the given ones not read. `info` may be NULL. Errors: PLUMB_INVALID_ARGUMENT for n
 * other than plumb_trainer_step_tokens, an id outside the vocabulary, or no target at all;
 * PLUMB_ABORTED when the loss or a gradient is not finite, with the first tensor that is not.
 * Nothing has changed then. */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_step(plumb_trainer* trainer, const int32_t* inputs,
                                                    const int32_t* targets, size_t n,
                                                    plumb_step_info* info, plumb_error** error);

/* Fills micro-batch `i` (from 0) of a step: inputs and targets [batch_size, *seq], as
 * plumb_trainer_step has them. *seq is options.seq, and may be made smaller. Returns 0; or another
 * number: there is none. */
typedef int32_t (*plumb_micro_batch_fn)(void* user, int64_t i, int32_t* inputs, int32_t* targets,
                                        int64_t* seq);
/* As plumb_trainer_step, with micro-batches that are asked for one by one and may be of different
 * lengths: for sequences that are shorter than options.seq. All of a step are asked for before its
 * first pass, since its loss is the mean over the targets of all of them; a micro-batch may have
 * none. The first of a length takes a moment, since its program is compiled. Errors too:
 * PLUMB_CANCELLED where `fill` has none. */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_step_filled(plumb_trainer* trainer,
                                                           plumb_micro_batch_fn fill, void* user,
                                                           plumb_step_info* info,
                                                           plumb_error** error);

/* Steps until the recipe's max_steps, `batch` has no more, `step` (may be NULL) wants no more, or
 * plumb_trainer_cancel. */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_run(plumb_trainer* trainer, plumb_batch_fn batch,
                                                   plumb_step_fn step, void* user,
                                                   plumb_error** error);
/* Ends plumb_trainer_run after its step. Any thread, and signal handlers. */
PLUMB_API void plumb_trainer_cancel(plumb_trainer* trainer);

/* The gradient of the last step's loss by the i-th parameter, before clipping, however the step was
 * divided. Until the next step. As plumb_model_tensor;
 * PLUMB_FAILED_PRECONDITION before the first step, and where several ranks share gradients
 * (shard: GRADIENTS). */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_gradient(const plumb_trainer* trainer, size_t i,
                                                        plumb_tensor* tensor, plumb_error** error);

/* Weights, norms' states, moments and the number of steps, into one safetensors file, which is
 * replaced at once; and back, into a trainer of the same model, which then goes on to the same bits
 * as the one that was saved; where the model is described otherwise the log is told. Errors:
 * PLUMB_ABORTED when a number is not finite, and nothing is written; as plumb_model_load, and
 * nothing has changed then. */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_save(const plumb_trainer* trainer, const char* path,
                                                    plumb_error** error);
PLUMB_USE PLUMB_API plumb_status plumb_trainer_load(plumb_trainer* trainer, const char* path,
                                                    plumb_error** error);

/* The learning rate of the next step. */
PLUMB_API double plumb_trainer_learning_rate(const plumb_trainer* trainer);
/* From now on it is the schedule's times `scale`; 1 at first. Not part of what is saved. Errors:
 * PLUMB_INVALID_ARGUMENT for a scale that is negative or not finite. */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_scale_learning_rate(plumb_trainer* trainer,
                                                                   double scale,
                                                                   plumb_error** error);
/* PLUMB_ABORTED, with the name, when a weight, a moment or a norm's state is not finite, as after
 * an update that overflowed though its gradient was finite. Reads all of them. */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_check(const plumb_trainer* trainer,
                                                     plumb_error** error);

/* What a trainer holds between steps, tensor by tensor: for a host that keeps it in files of its
 * own. All of it written back, and plumb_trainer_set_steps, go on to the same bits. */
enum {
  PLUMB_STATE_MODEL = 0,    /* weights, as plumb_model_tensor counts them, then norms' buffers */
  PLUMB_STATE_OPTIMIZER = 1 /* AdamW: "m.NAME", then "v.NAME", of each weight */
};
/* The i-th tensor, as plumb_model_tensor; may be written to between steps. `data` is NULL for a
 * matrix that is trained in bf16. Names and data live as long as the trainer. Errors:
 * PLUMB_OUT_OF_RANGE beyond the last one. */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_state(const plumb_trainer* trainer, int32_t kind,
                                                     size_t i, plumb_tensor* tensor,
                                                     plumb_error** error);
/* Its elements [begin, begin + count), copied: those of a matrix that is trained in bf16 too, whose
 * f32 are kept to the bit, but for the payloads of NaN. Errors: PLUMB_OUT_OF_RANGE. */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_read_state(const plumb_trainer* trainer,
                                                          int32_t kind, size_t i, int64_t begin,
                                                          int64_t count, float* to,
                                                          plumb_error** error);
PLUMB_USE PLUMB_API plumb_status plumb_trainer_write_state(plumb_trainer* trainer, int32_t kind,
                                                           size_t i, int64_t begin, int64_t count,
                                                           const float* from, plumb_error** error);
/* The steps that count as done: on these the schedule, AdamW and max_steps go. Errors:
 * PLUMB_INVALID_ARGUMENT for a negative number, or more than 2^53. */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_set_steps(plumb_trainer* trainer, int64_t steps,
                                                         plumb_error** error);

/* For trainers of several ranks, one of which keeps their state in files. All ranks call it; rank 0
 * calls `use`, and in it reads and writes states, saves, loads and sets steps as if it were alone,
 * while the others, which do not call `use`, answer. What was written, the number of steps and the
 * scale of the learning rate all ranks have afterwards. Without a communicator it calls `use`.
 * Outside of it states that lie on other ranks (a recipe with shard) cannot be read or written,
 * with PLUMB_FAILED_PRECONDITION; in it there are no steps. With dtype BF16 these are the f32 of
 * weights too, which sessions and evaluators of other formats than bf16, plumb_model_save and
 * another trainer need: they fail the same way, also once the trainer is freed. `use` returns 0; or
 * another number, and all ranks fail with PLUMB_CANCELLED. */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_share_states(plumb_trainer* trainer,
                                                            int32_t (*use)(void* user), void* user,
                                                            plumb_error** error);

enum {
  PLUMB_PROBE_ACTIVATION = 0,
  PLUMB_PROBE_GRADIENT = 1, /* of the step's loss, by an activation of a unit */
  PLUMB_PROBE_PARAMETER = 2,
  PLUMB_PROBE_PARAMETER_GRADIENT = 3 /* as plumb_trainer_gradient */
};

/* A tensor in a step, and figures of its finite elements. */
typedef struct {
  size_t struct_size;
  int64_t step; /* that is being done, from 1 */
  int32_t kind;
  const char* name; /* "layers.3.attention.residual", "layers.0.mlp.up.weight" */
  double rms, max /* of the magnitude */, mean;
  int64_t nonfinite, elements; /* NaN or infinite; in all */
  int32_t dtype;               /* PLUMB_F32, PLUMB_BF16 */
  int32_t rank;
  int64_t shape[4]; /* 1 beyond the rank; activations: [rows, positions, width] */
  const void* data; /* until the callback returns; NULL: a matrix that is trained in bf16 */
  double norm;      /* L2, of the finite elements */
} plumb_probe;

/* During a step, on its thread: activations and gradients as they are made, in every micro-batch;
 * then, before the update, parameters. Returns 0 to go on, else plumb_trainer_run ends as after
 * plumb_trainer_cancel. */
typedef int32_t (*plumb_probe_fn)(void* user, const plumb_probe* probe);

/* Of several ranks, each sees its own units; PLUMB_FAILED_PRECONDITION where they share gradients
 * (shard: GRADIENTS). From now on probes step 1 and every `every`-th one, and one that diverges; 0:
 * none. `points` are
 * names, in which * is any text and ? any character, after "grad." for a gradient and "param." for
 * a parameter and its gradient; none: streams, norms, logits and parameters. Losses and weights are
 * the same bits. `probe` may be NULL: plumb_trainer_probed has the figures. Errors:
 * PLUMB_INVALID_ARGUMENT for a point that there is not. */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_probe(plumb_trainer* trainer, int64_t every,
                                                     const char* const* points, size_t count,
                                                     plumb_probe_fn probe, void* user,
                                                     plumb_error** error);

/* The figures of the i-th point over the whole last step, its micro-batches together, with
 * gradients of the step's mean loss: activations, their gradients, then each parameter and its
 * gradient. `rank` is 0, and there are no data. Of a step that diverged: of its bad micro-batch.
 * Names live until plumb_trainer_probe. Errors: PLUMB_OUT_OF_RANGE beyond the last point, and for
 * each if the last step was not probed. */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_probed(const plumb_trainer* trainer, size_t i,
                                                      plumb_probe* probe, plumb_error** error);

/* A row of a profile, summed over the steps. */
typedef struct {
  size_t struct_size;
  const char* name;
  int32_t in_graph; /* 1: an op of the step's graph; 0: a stage outside of it */
  int64_t runs;
  double seconds;
  double flops; /* that the op's algorithm needs; 0 where the time goes into memory */
  double bytes; /* of the op's operands, each once; 0 outside of the graph */
} plumb_profile_row;

/* From now on steps are timed, to the same bits, and add to a profile, which is new; on 0: no more.
 * A step that is probed is one row. */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_profile(plumb_trainer* trainer, int32_t on,
                                                       plumb_error** error);
/* Row 0 is of the steps as a whole ("step"; runs: how many); then ops, the longest first, then
 * stages, then the rest of the time, "other". Names live until the next call with row 0. Errors:
 * PLUMB_OUT_OF_RANGE beyond the last row; PLUMB_FAILED_PRECONDITION before plumb_trainer_profile.
 */
PLUMB_USE PLUMB_API plumb_status plumb_trainer_profile_row(plumb_trainer* trainer, size_t i,
                                                           plumb_profile_row* row,
                                                           plumb_error** error);

/* --- Sampling --------------------------------------------------------------------------------- */

/* Sequences that grow token by token, each with its part of a KV cache. One thread at a time, but
 * for plumb_session_cancel. A callback may call that and what takes the session const; the others
 * fail with PLUMB_FAILED_PRECONDITION. */
typedef struct plumb_session plumb_session;

enum { PLUMB_WEIGHTS_F32 = 0, PLUMB_WEIGHTS_BF16 = 1, PLUMB_WEIGHTS_INT8 = 2 };

typedef struct {
  size_t struct_size;
  int32_t sequences; /* 1 (0) to 16 */
  int32_t
      weights; /* that are computed with: PLUMB_WEIGHTS_F32, ...; shared by a model's sessions */
} plumb_session_options;

/* Errors: PLUMB_FAILED_PRECONDITION without weights; PLUMB_INVALID_ARGUMENT. */
PLUMB_USE PLUMB_API plumb_status plumb_session_create(plumb_model* model,
                                                      const plumb_session_options* options,
                                                      plumb_session** session, plumb_error** error);
PLUMB_API void plumb_session_free(plumb_session* session);

/* Appends tokens to a sequence (from 0). Errors: PLUMB_OUT_OF_RANGE when it would outgrow
 * context_length; PLUMB_INVALID_ARGUMENT for no tokens, or an id outside the vocabulary;
 * PLUMB_FAILED_PRECONDITION where a norm takes statistics over tokens. Nothing is appended then.
 * What several sequences of a session begin with is computed once, if they are fed it one after the
 * other. */
PLUMB_USE PLUMB_API plumb_status plumb_session_feed(plumb_session* session, int32_t sequence,
                                                    const int32_t* tokens, size_t count,
                                                    plumb_error** error);
/* Appends one token, as plumb_session_generate does: a sequence whose context is full begins again
 * with the newer half of its tokens, this one included (context_length / 2 of them). Errors: as
 * plumb_session_feed, but that there is always room. */
PLUMB_USE PLUMB_API plumb_status plumb_session_append(plumb_session* session, int32_t sequence,
                                                      int32_t token, plumb_error** error);
/* Appends tokens[s] to every sequence s, in one pass over the weights; `count` is their number. */
PLUMB_USE PLUMB_API plumb_status plumb_session_feed_each(plumb_session* session,
                                                         const int32_t* tokens, size_t count,
                                                         plumb_error** error);
/* Logits [vocab_size] of the token after the last that was fed; NULL before one was. Until the next
 * call on the session. */
PLUMB_API const float* plumb_session_logits(const plumb_session* session, int32_t sequence);
/* Tokens in a sequence; -1 for one that there is not. */
PLUMB_API int64_t plumb_session_length(const plumb_session* session, int32_t sequence);
/* Takes all but the first `length` tokens back. There are no logits until more is fed; if a layer's
 * window has passed over tokens that it sees again, feeding computes the sequence anew. */
PLUMB_USE PLUMB_API plumb_status plumb_session_truncate(plumb_session* session, int32_t sequence,
                                                        int64_t length, plumb_error** error);

/* All fields 0, or NULL instead of options: the most likely token, until the context is full.
 * PLUMB_SAMPLE_OPTIONS_INIT draws from the model's distribution. */
typedef struct {
  size_t struct_size;
  int64_t max_tokens;   /* past the context, if need be; 0: until the context is full */
  int32_t greedy;       /* 1: as temperature 0 */
  int32_t top_k;        /* of the k most likely tokens; 0: of all */
  double temperature;   /* divides the logits; 0: always the most likely token */
  double top_p;         /* of the fewest likeliest tokens with this share; 0: 1 */
  uint64_t seed, index; /* of the random stream; samples of one seed differ by their index */
  int64_t drawn;        /* tokens that were drawn from the stream before */
  int32_t vocabulary;   /* tokens that may be drawn: the ids below this; 0: all of the model's */
  const int32_t* end_tokens; /* drawing one of these ends the text; it is not told */
  size_t end_token_count;
} plumb_sample_options;

/* plumb_sample_options options = PLUMB_SAMPLE_OPTIONS_INIT;  temperature and top_p are 1. */
#define PLUMB_SAMPLE_OPTIONS_INIT \
  { sizeof(plumb_sample_options), 0, 0, 0, 1.0, 1.0, 0, 0, 0, 0, NULL, 0 }

/* Why plumb_session_generate ended. */
enum {
  PLUMB_FINISH_NONE = 0,   /* it failed, or has not been called */
  PLUMB_FINISH_STOP = 1,   /* an end token was drawn, or `token` wants no more */
  PLUMB_FINISH_LENGTH = 2, /* max_tokens were drawn */
  PLUMB_FINISH_CONTEXT = 3 /* the context is full, and max_tokens is 0 */
};

/* Each token as it is drawn. Returns 0 to go on, else no more are drawn. */
typedef int32_t (*plumb_token_fn)(void* user, int32_t token);

/* Draws a token after those of a sequence, tells `token`, appends it (plumb_session_append), and so
 * on, as `plumb sample` does. The last one, after which `token` or max_tokens wants no more, or, if
 * max_tokens is 0, the context is full, is told and not appended. Draw i (from 0, or
 * options->drawn) is a function of logits, options and i. Errors: PLUMB_FAILED_PRECONDITION for a
 * sequence without logits; PLUMB_CANCELLED after plumb_session_cancel. */
PLUMB_USE PLUMB_API plumb_status plumb_session_generate(plumb_session* session, int32_t sequence,
                                                        const plumb_sample_options* options,
                                                        plumb_token_fn token, void* user,
                                                        plumb_error** error);
/* PLUMB_FINISH_STOP, ...: of the last plumb_session_generate. */
PLUMB_API int32_t plumb_session_finish_reason(const plumb_session* session);
/* Ends plumb_session_generate after its token. Any thread, and signal handlers. */
PLUMB_API void plumb_session_cancel(plumb_session* session);

/* As plumb_trainer_profile and plumb_trainer_profile_row, of passes that feed tokens: a step is a
 * plumb_session_feed, a plumb_session_feed_each, or a token that plumb_session_generate appends. */
PLUMB_USE PLUMB_API plumb_status plumb_session_profile(plumb_session* session, int32_t on,
                                                       plumb_error** error);
PLUMB_USE PLUMB_API plumb_status plumb_session_profile_row(plumb_session* session, size_t i,
                                                           plumb_profile_row* row,
                                                           plumb_error** error);

/* --- Evaluation ------------------------------------------------------------------------------- */

/* The loss, the logits and the gradients of whole sequences, which change nothing. One thread at a
 * time. */
typedef struct plumb_evaluator plumb_evaluator;

typedef struct {
  size_t struct_size;
  int64_t rows;      /* sequences of a batch, side by side; 0: 1 */
  int64_t seq;       /* the most tokens of one; 0: the model's context_length */
  int32_t weights;   /* as plumb_session_options */
  int32_t logits;    /* 1: they are wanted; rows x seq x vocab_size floats of memory */
  int32_t gradients; /* 1: they are wanted, of f32 weights: a run is then the pass of a training
                        step, in which norms over tokens take the statistics of these tokens,
                        but nothing is dropped */
} plumb_evaluator_options;

/* Errors: PLUMB_FAILED_PRECONDITION without weights; PLUMB_INVALID_ARGUMENT. */
PLUMB_USE PLUMB_API plumb_status plumb_evaluator_create(plumb_model* model,
                                                        const plumb_evaluator_options* options,
                                                        plumb_evaluator** evaluator,
                                                        plumb_error** error);
PLUMB_API void plumb_evaluator_free(plumb_evaluator* evaluator);

/* The memory of an evaluator beside the weights, in bytes; takes none of it. Matrices in another
 * form than the trained one are not counted. Errors: as plumb_evaluator_create for the options. */
PLUMB_USE PLUMB_API plumb_status plumb_evaluator_plan(const plumb_model* model,
                                                      const plumb_evaluator_options* options,
                                                      int64_t* bytes, plumb_error** error);

/* One pass over inputs [rows, n / rows] and the target of each, the token after it; -1: none. The
 * rows of a bidirectional model may end in inputs of -1, padding that no token sees.
 * `*loss` becomes the mean over the targets, in nats. Both may be NULL, when only logits are
 * wanted. Norms over tokens use their running statistics. Errors: PLUMB_INVALID_ARGUMENT. */
PLUMB_USE PLUMB_API plumb_status plumb_evaluator_run(plumb_evaluator* evaluator,
                                                     const int32_t* inputs, const int32_t* targets,
                                                     size_t n, double* loss, plumb_error** error);
/* The token types of the inputs of all further runs, which then have n; 0: each has type 0, as at
 * first. Errors: PLUMB_INVALID_ARGUMENT for one outside 0..token_types - 1. */
PLUMB_USE PLUMB_API plumb_status plumb_evaluator_set_types(plumb_evaluator* evaluator,
                                                           const int32_t* types, size_t n,
                                                           plumb_error** error);
/* Logits [rows, n / rows, vocab_size] of the last run, until the next one; NULL without one, or if
 * they were not wanted. */
PLUMB_API const float* plumb_evaluator_logits(const plumb_evaluator* evaluator);
/* The gradient of the last run's loss by the i-th parameter, until the next run. As
 * plumb_model_tensor; PLUMB_FAILED_PRECONDITION without a run, or if they were not wanted. */
PLUMB_USE PLUMB_API plumb_status plumb_evaluator_gradient(const plumb_evaluator* evaluator,
                                                          size_t i, plumb_tensor* tensor,
                                                          plumb_error** error);
/* From now on probes each run; `points` and `probe` as plumb_trainer_probe, of step 0; probe NULL:
 * no more. Where it returns another number than 0 the run fails with PLUMB_CANCELLED when it is
 * done. Errors: PLUMB_INVALID_ARGUMENT; PLUMB_FAILED_PRECONDITION if gradients were not wanted. */
PLUMB_USE PLUMB_API plumb_status plumb_evaluator_probe(plumb_evaluator* evaluator,
                                                       const char* const* points, size_t count,
                                                       plumb_probe_fn probe, void* user,
                                                       plumb_error** error);

#ifdef __cplusplus
}
#endif

#endif /* PLUMB_H_ */
