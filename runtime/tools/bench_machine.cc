#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/status.h"
#include "runtime/kernels/gemv/read_speed.h"
#include "runtime/onednn/gemm_speed.h"
#include "runtime/tools/bench.h"
#include "runtime/tools/out_of_memory.h"

namespace plumb {
namespace {
constexpr int64_t kReadBytes = int64_t{512} << 20;
}  // namespace

struct MachineSpeed::Impl {
  int threads = 1;
  std::map<std::string, std::unique_ptr<GemmSpeed>> matmul;  // by dtype
  AlignedBuffer memory;
};

MachineSpeed::MachineSpeed(Runtime* runtime) : impl_(std::make_unique<Impl>()) {
  impl_->threads = runtime->threads();
}
MachineSpeed::~MachineSpeed() = default;

absl::StatusOr<double> MachineSpeed::MeasureMatmul(const std::string& dtype) {
  if (dtype != "f32" && dtype != "bf16") {
    return absl::InvalidArgumentError(absl::StrCat("no matrix product of ", dtype, " to measure"));
  }
  std::unique_ptr<GemmSpeed>& matmul = impl_->matmul[dtype];
  if (matmul == nullptr) {
    const DType type = dtype == "f32" ? DType::kF32 : DType::kBF16;
    PLUMB_ASSIGN_OR_RETURN(matmul, OrOutOfMemory("the matrices of the GEMM measurement", [&] {
                             return GemmSpeed::Create(type, impl_->threads);
                           }));
    PLUMB_RETURN_IF_ERROR(matmul->Measure().status());  // the first time is slower
  }
  return matmul->Measure();
}

absl::StatusOr<double> MachineSpeed::MeasureRead() {
  if (impl_->memory.size() == 0) {
    PLUMB_RETURN_IF_ERROR(OrOutOfMemory("the buffer of the memory measurement", [this] {
      impl_->memory = AlignedBuffer(kReadBytes);
      return absl::OkStatus();
    }));
  }
  const auto data = absl::MakeConstSpan(impl_->memory.as<float>(), kReadBytes / sizeof(float));
  return MeasureReadSpeed(data, impl_->threads);
}

int64_t PeakMemoryBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!absl::StartsWith(line, "VmHWM:")) continue;
    return 1024 * std::strtoll(line.c_str() + sizeof("VmHWM:"), nullptr, 10);  // "VmHWM:  12 kB"
  }
  return 0;
}

bool ResetPeakMemory() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5";
  return static_cast<bool>(clear.flush());
}

}  // namespace plumb
