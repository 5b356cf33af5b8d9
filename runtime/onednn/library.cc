// SPDX-License-Identifier: Apache-2.0
#include "runtime/onednn/library.h"

#include <dlfcn.h>

#include <atomic>
#include <cfenv>
#include <cstring>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/memory.h"
#include "runtime/onednn/functions.h"

#define PLUMB_TEXT_OF(x) #x
#define PLUMB_TEXT(x) PLUMB_TEXT_OF(x)

#if defined(__SANITIZE_ADDRESS__)
#define PLUMB_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PLUMB_ADDRESS_SANITIZER
#endif
#endif
#ifdef PLUMB_ADDRESS_SANITIZER
// Default options of a program that is built with the address sanitizer. The leak sanitizer guesses
// the address of the thread-local memory of a library that is loaded late. With newer C libraries
// the guess is wrong, and the leak check would end the program.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "intercept_tls_get_addr=0"; }
#endif

namespace plumb {
namespace {

constexpr char kFileName[] = PLUMB_ONEDNN_SONAME;
// File names to try in this order, because the system may name oneDNN differently than the one
// where plumb was built. Load() rejects a library of another major version.
constexpr const char* kFileNames[] = {
    kFileName, "libdnnl.so." PLUMB_TEXT(DNNL_VERSION_MAJOR),
    "libdnnl.so." PLUMB_TEXT(DNNL_VERSION_MAJOR) "." PLUMB_TEXT(DNNL_VERSION_MINOR)};

struct Loaded {
  OneDnnLibrary library;
  OneDnnFunctions functions;
};

// Restores the mode, because a library built with -ffast-math sets flush-to-zero in the thread that
// loads it.
class KeepFloatMode {
 public:
  KeepFloatMode() { std::fegetenv(&environment_); }
  ~KeepFloatMode() { std::fesetenv(&environment_); }
  KeepFloatMode(const KeepFloatMode&) = delete;
  KeepFloatMode& operator=(const KeepFloatMode&) = delete;

