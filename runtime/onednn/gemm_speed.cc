#include "runtime/onednn/gemm_speed.h"

#include <algorithm>
#include <chrono>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/onednn/one_thread.h"

namespace plumb {
namespace {

using dnnl::memory;

constexpr int64_t kSize = 2048;
// Rows are cut for each thread into this many parts: long ones, as every part reads all of the
// packed operand.
constexpr int kPartsPerThread = 4;

absl::Status Failure(const dnnl::error& error) {
  const std::string what = absl::StrCat("oneDNN matmul: ", error.what());
  return error.status == dnnl_unimplemented ? absl::UnimplementedError(what)
                                            : absl::InternalError(what);
}

// oneDNN 3 takes the operands where version 2 took a description of the operation.
dnnl::matmul::primitive_desc MatMulDesc(const dnnl::engine& engine, const memory::desc& src,
                                        const memory::desc& weights, const memory::desc& dst,
                                        const dnnl::primitive_attr& attr) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, src, weights, dst, attr};
#else
  return {{src, weights, dst}, attr, engine};
#endif
}

}  // namespace

struct GemmSpeed::Impl {
  // Some rows of the product, with memory of their own.
  struct Part {
    AlignedBuffer src, dst, scratch;
    dnnl::stream stream;
    std::vector<dnnl_exec_arg_t> args;
    std::vector<memory> memories;
  };

  int threads;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  AlignedBuffer weights;
  memory packed;
  dnnl::matmul matmul;
  std::vector<Part> parts;
  double flops;  // of all parts

  Impl(memory::data_type dtype, int thread_count);
  absl::Status Multiply();
};

GemmSpeed::Impl::Impl(memory::data_type dtype, int thread_count) : threads(thread_count) {
  const OneThread one_thread;
  const int64_t rows = std::max<int64_t>(1, kSize / (threads * kPartsPerThread));
  const memory::desc src({rows, kSize}, dtype, memory::format_tag::ab);
  const memory::desc any({kSize, kSize}, dtype, memory::format_tag::any);
  const memory::desc dst({rows, kSize}, dtype, memory::format_tag::ab);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::matmul::primitive_desc desc = MatMulDesc(engine, src, any, dst, attr);
  matmul = dnnl::matmul(desc);
  // Zeros, packed or not, are zeros; and what the numbers are does not change the time.
  weights = AlignedBuffer(static_cast<int64_t>(desc.weights_desc().get_size()));
  packed = memory(desc.weights_desc(), engine, weights.data());
  parts.resize(static_cast<size_t>(CeilDiv(kSize, rows)));
  flops = 2.0 * kSize * kSize * static_cast<double>(rows) * static_cast<double>(parts.size());
  for (Part& part : parts) {
    part.src = AlignedBuffer(static_cast<int64_t>(src.get_size()));
    part.dst = AlignedBuffer(static_cast<int64_t>(dst.get_size()));
    part.scratch = AlignedBuffer(static_cast<int64_t>(desc.scratchpad_desc().get_size()));
    part.stream = dnnl::stream(engine);
    part.memories = {memory(src, engine, part.src.data()), memory(dst, engine, part.dst.data()),
                     memory(desc.scratchpad_desc(), engine, part.scratch.data())};
    part.args = {{DNNL_ARG_SRC, part.memories[0].get()},
                 {DNNL_ARG_WEIGHTS, packed.get()},
                 {DNNL_ARG_DST, part.memories[1].get()},
                 {DNNL_ARG_SCRATCHPAD, part.memories[2].get()}};
  }
}

absl::Status GemmSpeed::Impl::Multiply() {
  std::vector<dnnl_status_t> status(parts.size(), dnnl_success);
  ParallelFor(static_cast<int64_t>(parts.size()), threads, [&](int64_t i) {
    const OneThread one_thread;
    Part& part = parts[static_cast<size_t>(i)];
    status[static_cast<size_t>(i)] = dnnl_primitive_execute(
        matmul.get(), part.stream.get(), static_cast<int>(part.args.size()), part.args.data());
  });
  for (const dnnl_status_t each : status) {
    if (each != dnnl_success) return absl::InternalError(absl::StrCat("oneDNN matmul: ", each));
  }
  return absl::OkStatus();
}

GemmSpeed::GemmSpeed(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GemmSpeed::~GemmSpeed() = default;

absl::StatusOr<std::unique_ptr<GemmSpeed>> GemmSpeed::Create(DType dtype, int threads) {
  if (dtype != DType::kF32 && dtype != DType::kBF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("no matrix product of ", DTypeName(dtype), " to measure"));
  }
  const auto type = dtype == DType::kF32 ? memory::data_type::f32 : memory::data_type::bf16;
  try {
    return std::unique_ptr<GemmSpeed>(
        new GemmSpeed(std::make_unique<Impl>(type, std::clamp(threads, 1, 256))));
  } catch (const dnnl::error& error) {
    return Failure(error);
  }
}

absl::StatusOr<double> GemmSpeed::Measure() {
  using Clock = std::chrono::steady_clock;
  double seconds = 0;
  // The first product touches pages and wakes workers; the second is timed.
  for (int i = 0; i < 2; ++i) {
    const Clock::time_point start = Clock::now();
    PLUMB_RETURN_IF_ERROR(impl_->Multiply());
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return impl_->flops / seconds;
}

}  // namespace plumb
