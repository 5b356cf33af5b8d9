// SPDX-License-Identifier: Apache-2.0
// The oneDNN shared library, which is loaded when it is first needed.
//
// Nothing is linked against it, so a process that needs none of its products does not load it (40
// MB, plus OpenCL and OpenMP), and a machine without it computes all products with plumb's own
// GEMM. It is loaded once per process and stays. It is not loaded if the process may not have the
// address space, since the library would then end the process instead of returning an error.
// Thread-safe.
#ifndef PLUMB_RUNTIME_ONEDNN_LIBRARY_H_
#define PLUMB_RUNTIME_ONEDNN_LIBRARY_H_

#include <string>

namespace plumb {

// Result of loading. If `problem` is not empty, the other members may be empty.
struct OneDnnLibrary {
  std::string problem;        // why it cannot be used, with its name; "" if it can be used
  bool lacks_memory = false;  // true if the problem is a lack of address space
  std::string file;           // "/usr/lib/x86_64-linux-gnu/libdnnl.so.2"
  std::string version;        // "2.6.3"
  // Instruction set that it uses. ONEDNN_MAX_CPU_ISA lowers it.
  std::string isa;    // "avx512_core_bf16"
  bool bf16 = false;  // true if it multiplies bf16 pairs (AVX512_BF16)
  // True if it exports a GEMM with bf16 operands, which its headers do not declare but all versions
  // from 1.2 to 3.7 export.
  bool bf16_gemm = false;

  bool usable() const { return problem.empty(); }
  bool bf16_pairs() const { return bf16 && bf16_gemm; }  // true if its GEMM multiplies bf16 pairs
};

// Returns the file name that is tried first, the SONAME that plumb was built with: "libdnnl.so.2".
const char* OneDnnFileName();

// Returns the library, which the first call loads. A failure is final too: results depend on the
// GEMM engine and must not change with the time of the call.
const OneDnnLibrary& OneDnn();

// Returns the same without loading; null if OneDnn() has not been called yet.
const OneDnnLibrary* OneDnnIfLoaded();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ONEDNN_LIBRARY_H_
