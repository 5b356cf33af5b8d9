/* SPDX-License-Identifier: Apache-2.0 */
/* plumb/norm_plugin.h: the contract between plumb and a normalization plugin, ABI 1.1.
 *
 * A norm plugin is a shared library that exports one function, plumb_norm_plugin_v1(). It needs
 * this header, plumb/types.h, C11 or C++11 or later, <stddef.h> and <stdint.h>, and nothing else of
 * plumb. An extension has a header of its own in plumb/ext. The folder `plumb` of headers may be
 * copied and shipped with a plugin.
 *
 *   cc -std=c11 -O2 -fPIC -shared -fvisibility=hidden -I plugins/abi my_norm.c -o my_norm.so
 *
 * A plugin runs with all rights of the process that loads it.
 *
 * Definition. A norm maps rows of `dim` numbers to rows of `dim` numbers, y = norm(x; params), or
 * for a norm of two inputs y = norm(x, x2; params). Each row is normalized on its own, except that
 * a cross-row norm uses statistics over all rows of a call. The host owns memory, threads, random
 * numbers and parameters; the plugin owns only the mathematics.
 *
 * Call order.
 *   plumb_norm_plugin_v1(0), (1), ... until NULL    the norms of this file
 *   available                                       can this machine run it?
 *   create -> layout                                one instance for each (attributes, dim)
 *   forward, backward                               any number of times, on ranges of rows
 *   destroy
 * A cross-row norm first computes its statistics, in training and for each of the two phases:
 * stats_partial of ranges, stats_combine in the order of the rows, stats_finalize, and then forward
 * (or backward) of ranges.
 *
 * Thread tags. Every function pointer below has one:
 *   - [any-thread]: called from any thread, also from several at once, for different instances or
 *     for none. May allocate. Not called while forward or backward runs on the same instance.
 *   - [hot]: called from any number of threads at once, also on one instance: with disjoint row
 *     ranges of one call, or with different calls. The instance is read-only. No allocation, no
 *     lock, no input or output, no thread, no change of locale or floating-point state, no mutable
 *     global (a once-only, idempotent choice of instruction set is allowed).
 *
 * General rules.
 *   - Nothing unwinds through this interface: C++ plugins catch everything and return a status.
 *   - Strings are UTF-8, NUL-terminated, and live as long as the process unless stated otherwise.
 *   - An empty range (r0 == r1) and a call with rows == 0 are legal and do nothing.
 *   - Denormals may be flushed to zero as operands and as results (FTZ and DAZ on x86, FZ on Arm),
 *     or not: a host may call in either mode, and plumb flushes them in all [hot] calls. A plugin
 *     does not change the mode and does not depend on denormals: any one may count as zero.
 *   - The host never unloads a library.
 *   - Messages for the host are written to `err`, at most `cap` (`err_cap`) bytes with the NUL. The
 *     buffer belongs to the host, lives until the function returns, and may be NULL, with 0 bytes,
 *     if no message is wanted. A plugin keeps no pointer to it.
 *
 * Versions. `struct_size` is the first field of every struct that crosses the border; the side that
 * fills a struct sets it to sizeof(struct) as it was compiled. Structs grow at the end only, and
 * fields never change their meaning. A reader treats a missing tail as "not given" (PLUMB_HAS), and
 * never requires equal sizes. Arrays come with their stride. Reserved fields are written as 0 and
 * ignored. Other additions are extensions, found by a string id that ends in its revision and is
 * final from the first draft. An incompatible change gets a new major number and a new entry
 * symbol, and one file may export both.
 *
 * New in 1.1 (marked [1.1] below). All of it is optional for both sides: a 1.0 host ignores these
 * parts of a plugin. If that would be wrong, the plugin sets min_host_minor = 1, and a 1.0 host
 * refuses it. A 1.1 host runs 1.0 plugins unchanged.
 *   - plumb_norm_layout.max_chunks: fewer copies of the parameters' gradients
 *   - extension "plumb.norm.combine/1": stats_combine that can fail
 *   - extension "plumb.norm.instance/1": extensions of one instance
 *   - PLUMB_INIT_FILL: initial values that the plugin writes
 *   - plumb_host.heads, plumb_norm_layout.heads: parameters of each head, [heads, dim]
 *   - plumb_norm_call.context: positions of the rows in their sequences, and the training step
 *   - PLUMB_NORM_TWO_INPUTS, plumb_norm_call.x2 and dx2: norm(x, y). A 1.0 host refuses the flag */
