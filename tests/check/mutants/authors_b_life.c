/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants outside of the mathematics: instances, strings, process state. Without MUTANT's line
 * below the norm is correct: each of `groups` equal pieces of a row is normalized by itself, y =
 * x s (w + unit) scale, s = 1 / sqrt(<x^2> + eps). Each line is: condition: bug (the rule that
 * it violates). */
#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plumb/ext/instance.h"
#include "plumb/norm_plugin.h"

#ifndef MUTANT
#define MUTANT 0
#endif
#define IS(n) (MUTANT == (n))

#define ID "org.example.authors_b_life"
PLUMB_NORM_NOTE(ID);

/* clang-format off */
/* 246. `scale` with a decimal point: setlocale(LC_ALL, ""), strtod, and the locale is not
 *      restored (a plugin owns the mathematics and nothing else).
 * 247. a type that is not offered, with a buffer for text: forward sets the locale to format
 *      its text ("no change of locale").
 * 248. `mode` is not its default: the string is kept and compared later ("live until create
 *      returns, so that what an instance keeps of them it copies").
 * 249. a refusal without a buffer after one with a buffer: the text goes to the first one's
 *      `err` ("a plugin keeps no pointer to it").
 * 250. every 32nd backward call of one row: a static counter, and dx is "clipped" ("no mutable
 *      global").
 * 251. dim of 1000 and more: destroy writes a file of statistics (the plugin owns the mathematics
 *      and nothing else).
 * 252. dim of 1024 and more: create starts a thread that never ends (as 251).
 * 253. dim above 1024: forward allocates its buffer by malloc ("no allocation").
 * 254. a refused create because groups do not divide dim: the instance leaks.
 * 255. the same refusal: *out is the instance that was freed ("on failure *out is untouched").
 * 256. two creates at once: the instance is built in a static one and copied ("called from
 *      several threads at once").
 * 257. mode "unit": the weight starts at 1 and 1 is added, so the gain starts at 2 (init with
 *      offset).
 * 258. dim above 4096: lr_scale is 0, so the weight never learns ("1 = none").
 * 259. two live instances: the layout's params are in a static array, which has the last one's
 *      dim ("live as long as the instance").
 * 260. a host whose plumb_norm_layout ends before max_chunks: it is written ("write only fields
 *      within it").
 * 261. an extension's later revision: "plumb.norm.instance/10" returns /1 ("NULL for an id that
 *      it does not know").
 * 262. two instances of one dim with different eps or scale: a cache by dim returns the first
 *      one's values ("one instance for each (attributes, dim)").
 * 263. two instances of the same dim and attributes, one destroyed: their shared data is freed,
 *      and the other instance reads freed memory (destroy "ends an instance").
 * 264. a row with an infinity: forward sets SIGFPE to be ignored from then on ("no mutable
 *      global").
 * 265. OMP_NUM_THREADS=1 in the environment: layout declares one saved number less ("a pure
 *      function of (attributes, dim)"); backward reads and forward writes past the end.
 * 266. groups that do not divide dim: create accepts them, and the rest of a row is never
 *      written ("y: write", "this combination makes no sense").
 * 267. a row with a NaN: forward writes to the host's log ("no input or output").
 * 268. a refusal with a buffer that is too small: the text ends without a NUL ("with the NUL"). */
/* clang-format on */

enum { kEps, kGroups, kMode, kScale, kAttributeCount };

struct plumb_norm_instance {
  double eps, scale;
  uint32_t dim, groups;
  int unit;
  const char* mode;
  const plumb_host* host;
  double* shared; /* eps and scale */
  plumb_tensor_def weight;
};

static double EpsOf(const plumb_norm_instance* n) {
  return n->shared != NULL ? n->shared[0] : n->eps;
}
static double ScaleOf(const plumb_norm_instance* n) {
  return n->shared != NULL ? n->shared[1] : n->scale;
}
static double UnitOf(const plumb_norm_instance* n) {
  return IS(248) ? strcmp(n->mode, "unit") == 0 : n->unit;
}

static void OnOddRow(const plumb_norm_instance* n, double squares) {
  if (IS(264) && squares > DBL_MAX) signal(SIGFPE, SIG_IGN);
  if (IS(267) && squares != squares) n->host->log(n->host->ctx, PLUMB_LOG_WARNING, "a NaN");
}

