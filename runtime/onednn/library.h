// SPDX-License-Identifier: Apache-2.0
// oneDNN itself: a shared library that is loaded when something first needs it.
//
// Nothing is linked against it, so a process that needs none of its products does not load it (40
// MB, and OpenCL and OpenMP with it), and a machine without it computes all products by plumb's own
// engine. It is loaded once for the process and stays, but not where the process may not have the
// address space that it takes: it has no error for that, and ends the process. Thread-safe.
#ifndef PLUMB_RUNTIME_ONEDNN_LIBRARY_H_
#define PLUMB_RUNTIME_ONEDNN_LIBRARY_H_

#include <string>

namespace plumb {

// What was found. Where `problem` is not empty the rest may be.
struct OneDnnLibrary {
  std::string problem;   // why it cannot be used, with its name; "" if it can
  bool no_room = false;  // that is for want of address space
  std::string file;      // "/usr/lib/x86_64-linux-gnu/libdnnl.so.2"
  std::string version;   // "2.6.3"
  // The instruction set that it uses. ONEDNN_MAX_CPU_ISA lowers it.
  std::string isa;    // "avx512_core_bf16"
  bool bf16 = false;  // multiplies bf16 pairs (AVX512_BF16)
  bool amx = false;   // and bf16 tiles (AMX), which the kernel of the system permitted
  // Whether it exports a product of bf16 operands. It is not declared in the library's headers, but
  // exported by all versions from 1.2 to 3.7.
  bool bf16_gemm = false;

  bool usable() const { return problem.empty(); }
};

// Returns the file name that is tried first, the SONAME of the library that plumb was built with:
// "libdnnl.so.2".
const char* OneDnnFileName();

// The library, loaded by the first call. A failure is as lasting as success: results depend on the
// engine, and are not to change with the time of the call.
const OneDnnLibrary& OneDnn();

// The same without loading: null if nothing has needed it yet.
const OneDnnLibrary* OneDnnIfTried();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ONEDNN_LIBRARY_H_
