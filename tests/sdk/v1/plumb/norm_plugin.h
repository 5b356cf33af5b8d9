/* SPDX-License-Identifier: Apache-2.0 */
/* plumb/norm_plugin.h: the contract between plumb and a normalization plugin, ABI major 1.
 *
 * A norm plugin is a shared library that exports one function, plumb_norm_plugin_v1(). This header
 * is all that it needs: C11 or C++11 and later, <stddef.h> and <stdint.h>, nothing of plumb's own.
 * It may be copied away and shipped with a plugin.
 *
 *   cc -std=c11 -O2 -fPIC -shared -fvisibility=hidden -I plugins/abi my_norm.c -o my_norm.so
 *
 * A plugin runs with all rights of the process that loads it.
 *
 * Definition. A norm maps rows of `dim` numbers to rows of `dim` numbers, y = norm(x; params), each
 * row on its own, or, for a cross-row norm, with statistics over all rows of a call. The host owns
 * memory, threads, random numbers and parameters; the plugin owns the mathematics, and nothing
 * else.
 *
 * Call order.
 *   plumb_norm_plugin_v1(0), (1), ... until NULL    the norms of this file
 *   available                                       may this machine run it?
 *   create -> layout                                one instance for each (attributes, dim)
 *   forward, backward                               as often as wanted, ranges of rows
 *   destroy
 * A cross-row norm has its statistics taken first, in training and for each of the two phases:
 * stats_partial of ranges, stats_combine in the order of the rows, stats_finalize, and then forward
 * (or backward) of ranges.
 *
 * Thread tags. Every function pointer below carries one:
 *   - [any-thread]: called from any thread, also from several at once, for different instances or
 *     for none. May allocate. Not called while forward or backward runs on the same instance.
 *   - [hot]: called from any number of threads at once, also on one instance: with disjoint row
 *     ranges of one call, or with different calls. The instance is read-only. No allocation, no
 *     lock, no input or output, no thread, no change of locale or floating-point state, no mutable
 *     global (a once-only, idempotent choice of instruction set is allowed).
 *
 * Rules that hold for all of it.
 *   - Nothing unwinds through this interface: C++ plugins catch everything and return a status.
 *   - Strings are UTF-8, NUL-terminated, and live as long as the process unless said otherwise.
 *   - An empty range (r0 == r1) and a call with rows == 0 are legal and do nothing.
 *   - The host never unloads a library.
 *
 * How it grows. `struct_size` comes first in every struct that crosses the border; whoever fills a
 * struct writes sizeof(struct) as it was compiled. Structs grow at the end only and fields keep
 * their meaning for ever. A reader takes a missing tail as "not given" (PLUMB_HAS), and never asks
 * for equality. Arrays travel with their stride. Reserved fields are written 0 and ignored. What
 * does not fit is an extension, found by a string id that ends in its revision and is final from
 * the first draft. An incompatible change is a new major with a new entry symbol, and one file may
 * export both.
 */
#ifndef PLUMB_NORM_PLUGIN_H
#define PLUMB_NORM_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLUMB_NORM_ABI_MAJOR 1 /* also in the name of the entry symbol */
#define PLUMB_NORM_ABI_MINOR 0 /* counts additions; never by itself a reason to refuse */

#if defined(__GNUC__)
#define PLUMB_EXPORT __attribute__((visibility("default")))
#else
#define PLUMB_EXPORT
#endif

/* Does *p, a `type` that the other side filled, reach as far as `field`? */
#define PLUMB_HAS(type, p, field) \
  ((p)->struct_size >= offsetof(type, field) + sizeof(((const type*)0)->field))

#if defined(__cplusplus)
#define PLUMB_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define PLUMB_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/* -- Status ------------------------------------------------------------------------------------ */

/* The numbers of absl::StatusCode and of gRPC. Any other number is read as PLUMB_INTERNAL. */
typedef int32_t plumb_status;
enum {
  PLUMB_OK = 0,
  PLUMB_CANCELLED = 1,
  PLUMB_INVALID_ARGUMENT = 3,
  PLUMB_NOT_FOUND = 5,
  PLUMB_RESOURCE_EXHAUSTED = 8,
  PLUMB_FAILED_PRECONDITION = 9,
  PLUMB_OUT_OF_RANGE = 11,
  PLUMB_UNIMPLEMENTED = 12,
  PLUMB_INTERNAL = 13
};