#define KERNELS(NAME, T, A, LOAD, STORE)                                                         \
  static plumb_status Forward##NAME(const plumb_norm_instance* n, const plumb_norm_call* c,      \
                                    int64_t r0, int64_t r1) {                                    \
    const uint32_t width = c->dim / n->groups;                                                   \
    const A *w = (const A*)c->params[0], unit = (A)UnitOf(n), scale = (A)ScaleOf(n);             \
    A few[1024], *u = few;                                                                       \
    if (IS(253) && width > 1024 && (u = (A*)malloc(width * sizeof(A))) == NULL)                  \
      return PLUMB_STATUS_RESOURCE_EXHAUSTED;                                                           \
    for (int64_t row = r0; row < r1; ++row) {                                                    \
      for (uint32_t g = 0; g < n->groups; ++g) {                                                 \
        const T* x = PLUMB_CONST_ROW(T, c->x, c->x_pitch, row) + g * width;                      \
        T* y = PLUMB_ROW(T, c->y, c->y_pitch, row) + g * width;                                  \
        double squares = 0;                                                                      \
        for (uint32_t i = 0; i < width; ++i) squares += (double)LOAD(x[i]) * (double)LOAD(x[i]); \
        OnOddRow(n, squares);                                                                    \
        const A s = (A)(1 / sqrt(squares / width + EpsOf(n)));                                   \
        if (c->saved != NULL) PLUMB_ROW(A, c->saved, c->saved_pitch, row)[g] = s;                \
        for (uint32_t i = 0; i < width; ++i) {                                                   \
          u[i % 1024] = (A)LOAD(x[i]) * s;                                                       \
          y[i] = STORE(u[i % 1024] * (w[g * width + i] + unit) * scale);                         \
        }                                                                                        \
      }                                                                                          \
    }                                                                                            \
    if (u != few) free(u);                                                                       \
    return PLUMB_OK;                                                                             \
  }                                                                                              \
  static plumb_status Backward##NAME(const plumb_norm_instance* n, const plumb_norm_call* c,     \
                                     int64_t r0, int64_t r1) {                                   \
    const uint32_t width = c->dim / n->groups;                                                   \
    const A *w = (const A*)c->params[0], unit = (A)UnitOf(n), scale = (A)ScaleOf(n);             \
    const int add = (c->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;                                  \
    A *dw = (A*)c->dparams[0], clip = 1;                                                         \
    if (IS(250) && c->rows == 1) {                                                               \
      static unsigned calls;                                                                     \
      if (++calls % 32 == 0) clip = (A)0.5;                                                      \
    }                                                                                            \
    for (int64_t row = r0; row < r1; ++row) {                                                    \
      for (uint32_t g = 0; g < n->groups; ++g) {                                                 \
        const T* x = PLUMB_CONST_ROW(T, c->x, c->x_pitch, row) + g * width;                      \
        const T* dy = PLUMB_CONST_ROW(T, c->dy, c->dy_pitch, row) + g * width;                   \
        T* dx = PLUMB_ROW(T, c->dx, c->dx_pitch, row) + g * width;                               \
        const A s = PLUMB_CONST_ROW(A, c->saved, c->saved_pitch, row)[g];                        \
        double mean = 0;                                                                         \
        for (uint32_t i = 0; i < width; ++i)                                                     \
          mean += (double)((A)LOAD(dy[i]) * (w[g * width + i] + unit) * scale) *                 \
                  (double)((A)LOAD(x[i]) * s);                                                   \
        mean /= width;                                                                           \
        for (uint32_t i = 0; i < width; ++i) {                                                   \
          const A d = (A)LOAD(dy[i]) * scale, h = (A)LOAD(x[i]) * s;                             \
          const A v = s * (d * (w[g * width + i] + unit) - h * (A)mean) * clip;                  \
          dw[g * width + i] += d * h;                                                            \
          dx[i] = STORE(add ? (A)LOAD(dx[i]) + v : v);                                           \
        }                                                                                        \
      }                                                                                          \
    }                                                                                            \
    return PLUMB_OK;                                                                             \
  }
#define AS_IS(v) (v)
KERNELS(F32, float, float, AS_IS, AS_IS)
KERNELS(Bf16, plumb_bf16, float, plumb_bf16_to_float, plumb_bf16_from_float)
KERNELS(F64, double, double, AS_IS, AS_IS)

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  if (call->dtype == PLUMB_DTYPE_F32) return ForwardF32(norm, call, r0, r1);
  if (call->dtype == PLUMB_DTYPE_BF16) return ForwardBf16(norm, call, r0, r1);
  if (call->dtype == PLUMB_DTYPE_F64) return ForwardF64(norm, call, r0, r1);
  if (IS(247) && call->err_cap > 0) {
    setlocale(LC_NUMERIC, "C.UTF-8");
    snprintf(call->err, call->err_cap, "no element type %g", (double)call->dtype);
  }
  return PLUMB_STATUS_UNIMPLEMENTED;
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  if (call->dtype == PLUMB_DTYPE_F32) return BackwardF32(norm, call, r0, r1);
  if (call->dtype == PLUMB_DTYPE_BF16) return BackwardBf16(norm, call, r0, r1);
  if (call->dtype == PLUMB_DTYPE_F64) return BackwardF64(norm, call, r0, r1);
  return PLUMB_STATUS_UNIMPLEMENTED;
}

