// SPDX-License-Identifier: Apache-2.0
// Measures memory-bound ops relative to a copy of equally many bytes, in f32 and bf16: each op and
// a copy are interleaved, on the same number of threads.
//
//   elementwise_benchmark [ROUNDS] [THREADS] [FILTER]     default: 31 rounds, 1 thread, all ops
//
// Prints for each op the bytes that it must move (operands read once, results written once), the
// minimum time, the rate, and the copy's time as a share of the op's: above 1, the op is faster. An
// op that can write its result over an operand runs in place.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/bf16.h"
#include "runtime/base/parallel.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

struct Operand {
  TensorType type;
  int32_t ids = 0;  // for i32: elements are drawn from [0, ids)
};

struct Case {
  std::string op;
  std::vector<Operand> inputs;
  Attrs attrs;
  int in_place = -1;  // index of the input whose memory output 0 takes; -1: none
};

[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

// Fills an operand with numbers between -2 and 2, or with ids.
void Fill(const Operand& operand, void* to) {
  uint32_t state = 1;
  for (int64_t i = 0; i < operand.type.num_elements(); ++i) {
    state = state * 1664525u + 1013904223u;
    const float x = static_cast<float>(state >> 8) / 4194304.0f - 2;
    if (operand.type.dtype == DType::kI32) {
      static_cast<int32_t*>(to)[i] =
          static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(operand.ids));
    } else if (operand.type.dtype == DType::kBF16) {
      static_cast<uint16_t*>(to)[i] = Bf16FromFloat(x);
    } else {
      static_cast<float*>(to)[i] = x;
    }
  }
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// An op with its operands in memory.
class Run {
 public:
  Run(const OpRegistry& registry, const Case& c) {
    GraphBuilder b(&registry);
    std::vector<ValueId> ids;
    for (const Operand& input : c.inputs) {
      ids.push_back(b.Input(absl::StrCat("in", ids.size()), input.type));
    }
    const std::vector<ValueId> outputs = b.ApplyAll(c.op, ids, c.attrs);
    if (!b.ok()) Die(std::move(b).Finish().status());
    for (const Operand& input : c.inputs) {
      memory_.emplace_back(input.type.bytes());
      Fill(input, memory_.back().data());
      in_.push_back(memory_.back().data());
      bytes_ += input.type.bytes();
      in_types_.push_back(input.type);
    }
    for (const ValueId output : outputs) {
      out_types_.push_back(b.type(output));
      bytes_ += out_types_.back().bytes();
      const bool shares = out_.empty() && c.in_place >= 0;
      if (!shares) {
        memory_.emplace_back(out_types_.back().bytes());
        std::memset(memory_.back().data(), 0, static_cast<size_t>(out_types_.back().bytes()));
      }
      out_.push_back(shares ? const_cast<void*>(in_[static_cast<size_t>(c.in_place)])
                            : memory_.back().data());
    }
    attrs_ = c.attrs;
    std::vector<const TensorType*> in, out;
    for (const TensorType& type : in_types_) in.push_back(&type);
    for (const TensorType& type : out_types_) out.push_back(&type);
    auto kernel = registry.Find(c.op)->make_kernel({in, out, attrs_});
    if (!kernel.ok()) Die(kernel.status());
    kernel_ = *std::move(kernel);
    scratch_ = AlignedBuffer(std::max<int64_t>(64, kernel_->scratch_bytes()));
    std::memset(scratch_.data(), 0, static_cast<size_t>(scratch_.size()));
  }

  int64_t bytes() const { return bytes_; }

  double Once(int threads) const {
    const double start = Seconds();
    const absl::Status status = kernel_->Run({in_.data(), out_.data(), scratch_.data(), threads});
    const double end = Seconds();
    if (!status.ok()) Die(status);
    return end - start;
  }

 private:
  std::vector<AlignedBuffer> memory_;
  AlignedBuffer scratch_;
  std::vector<TensorType> in_types_, out_types_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  Attrs attrs_;
  std::unique_ptr<Kernel> kernel_;
  int64_t bytes_ = 0;
};

// A copy that reads half of the bytes and writes the other half.
class Copy {
 public:
  explicit Copy(int64_t bytes) : half_(bytes / 2), from_(half_ + 64), to_(half_ + 64) {
    std::memset(from_.data(), 1, static_cast<size_t>(half_));
    std::memset(to_.data(), 1, static_cast<size_t>(half_));
  }
  double Once(int threads) const {
    const double start = Seconds();
    const int64_t tasks = std::min<int64_t>(threads, 1 + half_ / 65536);
    ParallelFor(tasks, threads, [&](int64_t i) {
      const Range range = TaskRange(half_, tasks, i);
      std::memcpy(to_.data() + range.begin, from_.data() + range.begin,
                  static_cast<size_t>(range.end - range.begin));
    });
    return Seconds() - start;
  }

 private:
  int64_t half_;
  AlignedBuffer from_, to_;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* op, std::vector<Operand> inputs, Attrs attrs = {},
                       int in_place = -1) {
    cases.push_back({op, std::move(inputs), std::move(attrs), in_place});
  };
  const std::vector<double> ones = {1, 1};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto floats = [](DType type, std::vector<int64_t> dims) {
      Operand operand;
      operand.type.dtype = type;
      operand.type.shape = Shape(dims);
      return operand;
    };
    const auto ids = [](int64_t n, int32_t below) {
      Operand operand;
      operand.type = I32({n});
      operand.ids = below;
      return operand;
    };
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{768, 512}, {1024, 3072}}) {
      const Operand hidden = floats(dtype, {rows, width});
      for (const char* kind : {"gelu", "gelu_tanh", "silu"}) {
        const Attrs attrs({{"kind", std::string(kind)}});
        add("act", {hidden}, attrs);
        add("act_grad", {hidden, hidden}, attrs, 1);
      }
      add("gated", {hidden, hidden}, Attrs({{"kind", std::string("silu")}}));
      add("mul_reduce", {hidden});
      add("combine", {hidden, hidden}, Attrs({{"coefs", ones}}));
      add("mul", {hidden, hidden});
      add("mul", {hidden, floats(DType::kF32, {width})});
      add("mul_reduce", {hidden, hidden}, Attrs({{"size", width}}));
    }
    add("rope", {floats(dtype, {1, 1024, 768}), ids(1024, 1024)},
        Attrs({{"head_dim", int64_t{64}}, {"theta", 10000.0}}));
    for (const auto& [rows, words] : {std::pair<int64_t, int32_t>{768, 65}, {256, 50304}}) {
      const Operand logits = floats(dtype, {rows, words}), targets = ids(rows, words);
      add("cross_entropy", {logits, targets});
      add("cross_entropy_grad",
          {logits, targets, floats(DType::kF32, {rows}), floats(DType::kF32, {1})}, {}, 0);
    }
    add("embedding", {floats(dtype, {50304, 768}), ids(1024, 50304)});
    add("embedding_grad",
        {ids(1024, 50304), floats(dtype, {1024, 768}), floats(DType::kF32, {50304, 768})},
        Attrs({{"rows", int64_t{50304}}}), 2);
  }
  return cases;
}

