// SPDX-License-Identifier: Apache-2.0
#include "bench/norm_benchmark_cases.h"

#include <dlfcn.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>
#include <vector>

#include "plumb/ext/residual.h"
#include "plumb/norm_plugin.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"

namespace plumb {
namespace {

constexpr int64_t kFloat = sizeof(float);

int64_t ElementBytes(const NormCase& c) { return c.dtype == "bf16" ? 2 : 4; }

// Returns rows of standard normal numbers that repeat with a period that is coprime to cache lines.
AlignedBuffer RandomRows(const NormCase& c, uint32_t seed) {
  std::vector<float> numbers(4999);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& v : numbers) v = normal(random);
  AlignedBuffer buffer(c.rows * c.dim * ElementBytes(c));
  for (int64_t i = 0; i < c.rows * c.dim; ++i) {
    const float v = numbers[static_cast<size_t>(i) % numbers.size()];
    if (c.dtype == "bf16") {
      buffer.as<plumb_bf16>()[i] = plumb_bf16_from_float(v);
    } else {
      buffer.as<float>()[i] = v;
    }
  }
  return buffer;
}

// Partitions rows into the same ranges, on the same threads, as the runtime's op `norm`.
template <class Body>
void ForChunks(const NormCase& c, const Body& body) {
  const int64_t chunk_rows = std::max<int64_t>(8, (c.rows + 63) / 64);
  const int64_t chunks = (c.rows + chunk_rows - 1) / chunk_rows;
  ParallelFor(chunks, c.threads, [&](int64_t chunk) {
    body(chunk, chunk * chunk_rows, std::min(c.rows, (chunk + 1) * chunk_rows));
  });
}

// -- memcpy

struct Copy {
  explicit Copy(const NormCase& c_in)
      : c(c_in), row_bytes(GetBytes(c) / 2 / c.rows), from(row_bytes * c.rows), to(from.size()) {
    std::memset(from.data(), 1, static_cast<size_t>(from.size()));
    std::memset(to.data(), 1, static_cast<size_t>(to.size()));
  }
  void Run() const {
    ForChunks(c, [&](int64_t, int64_t r0, int64_t r1) {
      std::memcpy(to.data() + r0 * row_bytes, from.data() + r0 * row_bytes,
                  static_cast<size_t>((r1 - r0) * row_bytes));
    });
  }
  NormCase c;
  int64_t row_bytes;  // bytes read, and as many written
  AlignedBuffer from, to;
};

// -- plumb

// A norm of the build's plugin directory, or of the benchmark's own, by the name of its file, with
// default attributes.
struct OneNorm {
  const plumb_norm_plugin* plugin;
  plumb_norm_instance* instance;
  plumb_norm_layout layout;
};

// Loads a norm. Ends the process if that fails.
OneNorm LoadNorm(const std::string& id, int64_t dim) {
  std::string file = std::string(PLUMB_BENCH_PLUGIN_DIR) + "/" + id + ".so";
  if (access(file.c_str(), R_OK) != 0) {
    file = std::string(PLUMB_BENCH_OUTSIDE_DIR) + "/" + id + ".so";
  }
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* entry = library == nullptr ? nullptr : dlsym(library, PLUMB_NORM_ENTRY_SYMBOL);
  if (entry == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  OneNorm norm{reinterpret_cast<plumb_norm_plugin_v1_fn>(entry)(0), nullptr, {}};
  std::vector<plumb_attr_value> values;
  for (uint32_t i = 0; i < norm.plugin->n_attrs; ++i) values.push_back(norm.plugin->attrs[i].def);
  char error[256] = "";
  const plumb_status created = norm.plugin->create(nullptr, static_cast<uint32_t>(dim),
                                                   values.data(), &norm.instance, error, 256);
  norm.layout.struct_size = sizeof(norm.layout);
  if (created != PLUMB_OK || norm.plugin->layout(norm.instance, &norm.layout) != PLUMB_OK) {
    std::fprintf(stderr, "%s: %s\n", file.c_str(), error);
    std::exit(1);
  }
  return norm;
}

struct Plumb {
  explicit Plumb(const NormCase& c_in)
      : c(c_in),
        norm(LoadNorm(c.norm, c.dim)),
        x(RandomRows(c, 1)),
        other(RandomRows(c, 2)),
        result(x.size()),
        sum(c.pass == "forward" || c.pass == "backward" ? 0 : x.size()),
        saved(c.rows * std::max<int64_t>(1, norm.layout.saved_per_row) * kFloat),
        weights(norm.layout.n_params * vector_bytes()),
        partials(64 * norm.layout.n_params * vector_bytes()) {
    for (int64_t i = 0; i < weights.size() / kFloat; ++i) {
      weights.as<float>()[i] = 0.75f + static_cast<float>(i % 7) / 16;
    }
    for (uint32_t i = 0; i < norm.layout.n_params; ++i) {
      params.push_back(weights.data() + i * vector_bytes());
    }
    call.struct_size = sizeof(call);
    call.flags = PLUMB_CALL_TRAIN;
    if (row_bytes() % kAlignment == 0) call.flags |= PLUMB_CALL_ALIGNED64;
    call.dtype = c.dtype == "bf16" ? PLUMB_DTYPE_BF16 : PLUMB_DTYPE_F32;
    call.dim = static_cast<uint32_t>(c.dim);
    call.rows = c.rows;
    call.x = x.data();
    call.x_pitch = call.y_pitch = call.dy_pitch = call.dx_pitch = row_bytes();
    call.params = params.data();
    call.saved = saved.data();
    call.saved_pitch = norm.layout.saved_per_row * kFloat;
    call.y = result.data();
    if (c.pass == "backward") {
      Forward(call, nullptr);  // computes the statistics
      call.y = nullptr;
      call.dy = other.data();
      call.dx = result.data();
    }
    residual.struct_size = sizeof(residual);
    residual.res = other.data();
    residual.sum = sum.data();
    residual.res_pitch = residual.sum_pitch = row_bytes();
    if (norm.plugin->get_extension != nullptr) {
      extension =
          static_cast<const plumb_norm_residual*>(norm.plugin->get_extension(PLUMB_EXT_RESIDUAL));
    }
  }
  ~Plumb() { norm.plugin->destroy(norm.instance); }
  Plumb(const Plumb&) = delete;
  Plumb& operator=(const Plumb&) = delete;

  int64_t row_bytes() const { return c.dim * ElementBytes(c); }
  int64_t vector_bytes() const { return AlignUp(c.dim * kFloat); }
  bool Exists() const { return c.pass != "add_forward" || extension != nullptr; }

  void Forward(const plumb_norm_call& with, const plumb_norm_residual* fused) const {
    ForChunks(c, [&](int64_t, int64_t r0, int64_t r1) {
      if (fused != nullptr) {
        fused->forward(norm.instance, &with, &residual, r0, r1);
      } else {
        norm.plugin->forward(norm.instance, &with, r0, r1);
      }
    });
  }

  // Each chunk adds its parameters' gradients to zeroed memory, as in the runtime.
  void Backward() const {
    ForChunks(c, [&](int64_t chunk, int64_t r0, int64_t r1) {
      const int64_t bytes = norm.layout.n_params * vector_bytes();
      std::byte* mine = partials.data() + chunk * bytes;
      std::memset(mine, 0, static_cast<size_t>(bytes));
      void* pointers[8] = {};
      for (uint32_t i = 0; i < norm.layout.n_params && i < 8; ++i) {
        pointers[i] = mine + i * vector_bytes();
      }
      plumb_norm_call with = call;
      with.dparams = pointers;
      norm.plugin->backward(norm.instance, &with, r0, r1);
    });
  }

  // Computes only sum = x + other, in f32; the compiler vectorizes it.
  void Add() const {
    const float *a = x.as<float>(), *b = other.as<float>();
    float* s = sum.as<float>();
    ForChunks(c, [&](int64_t, int64_t r0, int64_t r1) {
      const int64_t end = r1 * c.dim;
#pragma omp simd
      for (int64_t i = r0 * c.dim; i < end; ++i) s[i] = a[i] + b[i];
    });
  }

  void Run() const {
    if (c.pass == "backward") return Backward();
    if (c.pass == "forward") return Forward(call, nullptr);
    if (c.pass == "add_forward") return Forward(call, extension);
    Add();
    plumb_norm_call of_sum = call;
    of_sum.x = sum.data();
    Forward(of_sum, nullptr);
  }

  NormCase c;
  OneNorm norm;
  AlignedBuffer x, other, result, sum, saved, weights, partials;  // other: dy, or the residual
  std::vector<const void*> params;
  plumb_norm_call call{};
  plumb_residual_call residual{};
  const plumb_norm_residual* extension = nullptr;
};

// -- oneDNN

// Version 3 takes the operands directly, version 2 a description of the operation.
using LayerNorm = dnnl::layer_normalization_forward;
using LayerNormGradient = dnnl::layer_normalization_backward;
constexpr float kEpsilon = 1e-5f;
const auto kFlags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;

LayerNorm::primitive_desc LayerNormDesc(const dnnl::engine& engine,
                                        const dnnl::memory::desc& rows) {
  const auto kind = dnnl::prop_kind::forward_training;
#if DNNL_VERSION_MAJOR >= 3
  return {engine, kind, rows, rows, kEpsilon, kFlags};
#else
  return {{kind, rows, kEpsilon, kFlags}, engine};
#endif
}

LayerNormGradient::primitive_desc LayerNormGradientDesc(const dnnl::engine& engine,
                                                        const dnnl::memory::desc& rows,
                                                        const LayerNorm::primitive_desc& forward) {
  const auto kind = dnnl::prop_kind::backward;
#if DNNL_VERSION_MAJOR >= 3
  return {engine, kind, rows, rows, rows, kEpsilon, kFlags, forward};
#else
  return {{kind, rows, rows, kEpsilon, kFlags}, engine, forward};
#endif
}

struct OneDnn {
  explicit OneDnn(const NormCase& c_in)
      : c(c_in), x(RandomRows(c, 1)), dy(RandomRows(c, 2)), result(x.size()) {
    using dnnl::memory;
    omp_set_num_threads(c.threads);
    const auto type = c.dtype == "bf16" ? memory::data_type::bf16 : memory::data_type::f32;
    const memory::desc rows({c.rows, c.dim}, type, memory::format_tag::ab);
    const memory::desc vector({c.dim}, memory::data_type::f32, memory::format_tag::a);
    const LayerNorm::primitive_desc forward = LayerNormDesc(engine, rows);
    const memory scale(vector, engine), shift(vector, engine);
    std::fill_n(static_cast<float*>(scale.get_data_handle()), c.dim, 1.0f);
    std::fill_n(static_cast<float*>(shift.get_data_handle()), c.dim, 1.0f);
    const memory mean(forward.mean_desc(), engine), variance(forward.variance_desc(), engine);
    const memory src(rows, engine, x.data()), dst(rows, engine, result.data());
    primitive = LayerNorm(forward);
    args = {{DNNL_ARG_SRC, src},           {DNNL_ARG_DST, dst},     {DNNL_ARG_MEAN, mean},
            {DNNL_ARG_VARIANCE, variance}, {DNNL_ARG_SCALE, scale}, {DNNL_ARG_SHIFT, shift}};
    if (c.pass == "forward") return;
    Run();  // computes the statistics
    primitive = LayerNormGradient(LayerNormGradientDesc(engine, rows, forward));
    args.erase(DNNL_ARG_DST);
    args.insert({DNNL_ARG_DIFF_DST, memory(rows, engine, dy.data())});
    args.insert({DNNL_ARG_DIFF_SRC, dst});
    args.insert({DNNL_ARG_DIFF_SCALE, memory(vector, engine)});
    args.insert({DNNL_ARG_DIFF_SHIFT, memory(vector, engine)});
  }
  void Run() const {
    omp_set_num_threads(c.threads);
    primitive.execute(stream, args);
    stream.wait();
  }
  NormCase c;
  AlignedBuffer x, dy, result;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  mutable dnnl::stream stream{engine};
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory> args;
};

template <class Case>
std::function<void()> Runner(const NormCase& c) {
  auto owned = std::make_shared<const Case>(c);
  return [owned] { owned->Run(); };
}

}  // namespace

int64_t GetBytes(const NormCase& c) {
  const int64_t operand = c.rows * c.dim * ElementBytes(c);
  if (c.pass == "forward") return 2 * operand;
  if (c.pass == "backward") return 3 * operand;
  return 4 * operand;  // x and the residual are read, sum and y are written
}

std::function<void()> MakeNormCase(const NormCase& c) {
  const bool plain = c.pass == "forward" || c.pass == "backward";
  const bool added = c.pass == "add_forward" || (c.pass == "add_then_forward" && c.dtype == "f32");
  if (c.rows < 1 || c.dim < 1 || !(plain || added) || (c.dtype != "f32" && c.dtype != "bf16")) {
    return nullptr;
  }
  if (c.by == "memcpy") return Runner<Copy>(c);
  if (c.by == "plumb") {
    auto owned = std::make_shared<const Plumb>(c);
    if (!owned->Exists()) return nullptr;
    return [owned] { owned->Run(); };
  }
  if (c.by != "onednn" || c.norm != "layer_norm" || !plain) return nullptr;
  try {
    return Runner<OneDnn>(c);
  } catch (const dnnl::error&) {  // there is no such primitive on this processor
    return nullptr;
  }
}

}  // namespace plumb