/* -- Element types ----------------------------------------------------------------------------- */

/* Element type of x, y, dy and dx. Everything else (params, dparams, saved, buffers, partials) has
 * the accumulate type: double when the element type is PLUMB_F64, else float. PLUMB_F64 is for
 * checking gradients and may be slow; every norm should offer it. A plugin offers at least
 * PLUMB_F32. */
enum { PLUMB_F32 = 1u << 0, PLUMB_BF16 = 1u << 1, PLUMB_F64 = 1u << 2 };

/* An element of type PLUMB_BF16: the upper half of a float. */
typedef uint16_t plumb_bf16;

static inline float plumb_bf16_to_float(plumb_bf16 b) {
  union {
    uint32_t bits;
    float value;
  } u;
  u.bits = (uint32_t)b << 16;
  return u.value;
}

/* Rounds to nearest, ties to even; a NaN stays a NaN. What a plugin stores as PLUMB_BF16 is rounded
 * so. */
static inline plumb_bf16 plumb_bf16_from_float(float value) {
  union {
    float value;
    uint32_t bits;
  } u;
  u.value = value;
  /* The halves of this choice are alike, which compilers turn into vector code. */
  u.bits = value != value ? u.bits | 0x400000u : u.bits + 0x7fffu + ((u.bits >> 16) & 1u);
  return (plumb_bf16)(u.bits >> 16);
}

/* -- Flags of a norm --------------------------------------------------------------------------- */

/* Bits 0-15 are hints: a host may ignore them. Bits 16-31 must be understood: a host that does not
 * know a set bit refuses the plugin and names the bit. */
enum {
  PLUMB_NORM_INPLACE = 1u << 0,      /* forward: y may be x (same base and pitch) */
  PLUMB_NORM_DX_ALIAS_DY = 1u << 1,  /* backward: dx may be dy, when not accumulating */
  PLUMB_NORM_NAN_ISOLATED = 1u << 2, /* a NaN in one row never reaches another row's y or dx */
  PLUMB_NORM_IDENTITY = 1u << 3, /* y = x for any attributes, no parameters: a host may leave the
                                    norm out */
  PLUMB_NORM_SCALE_INVARIANT = 1u << 4, /* norm(a x) = norm(x) for a > 0, as far as eps allows */
  PLUMB_NORM_SHIFT_INVARIANT = 1u << 5, /* norm(x + c) = norm(x) for a number c */
  PLUMB_NORM_APPROXIMATE_GRADIENT = 1u << 6, /* backward is, by design, not the derivative of
                                                forward: gradient checks do not apply */

  PLUMB_NORM_CROSS_ROW = 1u << 16, /* training: statistics over rows; the stats functions exist */
  PLUMB_NORM_CROSS_ROW_EVAL = 1u << 17, /* evaluation too: no decoding token by token */
  PLUMB_NORM_STOCHASTIC = 1u << 18      /* draws numbers, from call->rng_key and the row only */
};

/* -- Attributes -------------------------------------------------------------------------------- */

enum {
  PLUMB_ATTR_F64 = 1,   /* value in f */
  PLUMB_ATTR_I64 = 2,   /* value in i */
  PLUMB_ATTR_BOOL = 3,  /* value in i, 0 or 1 */
  PLUMB_ATTR_ENUM = 4,  /* value in s, one of `choices` */
  PLUMB_ATTR_STRING = 5 /* value in s */
};
enum { PLUMB_ATTR_REQUIRED = 1u << 0 }; /* no default: the user must say */

/* The field that the attribute's type names; the others are 0. Not a union, so that C++ can
 * initialize any of them. It has this size for ever: arrays of it need no stride. */
typedef struct plumb_attr_value {
  double f;
  int64_t i;
  const char* s;
} plumb_attr_value;

/* One attribute that a user may set. The host checks what the user wrote against it, so that a
 * plugin parses nothing and every mistake is reported with its place. */
typedef struct plumb_attr_def {
  const char* name; /* [a-z][a-z0-9_]*, unique, at most 63 characters */
  const char* doc;  /* one sentence */
  uint32_t type;    /* PLUMB_ATTR_* */
  uint32_t flags;   /* PLUMB_ATTR_REQUIRED */
  double min, max;  /* F64 and I64: inclusive; NaN = unbounded */
  plumb_attr_value def;
  const char* const* choices; /* ENUM: ends with NULL; else NULL */
} plumb_attr_def;

