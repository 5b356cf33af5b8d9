// SPDX-License-Identifier: Apache-2.0
#include "runtime/onednn/gemm_speed.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/divide.h"
#include "runtime/base/memory.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/onednn/functions.h"
#include "runtime/onednn/library.h"
#include "runtime/onednn/one_thread.h"

namespace plumb {
namespace {

constexpr int64_t kSize = 2048;
// Number of row parts per thread. Few, because every part reads the whole packed operand.
constexpr int kPartsPerThread = 4;

absl::Status Failure(dnnl_status_t status) {
  const std::string what = absl::StrCat("oneDNN matmul: status ", status);
  if (status == dnnl_unimplemented) return absl::UnimplementedError(what);
  if (status == dnnl_out_of_memory) return absl::ResourceExhaustedError(what + ": out of memory");
  return absl::InternalError(what);
}

#define RETURN_IF_ONEDNN_FAILS(call) \
  if (const dnnl_status_t status = (call); status != dnnl_success) return Failure(status)

}  // namespace

// Types of the members of Impl.
namespace onednn {

// A handle of the library and the function that destroys it.
template <class Handle>
class Owned {
 public:
  explicit Owned(dnnl_status_t (*destroy)(Handle)) : destroy_(destroy) {}
  Owned(Owned&& other) noexcept : handle_(other.handle_), destroy_(other.destroy_) {
    other.handle_ = nullptr;
  }
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (handle_ != nullptr) destroy_(handle_);
  }
  Handle get() const { return handle_; }
  Handle* out() { return &handle_; }

 private:
  Handle handle_ = nullptr;
  dnnl_status_t (*destroy_)(Handle);
};

}  // namespace onednn

namespace {

using onednn::Owned;

// Type and layout of a matrix: a value in version 2, a handle in version 3. Version 3 passes these
// directly to the matmul, version 2 passes a description of the operation.
#if DNNL_VERSION_MAJOR >= 3
using ConstDesc = const_dnnl_memory_desc_t;
class MatrixDesc {
 public:
  explicit MatrixDesc(const OneDnnFunctions& f) : desc_(f.memory_desc_destroy) {}
  dnnl_status_t Init(const OneDnnFunctions& f, int64_t rows, int64_t columns, dnnl_data_type_t type,
                     dnnl_format_tag_t tag) {
    const dnnl_dims_t dims = {rows, columns};
    return f.memory_desc_create_with_tag(desc_.out(), 2, dims, type, tag);
  }
  ConstDesc get() const { return desc_.get(); }

 private:
  Owned<dnnl_memory_desc_t> desc_;
};

dnnl_status_t DescribeMatmul(const OneDnnFunctions& f, dnnl_engine_t engine, ConstDesc src,
                             ConstDesc weights, ConstDesc dst, const_dnnl_primitive_attr_t attr,
                             dnnl_primitive_desc_t* desc) {
  return f.matmul_primitive_desc_create(desc, engine, src, weights, nullptr, dst, attr);
}
#else
using ConstDesc = const dnnl_memory_desc_t*;
class MatrixDesc {
 public:
  explicit MatrixDesc(const OneDnnFunctions&) {}
  dnnl_status_t Init(const OneDnnFunctions& f, int64_t rows, int64_t columns, dnnl_data_type_t type,
                     dnnl_format_tag_t tag) {
    const dnnl_dims_t dims = {rows, columns};
    return f.memory_desc_init_by_tag(&desc_, 2, dims, type, tag);
  }
  ConstDesc get() const { return &desc_; }

 private:
  dnnl_memory_desc_t desc_ = {};
};

dnnl_status_t DescribeMatmul(const OneDnnFunctions& f, dnnl_engine_t engine, ConstDesc src,
                             ConstDesc weights, ConstDesc dst, const_dnnl_primitive_attr_t attr,
                             dnnl_primitive_desc_t* desc) {
  dnnl_matmul_desc_t operation = {};
  const dnnl_status_t status = f.matmul_desc_init(&operation, src, weights, nullptr, dst);
  if (status != dnnl_success) return status;
  return f.primitive_desc_create(desc, &operation, attr, engine, nullptr);
}
#endif

}  // namespace

struct GemmSpeed::Impl {
  using Memory = onednn::Owned<dnnl_memory_t>;
  // Some rows of the product, with their own memory.
  struct Part {
    explicit Part(const OneDnnFunctions& f) : stream(f.stream_destroy) {}

    AlignedBuffer src, dst, scratch;
    onednn::Owned<dnnl_stream_t> stream;
    std::vector<Memory> memories;
    std::vector<dnnl_exec_arg_t> args;
  };

  explicit Impl(int thread_count) : threads(thread_count) {}
  absl::Status Init(dnnl_data_type_t dtype);
  // Adds an operand with layout `desc` at `data` to the arguments of `part`.
  absl::Status AddOperand(int arg, ConstDesc desc, void* data, Part* part);
  absl::StatusOr<double> Multiply();  // returns seconds

  const OneDnnFunctions& onednn = LoadedOneDnn();
  const int threads;
  onednn::Owned<dnnl_engine_t> engine{onednn.engine_destroy};
  onednn::Owned<dnnl_primitive_t> matmul{onednn.primitive_destroy};
  AlignedBuffer weights;
  std::vector<Part> parts;
  double flops = 0;  // sum over all parts
};