#ifndef PLUMB_NORM_PLUGIN_H
#define PLUMB_NORM_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#include "plumb/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLUMB_NORM_ABI_MAJOR 1 /* also part of the entry symbol's name */
#define PLUMB_NORM_ABI_MINOR 1 /* counts additions; never a reason to refuse by itself */

#if defined(_WIN32)
#define PLUMB_EXPORT __declspec(dllexport)
#elif defined(__GNUC__)
#define PLUMB_EXPORT __attribute__((visibility("default")))
#else
#define PLUMB_EXPORT
#endif

/* True if *p, a `type` that the other side filled in, is long enough to contain `field`. */
#define PLUMB_HAS(type, p, field) \
  ((p)->struct_size >= offsetof(type, field) + sizeof(((const type*)0)->field))

/* -- Statuses and element types ---------------------------------------------------------------- */

/* A function of a norm returns PLUMB_OK or PLUMB_STATUS_CANCELLED, INVALID_ARGUMENT, NOT_FOUND,
 * RESOURCE_EXHAUSTED, FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED or INTERNAL. Any other
 * number is treated as PLUMB_STATUS_INTERNAL. */

/* Element type of x, y, dy and dx. All else (params, dparams, saved, buffers, partials) has the
 * accumulate type: double if the element type is PLUMB_DTYPE_F64, else float. PLUMB_DTYPE_F64
 * serves to check gradients and may be slow; every norm should offer it. A plugin must offer
 * PLUMB_DTYPE_F32. */

/* Element of type PLUMB_DTYPE_BF16: the upper half of a float. */
typedef uint16_t plumb_bf16;

static inline float plumb_bf16_to_float(plumb_bf16 b) {
  /* Converts bf16 to float, exactly. */
  union {
    uint32_t bits;
    float value;
  } u;
  u.bits = (uint32_t)b << 16;
  return u.value;
}

/* Rounds to nearest, ties to even; NaN stays NaN. A plugin rounds in this way what it stores as
 * PLUMB_DTYPE_BF16. */
static inline plumb_bf16 plumb_bf16_from_float(float value) {
  union {
    float value;
    uint32_t bits;
  } u;
  u.value = value;
  /* A conditional expression without side effects, which compilers vectorize. */
  u.bits = value != value ? u.bits | 0x400000u : u.bits + 0x7fffu + ((u.bits >> 16) & 1u);
  return (plumb_bf16)(u.bits >> 16);
}

/* -- Flags of a norm --------------------------------------------------------------------------- */

/* Flags of a norm. Bits 0-15 are hints that a host may ignore. Bits 16-31 must be understood: a
 * host refuses a plugin with an unknown bit, and names the bit. */
enum {
  PLUMB_NORM_INPLACE = 1u << 0,      /* forward: y may be x (same base and pitch) */
  PLUMB_NORM_DX_ALIAS_DY = 1u << 1,  /* backward: dx may be dy, if not accumulating */
  PLUMB_NORM_NAN_ISOLATED = 1u << 2, /* a NaN in one row never reaches another row's y or dx */
  /* y = x for any attributes, without parameters: a host may drop the norm. */
  PLUMB_NORM_IDENTITY = 1u << 3,
  PLUMB_NORM_SCALE_INVARIANT = 1u << 4, /* norm(a x) = norm(x) for a > 0, up to eps */
  PLUMB_NORM_SHIFT_INVARIANT = 1u << 5, /* norm(x + c) = norm(x) for a number c */
  /* backward is intentionally not the derivative of forward: gradient checks do not apply. */
  PLUMB_NORM_APPROXIMATE_GRADIENT = 1u << 6,