 private:
  std::fenv_t environment_;
};

std::string LoaderError() {
  const char* error = dlerror();
  return error != nullptr ? error : absl::StrCat(kFileName, ": could not be loaded");
}

// Returns the scope that every library of the process searches first: the program, its
// dependencies, and libraries that were loaded with RTLD_GLOBAL. It excludes the dependencies of
// libplumb alone.
void* GlobalScope() { return dlopen(nullptr, RTLD_NOW); }

bool IsInstrumented(void* global) {
  for (const char* name : {"__asan_init", "__tsan_init", "__msan_init"}) {
    if (dlsym(global, name) != nullptr) return true;
  }
  return false;
}

// A host may be linked to another version of oneDNN. The library exports its functions without
// symbol versions and calls some of them through the dynamic linker, which would then call the
// host's. So if there is another oneDNN, ours searches itself first (RTLD_DEEPBIND); not otherwise,
// since that also bypasses a host's malloc, and sanitizers reject it.
struct Opened {
  void* handle = nullptr;
  bool itself_first = false;
  std::string problem;  // the error of the first name, if no name could be opened
};
Opened Open(void* global) {
  Opened opened;
  for (const char* name : kFileNames) {
    opened.handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    dlerror();  // clears the error, which the host would otherwise see
    if (opened.handle != nullptr) return opened;  // the host has loaded the library
  }
  opened.itself_first = dlsym(global, "dnnl_version") != nullptr && !IsInstrumented(global);
  dlerror();
  for (const char* name : kFileNames) {
    opened.handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | (opened.itself_first ? RTLD_DEEPBIND : 0));
    if (opened.handle != nullptr) return opened;
    const std::string problem = LoaderError();
    if (opened.problem.empty()) opened.problem = problem;
  }
  return opened;
}

// Finds a function. The caller's pointer type is not checked, only that function and data pointers
// have the same size.
template <class Function>
bool Find(void* handle, const char* name, Function** function) {
  void* const address = dlsym(handle, name);
  static_assert(sizeof(address) == sizeof(*function));
  std::memcpy(function, &address, sizeof(address));
  return address != nullptr;
}

// Finds the functions of the OpenMP runtime that the library is bound to. The dynamic linker takes
// the first one that it finds, which is the host's (for example libomp) if it has one.
void FindOpenMp(const Opened& opened, void* global, OneDnnFunctions* functions) {
  void* const first = opened.itself_first ? opened.handle : global;
  for (void* scope : {first, opened.handle}) {
    if (Find(scope, "omp_in_parallel", &functions->omp_in_parallel) &&
        Find(scope, "omp_get_max_threads", &functions->omp_get_max_threads) &&
        Find(scope, "omp_set_num_threads", &functions->omp_set_num_threads)) {
      return;
    }
    functions->omp_in_parallel = nullptr;
  }
}

// Returns true if all functions exist; else sets `*missing` to the first that does not.
bool FindAll(void* handle, OneDnnFunctions* functions, const char** missing) {
#define PLUMB_FIND(name)                                \
  if (!Find(handle, "dnnl_" #name, &functions->name)) { \
    *missing = "dnnl_" #name;                           \
    return false;                                       \
  }
  PLUMB_ONEDNN_FUNCTIONS(PLUMB_FIND)
#undef PLUMB_FIND
  Find(handle, "dnnl_gemm_bf16bf16f32", &functions->gemm_bf16bf16f32);
  return true;
}

void DescribeIsa(unsigned isa, OneDnnLibrary* library) {
  // The values are sets of bits in versions 2 and 3: a later ISA has all bits of the earlier ones.
  struct Named {
    unsigned bits;
    const char* name;
  };
  constexpr Named kNames[] = {{dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
                              {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
                              {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
                              {dnnl_cpu_isa_avx512_core, "avx512_core"},
                              {dnnl_cpu_isa_avx2, "avx2"},
                              {dnnl_cpu_isa_avx, "avx"},
                              {dnnl_cpu_isa_sse41, "sse41"}};
#if !defined(__x86_64__)
  isa = 0;  // other bits are other instruction sets there
#endif
  const auto has = [isa](unsigned bits) { return (isa & bits) == bits; };
  library->isa = "generic";
  for (const Named& each : kNames) {
    if (!has(each.bits)) continue;
    library->isa = each.name;
    break;
  }
  library->bf16 = has(dnnl_cpu_isa_avx512_core_bf16);
}

// Returns true if ulimit -v leaves enough address space: 2.6 with its OpenMP takes 41 MiB and the
// code of its kernels 6 MiB; later versions take more.
bool HasMemory(OneDnnLibrary* library) {
  constexpr int64_t kMiB = 1 << 20;
  constexpr int64_t kRequiredBytes = 96 * kMiB;
  const int64_t left = AddressSpaceLeft();
  library->lacks_memory = left < kRequiredBytes;
  if (library->lacks_memory) {
    library->problem =
        absl::StrCat(kFileName, ": not loaded, since it wants ", kRequiredBytes / kMiB,
                     " MiB of address space, of which ulimit -v leaves ", left / kMiB);
  }
  return !library->lacks_memory;
}

// oneDNN generates the code of a set of kernels during the first product that needs one of them,
// inside std::call_once, where a lack of memory ends the process through a null pointer or an
// uncaught exception. So one thread generates it here after checking for the memory; later products
// allocate only operands, whose failure is reported. The sets for f32 are: kernels that copy their
// operands, kernels that do not (small ones), and kernels for few rows times a transposed matrix.
// For bf16 there is one set.
absl::Status GenerateCode() {
  const OneDnnFunctions& functions = LoadedOneDnn();
  constexpr int64_t kMiB = 1 << 20;
  constexpr int64_t kRequiredBytes = 32 * kMiB;  // 2.6 takes 6 MiB for f32
  if (!HasMemoryFor(kRequiredBytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(OneDnn().file, ": its kernels need ", kRequiredBytes / kMiB,
                     " MiB for their code, more than this process may allocate; the GEMM engine "
                     "small needs none"));
  }
  const OneThread one_thread(functions);
  constexpr dnnl_dim_t kSide = 8;
  const float zeros[kSide * kSide] = {};
  const uint16_t narrow[kSide * kSide] = {};
  float result[kSide * kSide];
  dnnl_status_t status = dnnl_success;
  for (const char transposed : {'N', 'T'}) {
    if (status != dnnl_success) break;
    status = functions.sgemm('N', transposed, kSide, kSide, kSide, 1, zeros, kSide, zeros, kSide, 0,
                             result, kSide);
  }
  if (status == dnnl_success && OneDnn().bf16_gemm) {
    status = functions.gemm_bf16bf16f32('N', 'N', kSide, kSide, kSide, 1, narrow, kSide, narrow,
                                        kSide, 0, result, kSide);
    // A processor without the instructions has no such product and needs no code for it.
    if (status == dnnl_unimplemented) status = dnnl_success;
  }
  if (status == dnnl_success) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(OneDnn().file, ": its first product failed with status ",
                                          static_cast<int>(status)));
}

void Load(Loaded* loaded) {
  const KeepFloatMode keep;
  OneDnnLibrary& library = loaded->library;
  if (!HasMemory(&library)) return;
  OneDnnFunctions& functions = loaded->functions;
  void* const global = GlobalScope();
  const Opened opened = Open(global);
  if (opened.handle == nullptr) {
    library.problem = opened.problem;
    return;
  }
  library.file = kFileName;
  // The version is checked first, since another version may lack functions as well.
  if (Find(opened.handle, "dnnl_version", &functions.version)) {
    Dl_info info;
    if (dladdr(reinterpret_cast<void*>(functions.version), &info) != 0) {
      library.file = info.dli_fname;
    }
    const dnnl_version_t* const version = functions.version();
    library.version = absl::StrCat(version->major, ".", version->minor, ".", version->patch);
    if (version->major != DNNL_VERSION_MAJOR) {
      library.problem =
          absl::StrCat(library.file, ": is oneDNN ", library.version,
                       ", and plumb was built for version " PLUMB_TEXT(DNNL_VERSION_MAJOR));
      return;
    }
  }
  const char* missing = "";
  if (!FindAll(opened.handle, &functions, &missing)) {
    library.problem = absl::StrCat(library.file, ": has no function ", missing);
    return;
  }
  FindOpenMp(opened, global, &functions);
  DescribeIsa(static_cast<unsigned>(functions.get_effective_cpu_isa()), &library);
  library.bf16_gemm = functions.gemm_bf16bf16f32 != nullptr;
}

// Result of loading, per process like the loaded libraries; null before the first OneDnn().
std::atomic<const Loaded*>& LoadedOnce() {
  static std::atomic<const Loaded*> once{nullptr};
  return once;
}

}  // namespace

const char* OneDnnFileName() { return kFileName; }

const OneDnnLibrary& OneDnn() {
  static const Loaded* const loaded = [] {
    static Loaded found;
    Load(&found);
    LoadedOnce().store(&found, std::memory_order_release);
    return &found;
  }();
  return loaded->library;
}

const OneDnnLibrary* OneDnnIfLoaded() {
  const Loaded* const loaded = LoadedOnce().load(std::memory_order_acquire);
  return loaded == nullptr ? nullptr : &loaded->library;
}

const OneDnnFunctions& LoadedOneDnn() {
  PLUMB_CHECK(OneDnn().usable(), "a product by a oneDNN that is not there");
  return LoadedOnce().load(std::memory_order_acquire)->functions;
}

const absl::Status& GenerateOneDnnCode() {
  static const absl::Status generated = GenerateCode();
  return generated;
}

}  // namespace plumb