absl::Status GemmSpeed::Impl::AddOperand(int arg, ConstDesc desc, void* data, Part* part) {
  part->memories.emplace_back(onednn.memory_destroy);
  Memory& memory = part->memories.back();
  RETURN_IF_ONEDNN_FAILS(onednn.memory_create(memory.out(), desc, engine.get(), data));
  part->args.push_back({arg, memory.get()});
  return absl::OkStatus();
}

absl::Status GemmSpeed::Impl::Init(dnnl_data_type_t dtype) {
  const OneThread one_thread(onednn);
  RETURN_IF_ONEDNN_FAILS(onednn.engine_create(engine.out(), dnnl_cpu, 0));
  const int64_t rows = std::max<int64_t>(1, kSize / (threads * kPartsPerThread));
  MatrixDesc some_rows(onednn), any(onednn);  // some_rows describes both src and dst
  RETURN_IF_ONEDNN_FAILS(some_rows.Init(onednn, rows, kSize, dtype, dnnl_ab));
  RETURN_IF_ONEDNN_FAILS(any.Init(onednn, kSize, kSize, dtype, dnnl_format_tag_any));
  Owned<dnnl_primitive_attr_t> attr(onednn.primitive_attr_destroy);
  RETURN_IF_ONEDNN_FAILS(onednn.primitive_attr_create(attr.out()));
  RETURN_IF_ONEDNN_FAILS(
      onednn.primitive_attr_set_scratchpad_mode(attr.get(), dnnl_scratchpad_mode_user));
  Owned<dnnl_primitive_desc_t> desc(onednn.primitive_desc_destroy);
  RETURN_IF_ONEDNN_FAILS(DescribeMatmul(onednn, engine.get(), some_rows.get(), any.get(),
                                        some_rows.get(), attr.get(), desc.out()));
  RETURN_IF_ONEDNN_FAILS(onednn.primitive_create(matmul.out(), desc.get()));
  const auto described = [&](dnnl_query_t what) {
    return onednn.primitive_desc_query_md(desc.get(), what, 0);
  };
  const ConstDesc packed = described(dnnl_query_weights_md);
  const ConstDesc scratch = described(dnnl_query_scratchpad_md);
  const auto bytes = [&](ConstDesc of) {
    return static_cast<int64_t>(onednn.memory_desc_get_size(of));
  };
  // Zeros stay zeros when they are packed, and the values do not change the time.
  weights = AlignedBuffer(bytes(packed));
  const int64_t count = CeilDiv(kSize, rows);
  flops = 2.0 * kSize * kSize * static_cast<double>(rows) * static_cast<double>(count);
  parts.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    Part& part = parts.emplace_back(onednn);
    part.src = AlignedBuffer(bytes(some_rows.get()));
    part.dst = AlignedBuffer(bytes(some_rows.get()));
    part.scratch = AlignedBuffer(bytes(scratch));
    RETURN_IF_ONEDNN_FAILS(
        onednn.stream_create(part.stream.out(), engine.get(), dnnl_stream_default_flags));
    PLUMB_RETURN_IF_ERROR(AddOperand(DNNL_ARG_SRC, some_rows.get(), part.src.data(), &part));
    PLUMB_RETURN_IF_ERROR(AddOperand(DNNL_ARG_WEIGHTS, packed, weights.data(), &part));
    PLUMB_RETURN_IF_ERROR(AddOperand(DNNL_ARG_DST, some_rows.get(), part.dst.data(), &part));
    PLUMB_RETURN_IF_ERROR(AddOperand(DNNL_ARG_SCRATCHPAD, scratch, part.scratch.data(), &part));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> GemmSpeed::Impl::Multiply() {
  using Clock = std::chrono::steady_clock;
  std::vector<dnnl_status_t> ended(parts.size(), dnnl_success);
  const Clock::time_point start = Clock::now();
  ParallelFor(static_cast<int64_t>(parts.size()), threads, [&](int64_t i) {
    const OneThread one_thread(onednn);
    const Part& part = parts[static_cast<size_t>(i)];
    ended[static_cast<size_t>(i)] = onednn.primitive_execute(
        matmul.get(), part.stream.get(), static_cast<int>(part.args.size()), part.args.data());
  });
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  for (const dnnl_status_t each : ended) RETURN_IF_ONEDNN_FAILS(each);
  return seconds;
}

GemmSpeed::GemmSpeed(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GemmSpeed::~GemmSpeed() = default;

absl::StatusOr<std::unique_ptr<GemmSpeed>> GemmSpeed::Create(DType dtype, int threads) {
  if (dtype != DType::kF32 && dtype != DType::kBF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("no matrix product of ", DTypeName(dtype), " to measure"));
  }
  if (!OneDnn().usable()) return absl::UnimplementedError(OneDnn().problem);
  // The library crashes if it gets no memory for the code of a primitive, so this is checked here.
  constexpr int64_t kRequiredBytes = int64_t{32} << 20;
  if (!HasMemoryFor(kRequiredBytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("oneDNN matmul: no memory for its code; ", MemoryLimitText()));
  }
  auto impl = std::make_unique<Impl>(std::clamp(threads, 1, 256));
  PLUMB_RETURN_IF_ERROR(impl->Init(dtype == DType::kF32 ? dnnl_f32 : dnnl_bf16));
  return std::unique_ptr<GemmSpeed>(new GemmSpeed(std::move(impl)));
}

absl::StatusOr<double> GemmSpeed::Measure() {
  // The first product touches pages and wakes workers; the second is timed.
  PLUMB_RETURN_IF_ERROR(impl_->Multiply().status());
  PLUMB_ASSIGN_OR_RETURN(const double seconds, impl_->Multiply());
  return impl_->flops / seconds;
}

}  // namespace plumb