  /* training uses statistics over rows; the stats functions exist */
  PLUMB_NORM_CROSS_ROW = 1u << 16,
  PLUMB_NORM_CROSS_ROW_EVAL = 1u << 17, /* evaluation too: it cannot decode token by token */
  /* Reserved: draws random numbers, from call->rng_key and the row only. No host provides keys yet,
   * and all refuse the norm. */
  PLUMB_NORM_STOCHASTIC = 1u << 18,
  /* [1.1] y = norm(x, x2): call->x2 is given in every call. Excludes CROSS_ROW and IDENTITY. */
  PLUMB_NORM_TWO_INPUTS = 1u << 19
};

/* -- Attributes -------------------------------------------------------------------------------- */

enum {
  PLUMB_ATTR_F64 = 1,   /* value in f */
  PLUMB_ATTR_I64 = 2,   /* value in i, all 64 bits; min and max are doubles */
  PLUMB_ATTR_BOOL = 3,  /* value in i, 0 or 1 */
  PLUMB_ATTR_ENUM = 4,  /* value in s, one of `choices` */
  PLUMB_ATTR_STRING = 5 /* value in s */
};
enum { PLUMB_ATTR_FLAG_REQUIRED = 1u << 0 }; /* no default: the user must set it */

/* Value of an attribute: the field that its type names; the others are 0. Not a union, so that C++
 * can initialize any of them. Its size never changes: arrays of it need no stride. */
typedef struct plumb_attr_value {
  double f;
  int64_t i;
  const char* s;
} plumb_attr_value;

/* An attribute that a user may set. The host checks the user's value against it, so that a plugin
 * parses nothing and every error is reported with its location. */
typedef struct plumb_attr_def {
  const char* name; /* [a-z][a-z0-9_]*, unique, at most 63 characters */
  const char* doc;  /* one sentence */
  uint32_t type;    /* PLUMB_ATTR_* */
  uint32_t flags;   /* PLUMB_ATTR_FLAG_REQUIRED */
  double min, max;  /* F64 and I64: inclusive; NaN: unbounded */
  plumb_attr_value def;
  const char* const* choices; /* ENUM: ends with NULL; otherwise NULL */
} plumb_attr_def;

/* -- What an instance needs -------------------------------------------------------------------- */

/* Kind of a tensor's initial values. The host draws them, so that one seed gives one model for any
 * norm, or the plugin writes them from a seed of the host. A host refuses an instance with an
 * unknown kind, and names the tensor and the kind. */
enum {
  PLUMB_INIT_ZEROS = 0,
  PLUMB_INIT_ONES = 1,
  PLUMB_INIT_CONST = 2,   /* init_a */
  PLUMB_INIT_NORMAL = 3,  /* mean init_a, standard deviation init_b */
  PLUMB_INIT_UNIFORM = 4, /* [init_a, init_b) */
  PLUMB_INIT_FILL = 5     /* [1.1] the definition's `fill` writes them */
};
enum {
  PLUMB_PARAM_WEIGHT_DECAY = 1u << 0
}; /* without it, no weight decay, as is usual for norms */

/* A norm with its attributes and dimension. The plugin defines this struct; hosts do not look
 * inside. */
typedef struct plumb_norm_instance plumb_norm_instance;

/* [1.1] A tensor whose initial values are to be written. */
typedef struct plumb_fill_call {
  uint32_t struct_size;
  uint32_t tensor; /* index of a parameter in the layout, or n_params + index of a buffer */
  /* Seed of this tensor in this place of the model: it differs between tensors, places and seeds of
   * the user. */
  uint64_t seed;
  int64_t elements; /* product of the definition's dims */
  float* values;    /* [elements], last dimension innermost; initially zeros */
  char* err;        /* see plumb_norm_call */
  size_t err_cap;
} plumb_fill_call;