/* -- What an instance needs -------------------------------------------------------------------- */

/* Initial values are drawn by the host, so that one seed gives one model whatever the norm. */
enum {
  PLUMB_INIT_ZEROS = 0,
  PLUMB_INIT_ONES = 1,
  PLUMB_INIT_CONST = 2,  /* init_a */
  PLUMB_INIT_NORMAL = 3, /* mean init_a, standard deviation init_b */
  PLUMB_INIT_UNIFORM = 4 /* [init_a, init_b) */
};
enum {
  PLUMB_PARAM_WEIGHT_DECAY = 1u << 0
}; /* without it: no weight decay, as is usual for norms */

/* A trainable parameter, or a buffer that is kept with the checkpoint. */
typedef struct plumb_tensor_def {
  const char* name; /* [a-z][a-z0-9_]*, unique: the checkpoint's key, so it never changes */
  const char* doc;
  uint32_t flags; /* PLUMB_PARAM_* */
  uint32_t ndim;  /* 0 (one number) to 4 */
  uint32_t dims[4];
  uint32_t init; /* PLUMB_INIT_* */
  uint32_t reserved;
  double init_a, init_b;
  double lr_scale; /* factor on the learning rate; 1 = none */
  /* Number that the norm adds to the stored values before it uses them: 1 if the gain is 1 +
   * weight. The plugin does the addition; the field informs readers of a checkpoint. */
  double offset;
} plumb_tensor_def;

enum { PLUMB_BWD_X = 1u << 0, PLUMB_BWD_Y = 1u << 1 }; /* which of x and y backward() reads */

/* Requirements of an instance, a pure function of (attributes, dim): the plugin's dims define the
 * length of each tensor. */
typedef struct plumb_norm_layout {
  uint32_t struct_size;
  uint32_t tensor_stride; /* sizeof(plumb_tensor_def) of the plugin */
  uint32_t n_params;
  uint32_t n_buffers;              /* cross-row norms only */
  const plumb_tensor_def* params;  /* live as long as the instance */
  const plumb_tensor_def* buffers; /* live as long as the instance */
  uint32_t saved_per_row;  /* numbers a row that forward() leaves for backward(); accumulate type */
  uint32_t saved_per_call; /* cross-row norms only: numbers a call; accumulate type */
  uint32_t partial_elems;  /* cross-row norms only: numbers in one partial statistic */
  uint32_t backward_needs; /* PLUMB_BWD_* */
  size_t scratch_bytes;    /* scratch for one range of rows: scratch_bytes ... */
  size_t scratch_bytes_per_row; /* ... + scratch_bytes_per_row * (r1 - r0) */
} plumb_norm_layout;

/* -- One call ---------------------------------------------------------------------------------- */

enum {
  PLUMB_CALL_TRAIN = 1u << 0,     /* fill `saved`: a backward call will follow */
  PLUMB_CALL_ALIGNED64 = 1u << 1, /* x, y, dy, dx and their pitches are multiples of 64 bytes */
  /* backward: dx += gradient instead of dx = gradient. For PLUMB_F32 and PLUMB_F64 the gradient is
   * rounded before it is added, so that the result is that of two steps, bit for bit. */
  PLUMB_CALL_DX_ACCUMULATE = 1u << 2
};

/* Operands of forward() and backward(). Belongs to the host, and differs between the ranges of one
 * call in dparams, scratch and err only. Row r of a tensor starts at (char *)base + r * pitch;
 * elements of a row are adjacent. Pitches are bytes, positive, and at least a row long. A plugin
 * reads and writes exactly `dim` elements of a row: what lies between rows is not its own. A row's
 * y, saved values and dx must be the same bits whichever range it comes in, wherever it lies in
 * memory, and whatever PLUMB_CALL_ALIGNED64 says.
 *
 * Alignment: params, dparams, buffers, saved and scratch begin at multiples of 64 bytes; rows are
 * aligned to their element type only, unless PLUMB_CALL_ALIGNED64 is set.
 *
 *              x              y              dy    dx            params  dparams  saved
 *   forward    read           write          -     -             read    -        write if TRAIN
 *   backward   read if BWD_X  read if BWD_Y  read  write or add  read    add      read
 *   otherwise  NULL           NULL           NULL  NULL                  NULL     NULL
 *
 * Cross-row norms: when statistics are taken (in training; with PLUMB_NORM_CROSS_ROW_EVAL always),
 * forward and backward read call_saved, as stats_finalize left it. Otherwise call_saved is NULL,
 * and forward uses `buffers`. stats_partial reads what forward, resp. backward, of the same call
 * reads.
 */