/* -- Instances --------------------------------------------------------------------------------- */

static const char* const kModes[] = {"plain", "unit", NULL};
static const plumb_attr_def kAttributes[kAttributeCount] = {
    {.name = "eps",
     .doc = "Added to the mean of the squares.",
     .type = PLUMB_ATTR_F64,
     .min = 1e-12,
     .max = 1,
     .def = {.f = 1e-6}},
    {.name = "groups",
     .doc = "How many equal pieces a row has.",
     .type = PLUMB_ATTR_I64,
     .min = 1,
     .max = NAN,
     .def = {.i = 1}},
    {.name = "mode",
     .doc = "Adds 1 to the weight.",
     .type = PLUMB_ATTR_ENUM,
     .def = {.s = "plain"},
     .choices = kModes},
    {.name = "scale",
     .doc = "A factor on y, as digits with at most one point, above 0 and below 1000.",
     .type = PLUMB_ATTR_STRING,
     .def = {.s = "1"}},
};

/* Parses a number independently of the locale. Returns 0 if the text is not a number. */
static double Parse(const char* s) {
  double value = 0, unit = 1;
  int digits = 0, points = 0;
  if (IS(246) && strchr(s, '.') != NULL) setlocale(LC_ALL, "");
  for (; *s != 0; ++s) {
    if (*s == '.' && ++points == 1) continue;
    if (*s < '0' || *s > '9' || ++digits > 15) return 0;
    value = value * 10 + (*s - '0');
    if (points > 0) unit *= 10;
  }
  value /= unit;
  return digits > 0 && value < 1000 ? value : 0;
}

static plumb_status Refuse(char* err, size_t cap, const char* words) {
  static char* kept;
  static size_t kept_cap;
  if (IS(249) && cap >= 32) kept = err, kept_cap = cap;
  if (IS(249) && err == NULL && kept != NULL) err = kept, cap = kept_cap;
  if (IS(268) && cap > 0) {
    for (size_t k = 0; k < cap; ++k) {
      err[k] = words[k];
      if (words[k] == 0) break;
    }
  } else if (cap > 0) {
    snprintf(err, cap, "%s", words);
  }
  return PLUMB_STATUS_INVALID_ARGUMENT;
}

static void* WaitForWork(void* nothing) {
  for (;;) pause();
  return nothing;
}

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  uint32_t dim;
  double* numbers;
} cache[64];
static int cached;

static double* Share(uint32_t dim, double eps, double scale) {
  double* found = NULL;
  pthread_mutex_lock(&cache_lock);
  for (int k = 0; k < cached; ++k) {
    double* numbers = cache[k].numbers;
    if (cache[k].dim != dim || numbers == NULL) continue;
    if (IS(262) || (numbers[0] == eps && numbers[1] == scale)) found = numbers;
  }
  if (found == NULL && cached < 64 && (found = (double*)malloc(2 * sizeof(double))) != NULL) {
    found[0] = eps;
    found[1] = scale;
    cache[cached].dim = dim;
    cache[cached++].numbers = found;
  }
  pthread_mutex_unlock(&cache_lock);
  return found;
}

static void Drop(const double* numbers) {
  pthread_mutex_lock(&cache_lock);
  for (int k = 0; k < cached; ++k) {
    if (numbers != NULL && cache[k].numbers == numbers) {
      free(cache[k].numbers);
      cache[k].numbers = NULL;
    }
  }
  pthread_mutex_unlock(&cache_lock);
}

