// M5: the plugin with a host of another age. Structs grow at their end, so an older host's end
// where v1.0 ended, and a newer one's go on with fields that the plugin cannot know.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/calls.h"
#include "plugins/check/guarded.h"
#include "plugins/check/cases.h"
#include "plugins/check/checks.h"
#include "plugins/check/norm_run.h"

namespace plumb::check {
namespace {

constexpr int64_t kTimeRows = 5;
constexpr uint32_t kTimeDims[] = {16, 64, 8, 768, 1};
constexpr unsigned char kTailByte = 0xa5;

// A host's age, as a plugin sees it.
struct Age {
  const char* name;
  size_t tail;  // bytes behind what v1.0 has
  uint32_t minor;
};
constexpr Age kAges[] = {{"a host of v1.0", 0, 0}, {"a newer host", 256, 7}};

// Sizes of v1.0, which are frozen.
template <class T>
constexpr size_t kSizeV1 = 0;
template <>
constexpr size_t kSizeV1<plumb_host> = 32;
template <>
constexpr size_t kSizeV1<plumb_norm_layout> = 64;
template <>
constexpr size_t kSizeV1<plumb_norm_call> = 168;
template <>
constexpr size_t kSizeV1<plumb_residual_call> = 56;

// A struct as a host of some age lays it down: behind it comes an unreadable page.
template <class T>
class Aged {
 public:
  Aged(const T& value, const Age& age) : tail_(age.tail) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_ = 2 * page;
    void* map = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) throw CheckEnded{"the check has no memory"};
    map_ = static_cast<char*>(map);
    mprotect(map_ + page, page, PROT_NONE);
    // A newer host knows all that this header has, and more behind it.
    const size_t known = tail_ == 0 ? kSizeV1<T> : sizeof(T);
    at_ = map_ + page - known - tail_;
    std::memcpy(at_, &value, known);
    std::memset(at_ + known, kTailByte, tail_);
    const auto size = static_cast<uint32_t>(known + tail_);
    std::memcpy(at_, &size, sizeof(size));  // struct_size is the first field of every struct
  }
  ~Aged() { munmap(map_, size_); }
  Aged(const Aged&) = delete;
  Aged& operator=(const Aged&) = delete;

  T* get() { return reinterpret_cast<T*>(at_); }
  T& operator*() { return *get(); }
  // Whether anything has been written behind what this header has.
  bool TailTouched() const {
    for (size_t i = 0; i < tail_; ++i) {
      if (static_cast<unsigned char>(at_[sizeof(T) + i]) != kTailByte) return true;
    }
    return false;
  }

 private:
  char* map_ = nullptr;
  char* at_ = nullptr;
  size_t size_ = 0, tail_;
};

void Expect(plumb_status status, const char* function, const NormRun* run, const Age& age,
            const char* err = "") {
  if (status == PLUMB_OK) return;
  throw CheckEnded{absl::StrCat(function, "() answers ", StatusText(status), " to ", age.name,
                                run == nullptr ? "" : ", " + run->Name(),
                                err[0] == '\0' ? "" : ": ", err)};
}

// An instance made for a host of some age.
class AgedInstance {
 public:
  AgedInstance(const Instance& model, const Age& age)
      : norm_(model.norm()), host_(TestHost(), age), layout_(plumb_norm_layout{}, age) {
    host_.get()->abi_minor = age.minor;
    const std::vector<plumb_attr_value> values = DefaultValues(norm_);
    char err[512] = "";
    const plumb_status created = Guarded(Function::kCreate, model.dim(), [&] {
      return norm_.create(host_.get(), model.dim(), values.data(), &handle_, err, sizeof(err));
    });
    err[sizeof(err) - 1] = '\0';
    Expect(created, "create", nullptr, age, err);
    const plumb_status laid_out = Guarded(Function::kLayout, model.dim(),
                                          [&] { return norm_.layout(handle_, layout_.get()); });
    Expect(laid_out, "layout", nullptr, age);
  }
  ~AgedInstance() {
    if (handle_ != nullptr) norm_.destroy(handle_);
  }
  AgedInstance(const AgedInstance&) = delete;
  AgedInstance& operator=(const AgedInstance&) = delete;

  const plumb_norm_plugin& norm() const { return norm_; }
  const plumb_norm_instance* handle() const { return handle_; }