/* Definition of a trainable parameter, or of a buffer that is saved in checkpoints. */
typedef struct plumb_tensor_def {
  const char* name; /* [a-z][a-z0-9_]*, unique; the checkpoint's key: never change it */
  const char* doc;
  uint32_t flags; /* PLUMB_PARAM_* */
  uint32_t ndim;  /* 0 (one number) to 4 */
  uint32_t dims[4];
  uint32_t init; /* PLUMB_INIT_* */
  uint32_t reserved;
  double init_a, init_b;
  double lr_scale; /* factor on the learning rate; 1: none */
  /* Number that the norm adds to the stored values before it uses them: 1 if the gain is 1 +
   * weight. The plugin does the addition; the field informs readers of a checkpoint. */
  double offset;
  /* [1.1] [any-thread] Writes finite numbers to call->values, for PLUMB_INIT_FILL; NULL with other
   * kinds. A pure function of (attributes, dim, heads, tensor, seed), with the same bits on every
   * machine. Called when a model is initialized, but not if a checkpoint has the values. */
  plumb_status (*fill)(const plumb_norm_instance* instance, const plumb_fill_call* call);
} plumb_tensor_def;

/* Set of those of x, y and x2 that backward() reads; X2 [1.1]: norms of two inputs only. */
enum {
  PLUMB_BACKWARD_READS_X = 1u << 0,
  PLUMB_BACKWARD_READS_Y = 1u << 1,
  PLUMB_BACKWARD_READS_X2 = 1u << 2
};

/* [1.1] Set of the fields of plumb_norm_context that an instance uses. */
enum { PLUMB_CONTEXT_POSITIONS = 1u << 0, PLUMB_CONTEXT_STEP = 1u << 1 };

/* Requirements of an instance, a pure function of (attributes, dim, heads). */
typedef struct plumb_norm_layout {
  uint32_t struct_size;
  uint32_t tensor_stride; /* the plugin's sizeof(plumb_tensor_def) */
  uint32_t n_params;
  uint32_t n_buffers;              /* cross-row norms only */
  const plumb_tensor_def* params;  /* live as long as the instance */
  const plumb_tensor_def* buffers; /* live as long as the instance */
  /* Numbers per row that forward() leaves for backward(), of the accumulate type. */
  uint32_t saved_per_row;
  /* Cross-row norms only: numbers per call, and in a partial statistic, of the accumulate type. */
  uint32_t saved_per_call;
  uint32_t partial_elems;
  uint32_t backward_needs;      /* PLUMB_BACKWARD_READS_* */
  size_t scratch_bytes;         /* scratch of one range of rows: scratch_bytes ... */
  size_t scratch_bytes_per_row; /* ... + scratch_bytes_per_row * (r1 - r0) */
  /* [1.1] Max number of zeroed copies of dparams, and of ranges with different copies, in one
   * backward call; 0: the host decides. For norms with large parameters, which are better split
   * into few ranges. A host may use fewer. */
  uint32_t max_chunks;
  uint32_t reserved;
  /* [1.1] plumb_host.heads if the instance distinguishes heads, by parameters such as a gain
   * [heads, dim]: row r of a call then belongs to head r % heads, and rows is a multiple of heads;
   * ranges begin and end anywhere. 0: all rows are alike. */
  uint32_t heads;
  /* [1.1] PLUMB_CONTEXT_*, row-wise norms only. A host that knows these fields of the context
   * provides them; others may be unknown. The norm must also work without: a bit is a request. */
  uint32_t context_wants;
} plumb_norm_layout;

/* -- One call ---------------------------------------------------------------------------------- */

/* [1.1] Information about the rows of a call besides their numbers. A row's y, saved values and dx
 * are a function of its own position and the step, and not of other rows or of the rest of the
 * call: a prompt, a decoded token and a batch give the same bits. */