typedef struct plumb_norm_call {
  uint32_t struct_size;
  uint32_t flags; /* PLUMB_CALL_* */
  uint32_t dtype; /* exactly one of PLUMB_F32, PLUMB_BF16, PLUMB_F64 */
  uint32_t dim;   /* as given to create() */
  int64_t rows;   /* of the whole call; ranges index into them */
  const void* x;  /* [rows, dim] */
  int64_t x_pitch;
  void* y; /* [rows, dim]; read-only in backward */
  int64_t y_pitch;
  const void* dy; /* [rows, dim] */
  int64_t dy_pitch;
  void* dx; /* [rows, dim] */
  int64_t dx_pitch;
  const void* const*
      params;           /* [n_params], in the layout's order; may be NULL when there are none */
  void* const* buffers; /* [n_buffers]; written in stats_finalize of a training call only */
  void* const* dparams; /* [n_params]; private to the range's caller: ADD into them.
                           In stats_finalize(PLUMB_BWD): the totals */
  void* saved;          /* [rows, saved_per_row] */
  int64_t saved_pitch;
  void* call_saved; /* [saved_per_call]; written by stats_finalize only; in PLUMB_BWD it still
                       holds what PLUMB_FWD left */
  void* scratch;    /* for this range only; undefined content */
  uint64_t rng_key; /* PLUMB_NORM_STOCHASTIC: the same key and row give the same numbers */
  char* err;        /* on failure: NUL-terminated text of at most err_cap bytes may be put here */
  size_t err_cap;   /* 0 with err NULL: no text wanted */
} plumb_norm_call;

/* A norm with its attributes and dimension. The plugin defines this struct; nobody else looks
 * inside. */
typedef struct plumb_norm_instance plumb_norm_instance;

/* -- Host services ----------------------------------------------------------------------------- */

enum { PLUMB_LOG_INFO = 0, PLUMB_LOG_WARNING = 1, PLUMB_LOG_ERROR = 2 };

/* Given to create(); valid until destroy() of that instance returns. */
typedef struct plumb_host {
  uint32_t struct_size;
  uint32_t abi_minor; /* PLUMB_NORM_ABI_MINOR of the host */
  void* ctx;          /* first argument of the functions below */
  /* [any-thread] One line for the host's log. `msg` is copied. */
  void (*log)(void* ctx, int32_t level, const char* msg);
  /* [any-thread] A host extension, or NULL when it is not offered. Lives as long as this struct. */
  const void* (*get_extension)(void* ctx, const char* id);
} plumb_host;

/* -- The norm ---------------------------------------------------------------------------------- */

enum { PLUMB_FWD = 0, PLUMB_BWD = 1 };

/* A norm as its library describes it: constant, and alive as long as the process. Mandatory
 * functions: create, destroy, layout, forward, backward; with PLUMB_NORM_CROSS_ROW also the three
 * stats functions, which are NULL otherwise. This set is closed for all of major 1. */