  void CompareLayout(const Instance& model, const Age& age, Report* report) {
    const plumb_norm_layout& ours = *layout_;
    const plumb_norm_layout& must = model.layout();
    if (ours.n_params != must.n_params || ours.n_buffers != must.n_buffers ||
        ours.saved_per_row != must.saved_per_row || ours.saved_per_call != must.saved_per_call ||
        ours.partial_elems != must.partial_elems || ours.backward_needs != must.backward_needs ||
        ours.scratch_bytes != must.scratch_bytes ||
        ours.scratch_bytes_per_row != must.scratch_bytes_per_row) {
      report->Fail(absl::StrCat("layout() answers otherwise to ", age.name));
    }
    if (layout_.TailTouched()) {
      report->Fail(absl::StrCat("layout() writes into fields that it cannot know, of ", age.name));
    }
  }

 private:
  const plumb_norm_plugin& norm_;
  Aged<plumb_host> host_;
  Aged<plumb_norm_layout> layout_;
  plumb_norm_instance* handle_ = nullptr;
};

// Statistics of all rows in one range, for a cross-row norm.
void TakeStatistics(const AgedInstance& instance, uint32_t phase, const plumb_norm_call& call,
                    const NormRun& run, const Age& age) {
  const uint32_t type = AccumulateType(run.dtype());
  Rows partial(type, 1, run.instance().layout().partial_elems);
  Rows total(type, 1, run.instance().layout().partial_elems);
  partial.Fill(0);
  total.Fill(0);
  const plumb_norm_plugin& norm = instance.norm();
  Expect(Guarded(Function::kStatsPartial, call, 0, kTimeRows,
                 [&] {
                   return norm.stats_partial(instance.handle(), phase, &call, 0, kTimeRows,
                                             partial.data());
                 }),
         "stats_partial", &run, age);
  Guarded(Function::kStatsCombine, call.dim, [&] {
    norm.stats_combine(instance.handle(), phase, &call, total.data(), partial.data());
  });
  Expect(
      Guarded(Function::kStatsFinalize, call, 0, kTimeRows,
              [&] { return norm.stats_finalize(instance.handle(), phase, &call, total.data()); }),
      "stats_finalize", &run, age);
}

// Forward and backward of a training step, with calls of that age.
Outcome TrainingStep(const AgedInstance& instance, const Age& age, NormRun* run) {
  const plumb_norm_plugin& norm = instance.norm();
  {
    Aged<plumb_norm_call> call(run->ForwardCall(/*train=*/true), age);
    if (run->TakesStatistics(true)) TakeStatistics(instance, PLUMB_FWD, *call, *run, age);
    Expect(Guarded(Function::kForward, *call, 0, kTimeRows,
                   [&] { return norm.forward(instance.handle(), call.get(), 0, kTimeRows); }),
           "forward", run, age);
  }
  Aged<plumb_norm_call> call(run->BackwardCall(/*accumulate=*/false), age);
  if (run->TakesStatistics(true)) TakeStatistics(instance, PLUMB_BWD, *call, *run, age);
  Expect(Guarded(Function::kBackward, *call, 0, kTimeRows,
                 [&] { return norm.backward(instance.handle(), call.get(), 0, kTimeRows); }),
         "backward", run, age);
  return run->Results();
}

// The same through the residual extension: y is the norm of x + dy.
Outcome ResidualStep(const plumb_norm_residual& extension, const AgedInstance& instance,
                     const Age& age, NormRun* run) {
  Rows sum(run->dtype(), kTimeRows, run->dim());
  plumb_residual_call residual{};
  residual.res = run->dy.data();
  residual.res_pitch = run->dy.pitch();
  residual.sum = sum.data();
  residual.sum_pitch = sum.pitch();
  {
    Aged<plumb_norm_call> call(run->ForwardCall(/*train=*/true), age);
    call.get()->flags &= ~uint32_t{PLUMB_CALL_ALIGNED64};
    Aged<plumb_residual_call> aged(residual, age);
    Expect(Guarded(Function::kResidualForward, *call, 0, kTimeRows,
                   [&] {
                     return extension.forward(instance.handle(), call.get(), aged.get(), 0,
                                              kTimeRows);
                   }),
           "the residual extension's forward", run, age);
  }
  run->x.Assign(sum.Values());
  residual = plumb_residual_call{};
  Aged<plumb_norm_call> call(run->BackwardCall(/*accumulate=*/false), age);
  Aged<plumb_residual_call> aged(residual, age);
  Expect(Guarded(Function::kResidualBackward, *call, 0, kTimeRows,
                 [&] {
                   return extension.backward(instance.handle(), call.get(), aged.get(), 0,
                                             kTimeRows);
                 }),
         "the residual extension's backward", run, age);
  return run->Results();
}