typedef struct plumb_norm_context {
  uint32_t struct_size;
  /* At least 1, more if heads are normalized. Row r is of token r / rows_per_token of the call. */
  uint32_t rows_per_token;
  /* [rows / rows_per_token]: position of each token in its sequence, from 0; NULL: unknown. */
  const int32_t* positions;
  /* Number of the training step, from 1. In evaluation and decoding that of the last step, 0 before
   * the first; -1: unknown. */
  int64_t step;
  int64_t n_sequences; /* in this call; 0: unknown */
  /* [n_sequences + 1]: sequence s has the call's tokens [offsets[s], offsets[s + 1]), which may be
   * only a part of it (a chunk of a prompt, a decoded token); NULL: unknown. */
  const int64_t* sequence_offsets;
} plumb_norm_context;

enum {
  PLUMB_CALL_TRAIN = 1u << 0,     /* fill `saved`: a backward call will follow */
  PLUMB_CALL_ALIGNED64 = 1u << 1, /* x, y, dy, dx and their pitches are multiples of 64 bytes */
  /* backward: dx += gradient instead of dx = gradient. For PLUMB_DTYPE_F32 and PLUMB_DTYPE_F64 the
   * gradient is rounded before it is added, so that the result is that of two steps, bit for bit.
   */
  PLUMB_CALL_DX_ACCUMULATE = 1u << 2
};

/* Operands of forward() and backward(). The call belongs to the host; between the ranges of one
 * call only dparams, scratch and err differ. Row r of a tensor begins at (char *)base + r * pitch;
 * the elements of a row are adjacent. Pitches are in bytes, positive, and at least the length of a
 * row. A plugin reads and writes exactly `dim` elements of a row, and nothing between rows. A row's
 * y, saved values and dx must have the same bits in any range, at any address, and with or without
 * PLUMB_CALL_ALIGNED64.
 *
 * Alignment: params, dparams, buffers, saved and scratch begin at multiples of 64 bytes; rows are
 * aligned to their element type only, unless PLUMB_CALL_ALIGNED64 is set.
 *
 *              x              y              dy    dx            params  dparams  saved
 *   forward    read           write          -     -             read    -        write if TRAIN
 *   backward   if READS_X     if READS_Y     read  write or add  read    add      read
 *   otherwise  NULL           NULL           NULL  NULL                  NULL     NULL
 *
 * Norms of two inputs: forward also reads x2. backward reads it if READS_X2 is set, and writes dx2,
 * the gradient of x2, which is never added to and shares no memory with another operand. x2 may be
 * x.
 *
 * Cross-row norms: in training, and with PLUMB_NORM_CROSS_ROW_EVAL always, statistics are computed,
 * and forward and backward read call_saved as stats_finalize left it. Otherwise call_saved is NULL,
 * and forward uses `buffers`. stats_partial reads the same operands as forward (backward) of the
 * same call. */
