// y = x W^T by the three means at hand, on one thread: plumb's kernel for small products, oneDNN's
// sgemm function and oneDNN's matmul primitive: GFLOP/s, and heap allocations a call, of which
// plumb allows itself none.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "runtime/base/aligned_buffer.h"
#include "runtime/kernels/gemm/small_gemm.h"

namespace {
std::atomic<int64_t> g_allocations{0};
}  // namespace

// Every allocation of the process passes here, oneDNN's too. Not inlined: the compiler would see
// malloc and free behind the library's new and delete, and warn.
[[gnu::noinline]] void* operator new(std::size_t size) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

// x [m, k], w [n, k], y [m, n].
struct Problem {
  explicit Problem(const benchmark::State& state)
      : m(state.range(0)),
        n(state.range(1)),
        k(state.range(2)),
        x(m * k * kFloat),
        w(n * k * kFloat),
        y(m * n * kFloat),
        scratch(plumb::SmallGemmScratch(k) * kFloat) {}

  static constexpr int64_t kFloat = sizeof(float);
  int64_t m, n, k;
  plumb::AlignedBuffer x, w, y, scratch;
};

template <class Run>
void Measure(benchmark::State& state, const Problem& p, const Run& run) {
  for (int i = 0; i < 3; ++i) run();
  const int64_t before = g_allocations.load();
  for (auto _ : state) run();
  const double calls = static_cast<double>(state.iterations());
  state.counters["allocs/call"] = static_cast<double>(g_allocations.load() - before) / calls;
  state.counters["FLOP/s"] = benchmark::Counter(2.0 * static_cast<double>(p.m * p.n * p.k) * calls,
                                                benchmark::Counter::kIsRate);
}

void Small(benchmark::State& state) {
  const Problem p(state);
  const plumb::SmallGemmFn multiply = plumb::SelectSmallGemm(false, true);
  const plumb::SmallGemmArgs args{
      p.m, p.n, p.k, p.x.as<float>(), p.k, p.w.as<float>(), p.k, nullptr, p.y.as<float>(), p.n};
  Measure(state, p, [&] { multiply(args, p.scratch.as<float>()); });
}

void Sgemm(benchmark::State& state) {
  omp_set_num_threads(1);
  const Problem p(state);
  Measure(state, p, [&] {
    benchmark::DoNotOptimize(dnnl_sgemm('N', 'T', p.m, p.n, p.k, 1.0f, p.x.as<float>(), p.k,
                                        p.w.as<float>(), p.k, 0.0f, p.y.as<float>(), p.n));
  });
}

void Primitive(benchmark::State& state) {
  using dnnl::memory;
  omp_set_num_threads(1);
  const Problem p(state);
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto f32 = memory::data_type::f32;
  const memory::desc x({p.m, p.k}, f32, memory::dims{p.k, 1});
  const memory::desc w({p.k, p.n}, f32, memory::dims{1, p.k});
  const memory::desc y({p.m, p.n}, f32, memory::dims{p.n, 1});
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::matmul::primitive_desc desc({x, w, y}, attr, engine);
  const dnnl::matmul matmul(desc);
  const memory mx(x, engine, p.x.data()), mw(w, engine, p.w.data()), my(y, engine, p.y.data());
  const memory scratch(desc.scratchpad_desc(), engine);
  const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, mx.get()},
                                  {DNNL_ARG_WEIGHTS, mw.get()},
                                  {DNNL_ARG_DST, my.get()},
                                  {DNNL_ARG_SCRATCHPAD, scratch.get()}};
  Measure(state, p, [&] {
    benchmark::DoNotOptimize(dnnl_primitive_execute(matmul.get(), stream.get(), 4, args));
  });
}

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"m", "n", "k"});
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{7, 16, 16},
                                                                             {7, 64, 16},
                                                                             {16, 64, 64},
                                                                             {64, 128, 128},
                                                                             {768, 512, 128},
                                                                             {1024, 768, 768},
                                                                             {2048, 2048, 2048}}) {
    benchmark->Args(shape);
  }
}

BENCHMARK(Small)->Apply(Shapes);
BENCHMARK(Sgemm)->Apply(Shapes);
BENCHMARK(Primitive)->Apply(Shapes);

}  // namespace

BENCHMARK_MAIN();