// Every age must give the same bits.
void CompareAges(const Instance& model, uint32_t dtype, uint64_t seed, const char* what,
                 const std::function<Outcome(const AgedInstance&, const Age&, NormRun*)>& step,
                 Report* report) {
  Outcome must;
  bool is_first = true;
  for (const Age& age : kAges) {
    if (age.minor < model.norm().min_host_minor) continue;  // that host refuses the norm
    AgedInstance instance(model, age);
    NormRun run(model, dtype, kTimeRows, seed);
    const Outcome got = step(instance, age, &run);
    if (std::exchange(is_first, false)) must = got;
    const std::string difference = FirstDifference(got, must, run.dim());
    if (!difference.empty()) {
      report->Fail(
          absl::StrCat(what, run.Name(), " gives other numbers to ", age.name, ": ", difference));
    }
  }
}

const void* ExtensionOf(const plumb_norm_plugin& norm, const std::string& id) {
  return Guarded(Function::kGetExtension, 0, [&] { return norm.get_extension(id.c_str()); });
}

void CheckUnknownExtensions(const plumb_norm_plugin& norm, Report* report) {
  if (norm.get_extension == nullptr) return;
  for (const std::string& id :
       {std::string("org.example.no_such_extension/1"), std::string(),
        std::string(PLUMB_EXT_RESIDUAL "x"), std::string("plumb.norm.residual/999"),
        std::string("plumb.norm.residual"), std::string(5000, 'x'),
        std::string(PLUMB_EXT_RESIDUAL "0"), std::string(PLUMB_EXT_COMBINE "0"),
        std::string(PLUMB_EXT_COMBINE "x"), std::string("plumb.norm.combine"),
        std::string("plumb.norm.combine/2"), std::string(PLUMB_EXT_INSTANCE "0"),
        std::string(PLUMB_EXT_INSTANCE "x"), std::string("plumb.norm.instance"),
        std::string("plumb.norm.instance/2")}) {
    if (ExtensionOf(norm, id) == nullptr) continue;
    report->Fail(absl::StrCat("get_extension(\"", id.substr(0, 60),
                              "\") is not NULL: no such extension exists"));
  }
}

// The residual extension of the norm, null if it has none that can be called.
const plumb_norm_residual* ResidualOf(const plumb_norm_plugin& norm, Report* report) {
  if (norm.get_extension == nullptr) return nullptr;
  const auto* residual =
      static_cast<const plumb_norm_residual*>(ExtensionOf(norm, PLUMB_EXT_RESIDUAL));
  if (residual == nullptr) return nullptr;
  if (ExtensionOf(norm, PLUMB_EXT_RESIDUAL) != residual) {
    report->Fail("get_extension(\"" PLUMB_EXT_RESIDUAL "\") gives another pointer the second time");
  }
  if (residual->struct_size < sizeof(plumb_norm_residual) || residual->forward == nullptr ||
      residual->backward == nullptr) {
    report->Fail("the extension " PLUMB_EXT_RESIDUAL " is incomplete");
    return nullptr;
  }
  return residual;
}

}  // namespace

void CheckTimeMachine(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  CheckUnknownExtensions(norm, report);
  const plumb_norm_residual* residual = ResidualOf(norm, report);
  for (const uint32_t dim : kTimeDims) {
    if (TryInstance(norm, dim) == nullptr) continue;
    const Instance model(norm, dim);
    for (const Age& age : kAges) {
      if (age.minor < norm.min_host_minor) continue;
      AgedInstance(model, age).CompareLayout(model, age, report);
    }
    for (const uint32_t dtype : {PLUMB_F32, PLUMB_BF16, PLUMB_F64}) {
      if ((norm.dtypes & dtype) == 0) continue;
      CompareAges(model, dtype, subject.seed, "", TrainingStep, report);
      if (residual == nullptr) continue;
      CompareAges(
          model, dtype, subject.seed, "the residual extension, ",
          [residual](const AgedInstance& instance, const Age& age, NormRun* run) {
            return ResidualStep(*residual, instance, age, run);
          },
          report);
    }
    return;  // one dim says it all
  }
  report->Skip("no dim is accepted with the default attributes (M2)");
}

}  // namespace plumb::check