typedef struct plumb_norm_call {
  uint32_t struct_size;
  uint32_t flags; /* PLUMB_CALL_* */
  uint32_t dtype; /* exactly one of PLUMB_DTYPE_F32, PLUMB_DTYPE_BF16, PLUMB_DTYPE_F64 */
  uint32_t dim;   /* argument of create() */
  int64_t rows;   /* number of rows of the whole call; ranges index into them */
  const void* x;  /* [rows, dim] */
  int64_t x_pitch;
  void* y; /* [rows, dim]; read-only in backward */
  int64_t y_pitch;
  const void* dy; /* [rows, dim] */
  int64_t dy_pitch;
  void* dx; /* [rows, dim] */
  int64_t dx_pitch;
  /* [n_params], in the layout's order; may be NULL if there are none. */
  const void* const* params;
  void* const* buffers; /* [n_buffers]; written by stats_finalize of a training call only */
  /* [n_params]; private to the caller of the range: ADD to them. In
   * stats_finalize(PLUMB_PHASE_BACKWARD): the totals. */
  void* const* dparams;
  void* saved; /* [rows, saved_per_row] */
  int64_t saved_pitch;
  /* [saved_per_call]; written by stats_finalize only; in PLUMB_PHASE_BACKWARD it still holds the
   * values of PLUMB_PHASE_FORWARD. */
  void* call_saved;
  void* scratch;    /* for this range only; undefined content */
  uint64_t rng_key; /* PLUMB_NORM_STOCHASTIC: equal keys and rows give equal numbers */
  char* err;        /* on failure: a message of at most err_cap bytes with the NUL */
  size_t err_cap;   /* 0 with err NULL: no message wanted */
  /* [1.1] PLUMB_NORM_TWO_INPUTS. Element type, alignment and flags are those of x and dx. */
  const void* x2; /* [rows, dim] */
  int64_t x2_pitch;
  void* dx2; /* [rows, dim]; written in backward, even with PLUMB_CALL_DX_ACCUMULATE */
  int64_t dx2_pitch;
  /* [1.1] NULL: nothing is known, as for cross-row norms. Lives until the function returns. */
  const plumb_norm_context* context;
} plumb_norm_call;

/* -- Host services ----------------------------------------------------------------------------- */

/* Services of the host, passed to create(); valid until destroy() of that instance returns. */
typedef struct plumb_host {
  uint32_t struct_size;
  uint32_t abi_minor; /* PLUMB_NORM_ABI_MINOR of the host */
  void* ctx;          /* first argument of the functions below */
  /* [any-thread] Writes a line to the host's log. `msg` is copied. */
  void (*log)(void* ctx, int32_t level, const char* msg);
  /* [any-thread] Returns an extension of the host, or NULL if it is not offered. It lives as long
   * as this struct. */
  const void* (*get_extension)(void* ctx, const char* id);
  /* [1.1] Number of heads per token if the instance normalizes heads of `dim` elements (in a slot
   * of queries, say), 0 if it normalizes whole rows. */
  uint32_t heads;
  uint32_t reserved;
} plumb_host;

/* -- The norm ---------------------------------------------------------------------------------- */

/* Phase of a cross-row norm's statistics. */
enum { PLUMB_PHASE_FORWARD = 0, PLUMB_PHASE_BACKWARD = 1 };

/* Table of a norm: constant, and alive as long as the process. Mandatory functions are create,
 * destroy, layout, forward and backward, and with PLUMB_NORM_CROSS_ROW the three stats functions,
 * which are NULL otherwise. No function is added to this set within major 1. */