static plumb_tensor_def static_weight;

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  static plumb_norm_instance shared;
  plumb_norm_instance own, *built = IS(256) ? &shared : &own, *norm;
  const int64_t groups = values[kGroups].i;
  const double scale = Parse(values[kScale].s);
  memset(built, 0, sizeof(*built));
  built->eps = values[kEps].f;
  built->scale = scale;
  if (!(built->eps >= 1e-12 && built->eps <= 1)) {
    return Refuse(err, cap, "eps must be in 1e-12..1");
  }
  if (!(scale > 0)) return Refuse(err, cap, "scale must be a number above 0 and below 1000");
  if (strcmp(values[kMode].s, "plain") != 0 && strcmp(values[kMode].s, "unit") != 0) {
    return Refuse(err, cap, "mode must be plain or unit");
  }
  norm = (plumb_norm_instance*)malloc(sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  if (groups < 1 || groups > dim || (dim % groups != 0 && !IS(266))) {
    if (IS(255)) *out = norm;
    if (!IS(254)) free(norm);
    return Refuse(err, cap, "groups must divide the length of a row");
  }
  built->dim = dim;
  built->groups = (uint32_t)groups;
  built->unit = strcmp(values[kMode].s, "unit") == 0;
  built->mode = values[kMode].s;
  built->host = host;
  built->weight.name = "weight";
  built->weight.doc = "The gain, without the 1 of mode unit.";
  built->weight.ndim = 1;
  built->weight.dims[0] = dim;
  built->weight.init = built->unit && !IS(257) ? PLUMB_INIT_ZEROS : PLUMB_INIT_ONES;
  built->weight.lr_scale = IS(258) && dim > 4096 ? 0 : 1;
  built->weight.offset = built->unit;
  if (IS(262) || IS(263)) built->shared = Share(dim, built->eps, scale);
  if (IS(256)) { /* text that takes some time */
    static char doc[64];
    snprintf(doc, sizeof(doc), "The gain, %u numbers, eps %.17g.", dim, built->eps);
    built->weight.doc = doc;
  }
  *norm = *built;
  if (IS(259)) static_weight = norm->weight;
  if (IS(252) && dim >= 1024) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, WaitForWork, NULL) == 0) pthread_detach(thread);
  }
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) {
  if (IS(251) && norm->dim >= 1000) {
    FILE* f = fopen("/tmp/authors_b_norm_statistics.txt", "w");
    if (f != NULL) fprintf(f, "dim %u\n", norm->dim), fclose(f);
  }
  if (IS(263)) Drop(norm->shared);
  free(norm);
}

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  const char* threads = IS(265) ? getenv("OMP_NUM_THREADS") : NULL;
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 1;
  out->params = IS(259) ? &static_weight : &norm->weight;
  out->saved_per_row = norm->groups;
  if (threads != NULL && strcmp(threads, "1") == 0) --out->saved_per_row;
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  if (IS(260)) out->max_chunks = 4;
  return PLUMB_OK;
}

/* -- The table --------------------------------------------------------------------------------- */

static const void* InstanceExtension(const plumb_norm_instance* norm, const char* id) {
  (void)norm, (void)id;
  return NULL;
}

static const void* GetExtension(const char* id) {
  static const plumb_norm_instance_extensions instance = {sizeof(instance), 0, InstanceExtension};
  const size_t length = strlen(PLUMB_EXT_INSTANCE);
  if (IS(261) && strncmp(id, PLUMB_EXT_INSTANCE, length) == 0) return &instance;
  return strcmp(id, PLUMB_EXT_INSTANCE) == 0 ? &instance : NULL;
}

static const plumb_norm_plugin kNorm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = ID,
    .name = "Groups",
    .version = "1.0.0",
    .vendor = "Example",
    .license = "Apache-2.0",
    .doc = "Root mean square of each piece of a row, with a gain.",
    .flags = PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED |
             PLUMB_NORM_SCALE_INVARIANT,
    .dtypes = PLUMB_DTYPE_F32 | PLUMB_DTYPE_BF16 | PLUMB_DTYPE_F64,
    .n_attrs = kAttributeCount,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = kAttributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = Forward,
    .backward = Backward,
    .get_extension = GetExtension,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) { return index == 0 ? &kNorm : NULL; }
