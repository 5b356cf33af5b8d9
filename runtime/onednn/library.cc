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
#include "runtime/onednn/one_thread.h"

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
// Options of a program that is built with the address sanitizer. The leak sanitizer guesses where
// the thread-local memory of a library lies that is loaded late, and with a newer C library guesses
// wrong: the program would end in the search for leaks.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "intercept_tls_get_addr=0"; }
#endif

namespace plumb {
namespace {

constexpr char kFileName[] = PLUMB_ONEDNN_SONAME;
// Names to try in this order, because plumb may run on a system that names oneDNN differently.
// Load() refuses a library of another major version.
constexpr const char* kFileNames[] = {
    kFileName, "libdnnl.so." PLUMB_TEXT(DNNL_VERSION_MAJOR),
    "libdnnl.so." PLUMB_TEXT(DNNL_VERSION_MAJOR) "." PLUMB_TEXT(DNNL_VERSION_MINOR)};

struct Loaded {
  OneDnnLibrary library;
  OneDnnFunctions functions;
};

// A library built with -ffast-math sets flush-to-zero for the thread that loads it.
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

// What every library of the process sees first: the program, what it is linked to, and what was
// loaded for all. Not what only this code's own library is linked to.
void* GlobalScope() { return dlopen(nullptr, RTLD_NOW); }

bool IsInstrumented(void* global) {
  for (const char* name : {"__asan_init", "__tsan_init", "__msan_init"}) {
    if (dlsym(global, name) != nullptr) return true;
  }
  return false;
}

// A host may be linked to a oneDNN of another version. The library exports its functions without
// symbol versions and calls some of them through the dynamic linker, which would hand them the
// host's. So ours is to look at itself first, where there is another: only there, since malloc and
// its like of a host are passed over as well then, and since sanitizers refuse it.
struct Opened {
  void* handle = nullptr;
  bool itself_first = false;
  std::string problem;  // the error of the first name, if no name could be opened
};
Opened Open(void* global) {
  Opened opened;
  for (const char* name : kFileNames) {
    opened.handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    dlerror();  // discards the error, which a host would find otherwise
    if (opened.handle != nullptr) return opened;  // the host has loaded it
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

// Type-checked by the caller's pointer; a function pointer and a data pointer have one size here.
template <class Function>
bool Find(void* handle, const char* name, Function** function) {
  void* const address = dlsym(handle, name);
  static_assert(sizeof(address) == sizeof(*function));
  std::memcpy(function, &address, sizeof(address));
  return address != nullptr;
}

// The functions of the OpenMP that the library is bound to, which are those that the dynamic linker
// found first for it: of the host's OpenMP, say libomp, if it has one.
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

// Whether all are there; else the first that is not, in `missing`.
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
  // Sets of bits, in versions 2 and 3: a later instruction set has all bits of those before it.
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
  const auto has = [isa](unsigned bits) { return (isa & bits) == bits; };
  library->isa = "generic";
  for (const Named& each : kNames) {
    if (!has(each.bits)) continue;
    library->isa = each.name;
    break;
  }
  library->bf16 = has(dnnl_cpu_isa_avx512_core_bf16);
  library->amx = has(dnnl_cpu_isa_avx512_core_amx);
}

// Returns true if ulimit -v leaves what the library takes: 2.6 and its OpenMP 41 MiB, the code of its
// kernels 6 MiB, and later versions are larger.
bool HasRoom(OneDnnLibrary* library) {
  constexpr int64_t kMiB = 1 << 20;
  constexpr int64_t kRoom = 96 * kMiB;
  const int64_t left = AddressSpaceLeft();
  library->no_room = left < kRoom;
  if (library->no_room) {
    library->problem =
        absl::StrCat(kFileName, ": not loaded, since it wants ", kRoom / kMiB,
                     " MiB of address space, of which ulimit -v leaves ", left / kMiB);
  }
  return !library->no_room;
}

// oneDNN generates code at the first product that takes one of a set of kernels, inside of
// std::call_once, where memory that is not there ends the process: by a null pointer, or an
// exception that nobody catches. Here one thread does it after asking for the memory; later products
// take memory for their operands only, which has an error. The sets, of f32 products: those that
// copy their operands, those that do not (small ones), and those of few rows by a transposed matrix.
// For bf16 there is one set.
absl::Status GenerateCode() {
  const OneDnnFunctions& functions = LoadedOneDnn();
  constexpr int64_t kMiB = 1 << 20;
  constexpr int64_t kRoom = 32 * kMiB;  // 2.6 takes 6 MiB for f32
  if (!HasRoomFor(kRoom)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(OneDnn().file, ": the code of its kernels wants ", kRoom / kMiB,
                     " MiB, which this process may not have; the GEMM engine small needs none"));
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
    // A processor without the instructions has no such product, and needs no code.
    if (status == dnnl_unimplemented) status = dnnl_success;
  }
  if (status == dnnl_success) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(OneDnn().file, ": its first product failed with status ",
                                          static_cast<int>(status)));
}

void Load(Loaded* loaded) {
  const KeepFloatMode keep;
  OneDnnLibrary& library = loaded->library;
  if (!HasRoom(&library)) return;
  OneDnnFunctions& functions = loaded->functions;
  void* const global = GlobalScope();
  const Opened opened = Open(global);
  if (opened.handle == nullptr) {
    library.problem = opened.problem;
    return;
  }
  library.file = kFileName;
  // The version before all else: what one of another lacks is no news.
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

// Of the process, as loaded libraries are; null before the first call of OneDnn().
std::atomic<const Loaded*>& Tried() {
  static std::atomic<const Loaded*> tried{nullptr};
  return tried;
}

}  // namespace

const char* OneDnnFileName() { return kFileName; }

const OneDnnLibrary& OneDnn() {
  static const Loaded* const loaded = [] {
    static Loaded found;
    Load(&found);
    Tried().store(&found, std::memory_order_release);
    return &found;
  }();
  return loaded->library;
}

const OneDnnLibrary* OneDnnIfTried() {
  const Loaded* const loaded = Tried().load(std::memory_order_acquire);
  return loaded == nullptr ? nullptr : &loaded->library;
}

const OneDnnFunctions& LoadedOneDnn() {
  PLUMB_CHECK(OneDnn().usable(), "a product by a oneDNN that is not there");
  return Tried().load(std::memory_order_acquire)->functions;
}

const absl::Status& GenerateOneDnnCode() {
  static const absl::Status generated = GenerateCode();
  return generated;
}

}  // namespace plumb