typedef struct plumb_norm_plugin {
  uint32_t struct_size;
  uint32_t min_host_minor; /* host minor that it NEEDS, not that of its compilation */
  /* Unique name, at most 63 characters: [a-z][a-z0-9_]*(\.[a-z0-9_]+)*. The norms that ship with
   * plumb have simple names; others begin with a reversed domain of their author:
   * "org.example.my_norm". */
  const char* id;
  const char* name; /* name for people: "RMSNorm" */
  const char* version;
  const char* vendor;
  const char* license; /* SPDX */
  const char* doc;     /* formula and source */
  uint32_t flags;      /* PLUMB_NORM_* */
  uint32_t dtypes;     /* PLUMB_DTYPE_F32 and others, or'ed */
  uint32_t n_attrs;
  uint32_t attr_stride;        /* the plugin's sizeof(plumb_attr_def) */
  const plumb_attr_def* attrs; /* live as long as the process */

  /* [any-thread] Optional. Checks that this machine can run the norm. Called once, before other
   * functions. Errors: any status, with the reason in `err` (at most `cap` bytes with the NUL). */
  plumb_status (*available)(char* err, size_t cap);

  /* [any-thread] Creates an instance for rows of `dim` >= 1 elements. `values` has one value for
   * each attribute, in the order of the definitions, with defaults filled in. The host has checked
   * types, ranges and choices, and that numbers are finite: a plugin need not do so again. `values`
   * and its strings live until create returns, so an instance copies what it keeps. `host` lives
   * until destroy returns. On success *out is the instance, to be destroyed once; on failure *out
   * is unchanged.
   * Errors: PLUMB_STATUS_INVALID_ARGUMENT for a dim or a combination of values that makes no sense,
   * with the reason in `err` (`cap` bytes); PLUMB_STATUS_RESOURCE_EXHAUSTED. */
  plumb_status (*create)(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                         plumb_norm_instance** out, char* err, size_t cap);

  /* [any-thread] Destroys an instance. Requires: no other call uses it. */
  void (*destroy)(plumb_norm_instance* instance);

  /* [any-thread] Returns the requirements of the instance. The host zeroes *out and sets its
   * struct_size; write only fields within it. Arrays that it points to live as long as the
   * instance. */
  plumb_status (*layout)(const plumb_norm_instance* instance, plumb_norm_layout* out);

  /* [hot] Computes y = norm(x) for rows r0 <= r < r1, 0 <= r0 <= r1 <= call->rows. `call` and all
   * it points to live until the function returns. Errors: PLUMB_STATUS_UNIMPLEMENTED for an element
   * type that is not offered. */
  plumb_status (*forward)(const plumb_norm_instance* instance, const plumb_norm_call* call,
                          int64_t r0, int64_t r1);

  /* [hot] Computes dx = (dy/dx)^T dy and dparams += (dy/dparams)^T dy for rows r0 <= r < r1, with
   * lifetimes as in forward. Ranges that share dparams do not run at the same time. */
  plumb_status (*backward)(const plumb_norm_instance* instance, const plumb_norm_call* call,
                           int64_t r0, int64_t r1);

  /* [hot] PLUMB_NORM_CROSS_ROW: writes the statistic of rows [r0, r1) alone to `partial`
   * (partial_elems numbers, zeroed by the host). `phase` is PLUMB_PHASE_FORWARD or
   * PLUMB_PHASE_BACKWARD. */
  plumb_status (*stats_partial)(const plumb_norm_instance* instance, uint32_t phase,
                                const plumb_norm_call* call, int64_t r0, int64_t r1, void* partial);

  /* [hot] PLUMB_NORM_CROSS_ROW: combines `partial` into `acc`. Called by one thread, in the order
   * of the rows. The statistic of no rows (all zeros) is neutral. */
  void (*stats_combine)(const plumb_norm_instance* instance, uint32_t phase,
                        const plumb_norm_call* call, void* acc, const void* partial);

  /* [hot] PLUMB_NORM_CROSS_ROW: computes call_saved from the statistic of all rows. Called by one
   * thread, once per phase, before forward (PLUMB_PHASE_FORWARD) or backward (PLUMB_PHASE_BACKWARD)
   * of the same call. Only this function writes `buffers`. */
  plumb_status (*stats_finalize)(const plumb_norm_instance* instance, uint32_t phase,
                                 const plumb_norm_call* call, void* acc);

  /* [any-thread] Optional. Returns an extension of this norm, or NULL for an unknown id. It lives
   * as long as the process. */
  const void* (*get_extension)(const char* id);
} plumb_norm_plugin;

/* Row `r` of a tensor of a call, a pointer: PLUMB_ROW(float, call->y, call->y_pitch, r). */
#define PLUMB_ROW(type, base, pitch, r) ((type*)(void*)((char*)(base) + (r) * (pitch)))
#define PLUMB_CONST_ROW(type, base, pitch, r) \
  ((const type*)(const void*)((const char*)(base) + (r) * (pitch)))

/* [any-thread] The one exported symbol. Returns norm number `index` of this file, or NULL if out of
 * range. Pure: the same index always gives the same pointer. */
PLUMB_EXPORT const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index);
typedef const plumb_norm_plugin* (*plumb_norm_plugin_v1_fn)(uint32_t index);
#define PLUMB_NORM_ENTRY_SYMBOL "plumb_norm_plugin_v1"