typedef struct plumb_norm_plugin {
  uint32_t struct_size;
  uint32_t min_host_minor; /* the host minor that it NEEDS, not the one it was compiled against */
  /* Unique name, at most 63 characters: [a-z][a-z0-9_]*(\.[a-z0-9_]+)*. The norms that ship with
   * plumb are bare words; everyone else starts with a domain of theirs, reversed:
   * "org.example.my_norm". */
  const char* id;
  const char* name; /* for people: "RMSNorm" */
  const char* version;
  const char* vendor;
  const char* license; /* SPDX */
  const char* doc;     /* what it computes, and where it comes from */
  uint32_t flags;      /* PLUMB_NORM_* */
  uint32_t dtypes;     /* PLUMB_F32 and others, or'ed */
  uint32_t n_attrs;
  uint32_t attr_stride;        /* sizeof(plumb_attr_def) of the plugin */
  const plumb_attr_def* attrs; /* live as long as the process */

  /* [any-thread] Optional. Not PLUMB_OK when this machine cannot run the norm, with the reason in
   * `err` (at most `cap` bytes with the NUL). Called once, before anything else. */
  plumb_status (*available)(char* err, size_t cap);

  /* [any-thread] Makes an instance for rows of `dim` >= 1 elements. `values` holds one value for
   * each attribute, in the schema's order, defaults filled in, types and ranges checked; it and its
   * strings live until create returns. `host` lives until destroy returns. On success *out is the
   * instance, to be given to destroy once; on failure *out is untouched, and `err` (`cap` bytes)
   * may say why. PLUMB_INVALID_ARGUMENT: this dim or this combination of values makes no sense. */
  plumb_status (*create)(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                         plumb_norm_instance** out, char* err, size_t cap);

  /* [any-thread] Ends an instance. The host has made sure that no other call uses it. */
  void (*destroy)(plumb_norm_instance* instance);

  /* [any-thread] What the instance needs. The host zeroes *out and sets its struct_size; write only
   * fields that lie inside it. What the fields point to lives as long as the instance. */
  plumb_status (*layout)(const plumb_norm_instance* instance, plumb_norm_layout* out);

  /* [hot] y = norm(x) for rows r0 <= r < r1, 0 <= r0 <= r1 <= call->rows. `call` and all it points
   * to live until the function returns. PLUMB_UNIMPLEMENTED for an element type that is not
   * offered. */
  plumb_status (*forward)(const plumb_norm_instance* instance, const plumb_norm_call* call,
                          int64_t r0, int64_t r1);

  /* [hot] dx = (dy/dx)^T dy and dparams += (dy/dparams)^T dy for rows r0 <= r < r1. Lifetimes as
   * forward. Ranges that share dparams are not run at the same time. */
  plumb_status (*backward)(const plumb_norm_instance* instance, const plumb_norm_call* call,
                           int64_t r0, int64_t r1);

  /* [hot] PLUMB_NORM_CROSS_ROW: the statistic of rows [r0, r1) alone, into `partial` (partial_elems
   * numbers, zeroed by the host). `phase` is PLUMB_FWD or PLUMB_BWD. */
  plumb_status (*stats_partial)(const plumb_norm_instance* instance, uint32_t phase,
                                const plumb_norm_call* call, int64_t r0, int64_t r1, void* partial);

  /* [hot] PLUMB_NORM_CROSS_ROW: acc = acc combined with partial. One thread, in the order of the
   * rows; combining with the statistic of no rows (all zeros) changes nothing. */
  void (*stats_combine)(const plumb_norm_instance* instance, uint32_t phase,
                        const plumb_norm_call* call, void* acc, const void* partial);

  /* [hot] PLUMB_NORM_CROSS_ROW: from the statistic of all rows to call_saved. One thread, once a
   * phase, before forward (PLUMB_FWD) or backward (PLUMB_BWD) of the same call. The only writer of
   * `buffers`. */
  plumb_status (*stats_finalize)(const plumb_norm_instance* instance, uint32_t phase,
                                 const plumb_norm_call* call, void* acc);

  /* [any-thread] Optional. An extension of this norm, or NULL for an id that it does not know.
   * Lives as long as the process. */
  const void* (*get_extension)(const char* id);
} plumb_norm_plugin;

/* Row `r` of a tensor of a call: PLUMB_ROW(float, call->y, call->y_pitch, r). */
#define PLUMB_ROW(type, base, pitch, r) ((type*)(void*)((char*)(base) + (r) * (pitch)))
#define PLUMB_CONST_ROW(type, base, pitch, r) \
  ((const type*)(const void*)((const char*)(base) + (r) * (pitch)))

/* The one exported symbol. [any-thread] Norm number `index` of this file, NULL when out of range.
 * Pure: the same index gives the same pointer for ever. */
PLUMB_EXPORT const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index);
typedef const plumb_norm_plugin* (*plumb_norm_plugin_v1_fn)(uint32_t index);
#define PLUMB_NORM_ENTRY_SYMBOL "plumb_norm_plugin_v1"

/* -- Extension "plumb.norm.residual/1" --------------------------------------------------------- */