std::string Describe(const Case& c) {
  std::string text = c.op;
  if (c.attrs.Has("kind")) absl::StrAppend(&text, " ", c.attrs.GetString("kind"));
  const bool tables = c.op == "embedding_grad";
  absl::StrAppend(&text, " ", c.inputs[tables ? 1 : 0].type.ToString());
  if (c.inputs.size() > 1 && c.inputs[1].type.shape.rank() == 1 && c.op == "mul") {
    absl::StrAppend(&text, " by a vector");
  }
  return text;
}

// Returns the bytes that a case moves. Only those rows of a table count whose ids occur.
int64_t BytesMoved(const Case& c, int64_t all) {
  if (c.op == "embedding") {
    const TensorType& table = c.inputs[0].type;
    return 2 * c.inputs[1].type.num_elements() * table.shape.last() * SizeOf(table.dtype);
  }
  if (c.op == "embedding_grad") {
    const TensorType& dy = c.inputs[1].type;
    return dy.bytes() + 2 * dy.num_elements() * SizeOf(DType::kF32);
  }
  return all;
}

void Main(int rounds, int threads, const std::string& filter) {
  OpRegistry registry;
  RegisterOps(&registry);
  std::printf("%-44s %10s %10s %8s %8s %8s\n", "op", "bytes", "us", "GB/s", "copy us", "of copy");
  for (const Case& c : Cases()) {
    const std::string name = Describe(c);
    if (name.find(filter) == std::string::npos) continue;
    const Run run(registry, c);
    const int64_t bytes = BytesMoved(c, run.bytes());
    const Copy copy(bytes);
    double best = 1e9, best_copy = 1e9;
    run.Once(threads);
    for (int round = 0; round < rounds; ++round) {
      best = std::min(best, run.Once(threads));
      best_copy = std::min(best_copy, copy.Once(threads));
    }
    std::printf("%-44s %10lld %10.1f %8.1f %8.1f %8.2f\n", name.c_str(),
                static_cast<long long>(bytes), best * 1e6, static_cast<double>(bytes) / best * 1e-9,
                best_copy * 1e6, best_copy / best);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace plumb

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 31;
  const int threads = argc > 2 ? std::max(1, std::atoi(argv[2])) : 1;
  plumb::Main(rounds, threads, argc > 3 ? argv[3] : "");
  return 0;
}