/* -- The note ---------------------------------------------------------------------------------- */

/* Stores the norm's id and ABI where a host can read them without running code of the file: in ELF
 * a note (owner "plumb", type 1) in section .note.plumb; the same 92 bytes in section
 * __TEXT,__plumb_norm of Mach-O, and in section .plumb of PE. Sections contain nothing else. Write
 * one line at file scope for each norm; ID is the same string as plumb_norm_plugin.id:
 *
 *   PLUMB_NORM_NOTE("org.example.my_norm");
 *
 * A host finds norms by these notes; a file without one is not a plugin. Needs gcc or clang, on
 * Windows too: cl.exe drops data that nothing refers to. */
#define PLUMB_NORM_NOTE_OWNER "plumb"
#define PLUMB_NORM_NOTE_TYPE 1
#if defined(__APPLE__)
#define PLUMB_NORM_NOTE_SECTION "__TEXT,__plumb_norm"
#elif defined(_WIN32)
#define PLUMB_NORM_NOTE_SECTION ".plumb"
#else
#define PLUMB_NORM_NOTE_SECTION ".note.plumb"
#endif
typedef struct plumb_norm_note {
  uint32_t owner_size; /* 6, including the NUL */
  uint32_t desc_size;  /* 72: abi_major, abi_minor, id */
  uint32_t type;
  char owner[8];
  uint32_t abi_major;
  uint32_t abi_minor;
  char id[64];
} plumb_norm_note;
#define PLUMB_CONCAT_(a, b) a##b
#define PLUMB_CONCAT(a, b) PLUMB_CONCAT_(a, b)
/* clang-format off */
#if defined(_MSC_VER) && !defined(__clang__)
#define PLUMB_NORM_NOTE(ID) PLUMB_STATIC_ASSERT(0, "compile norms by clang-cl, clang or gcc")
#else
#define PLUMB_NORM_NOTE(ID)                                                                       \
  static const plumb_norm_note PLUMB_CONCAT(plumb_norm_note_, __LINE__)                           \
      __attribute__((used, section(PLUMB_NORM_NOTE_SECTION), aligned(4))) = {                     \
          6, 72, PLUMB_NORM_NOTE_TYPE, PLUMB_NORM_NOTE_OWNER,                                     \
          PLUMB_NORM_ABI_MAJOR, PLUMB_NORM_ABI_MINOR, ID};                                        \
  PLUMB_STATIC_ASSERT(sizeof(ID) <= 64, "a norm's id has at most 63 characters")
#endif
/* clang-format on */

/* -- Sizes ------------------------------------------------------------------------------------- */

/* No struct has padding at its end, so its size is the end of its last field. */
#if UINTPTR_MAX == 0xffffffffffffffffu
PLUMB_STATIC_ASSERT(sizeof(plumb_attr_value) == 24, "plumb_attr_value, for ever");
PLUMB_STATIC_ASSERT(sizeof(plumb_attr_def) == 72, "plumb_attr_def");
PLUMB_STATIC_ASSERT(sizeof(plumb_fill_call) == 48, "plumb_fill_call");
PLUMB_STATIC_ASSERT(sizeof(plumb_tensor_def) == 88, "plumb_tensor_def");
PLUMB_STATIC_ASSERT(sizeof(plumb_norm_layout) == 80, "plumb_norm_layout");
PLUMB_STATIC_ASSERT(sizeof(plumb_norm_call) == 208, "plumb_norm_call");
PLUMB_STATIC_ASSERT(sizeof(plumb_norm_context) == 40, "plumb_norm_context");
PLUMB_STATIC_ASSERT(sizeof(plumb_host) == 40, "plumb_host");
PLUMB_STATIC_ASSERT(sizeof(plumb_norm_plugin) == 160, "plumb_norm_plugin");
PLUMB_STATIC_ASSERT(sizeof(plumb_norm_note) == 92, "plumb_norm_note");
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMB_NORM_PLUGIN_H */