/* The sum before a norm, fused with it: s = x + res, y = norm(s). get_extension(PLUMB_EXT_RESIDUAL)
 * returns a plumb_norm_residual. The norm is that of s as it is stored, in the element type. In
 * backward call->x is s where PLUMB_BWD_X asks for x, and dx is the gradient of s (and so of both
 * x and res), to which dsum is added when it is given; PLUMB_CALL_DX_ACCUMULATE is not set. For
 * PLUMB_F32 and PLUMB_F64 the results are those of an addition and a norm one after the other, bit
 * for bit: gradient and dsum are each rounded before they are added. Row-wise norms only. */
#define PLUMB_EXT_RESIDUAL "plumb.norm.residual/1"
typedef struct plumb_residual_call {
  uint32_t struct_size;
  uint32_t reserved;
  const void* res; /* forward: [rows, dim], read */
  int64_t res_pitch;
  void* sum; /* forward: [rows, dim], written; may be x or res */
  int64_t sum_pitch;
  const void* dsum; /* backward: [rows, dim], the gradient that reaches s past the norm; may be
                       NULL, may be dx (same base and pitch) */
  int64_t dsum_pitch;
} plumb_residual_call;

typedef struct plumb_norm_residual {
  uint32_t struct_size;
  uint32_t reserved;
  /* [hot] As plumb_norm_plugin.forward. */
  plumb_status (*forward)(const plumb_norm_instance* instance, const plumb_norm_call* call,
                          const plumb_residual_call* residual, int64_t r0, int64_t r1);
  /* [hot] As plumb_norm_plugin.backward. */
  plumb_status (*backward)(const plumb_norm_instance* instance, const plumb_norm_call* call,
                           const plumb_residual_call* residual, int64_t r0, int64_t r1);
} plumb_norm_residual;

/* -- The ELF note ------------------------------------------------------------------------------ */

/* Puts the norm's id and ABI where a host can read them without running any code of the file: an
 * ELF note (owner "plumb", type 1) in section .note.plumb. One line at file scope for each norm, ID
 * being the same string as plumb_norm_plugin.id:
 *
 *   PLUMB_NORM_NOTE("org.example.my_norm");
 *
 * A host looks norms up by these notes; a file without one is not a plugin. */
#define PLUMB_NORM_NOTE_OWNER "plumb"
#define PLUMB_NORM_NOTE_TYPE 1
#define PLUMB_NORM_NOTE_SECTION ".note.plumb"
typedef struct plumb_norm_note {
  uint32_t owner_size; /* 6, with the NUL */
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
#define PLUMB_NORM_NOTE(ID)                                                                       \
  static const plumb_norm_note PLUMB_CONCAT(plumb_norm_note_, __LINE__)                           \
      __attribute__((used, section(PLUMB_NORM_NOTE_SECTION), aligned(4))) = {                     \
          6, 72, PLUMB_NORM_NOTE_TYPE, PLUMB_NORM_NOTE_OWNER,                                     \
          PLUMB_NORM_ABI_MAJOR, PLUMB_NORM_ABI_MINOR, ID};                                        \
  PLUMB_STATIC_ASSERT(sizeof(ID) <= 64, "a norm's id has at most 63 characters")
/* clang-format on */

/* -- Sizes ------------------------------------------------------------------------------------- */

/* No padding at any end, so that a struct's size is the end of its last field. */
#if UINTPTR_MAX == 0xffffffffffffffffu
PLUMB_STATIC_ASSERT(sizeof(plumb_attr_value) == 24, "plumb_attr_value, for ever");
PLUMB_STATIC_ASSERT(sizeof(plumb_attr_def) == 72, "plumb_attr_def");
PLUMB_STATIC_ASSERT(sizeof(plumb_tensor_def) == 80, "plumb_tensor_def");
PLUMB_STATIC_ASSERT(sizeof(plumb_norm_layout) == 64, "plumb_norm_layout");
PLUMB_STATIC_ASSERT(sizeof(plumb_norm_call) == 168, "plumb_norm_call");
PLUMB_STATIC_ASSERT(sizeof(plumb_host) == 32, "plumb_host");
PLUMB_STATIC_ASSERT(sizeof(plumb_norm_plugin) == 160, "plumb_norm_plugin");
PLUMB_STATIC_ASSERT(sizeof(plumb_residual_call) == 56, "plumb_residual_call");
PLUMB_STATIC_ASSERT(sizeof(plumb_norm_residual) == 24, "plumb_norm_residual");
PLUMB_STATIC_ASSERT(sizeof(plumb_norm_note) == 92, "plumb_norm_note");
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMB_NORM_PLUGIN_H */
