// What the system says of this process and its machine, for reports. Pure reads; thread-safe. Where
// it does not say, as in a container without /proc, a text is empty and a number -1.
#ifndef PLUMB_RUNTIME_BASE_PROCESS_H_
#define PLUMB_RUNTIME_BASE_PROCESS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace plumb {

std::string ProcessorName();     // "AMD EPYC 9R14"
std::string LibcVersion();       // "glibc 2.36"
std::string HugePages();         // of memory that does not ask: "always", "madvise", "never"
std::string CurrentDirectory();  // absolute
int64_t StackLimit();            // bytes of a thread's stack (ulimit -s); INT64_MAX: unlimited

// The files of the shared objects that are mapped, the program's own left out.
std::vector<std::string> MappedLibraries();

// The floating-point mode of the calling thread.
struct FloatingPoint {
  std::string rounding;             // "nearest", "upward", "downward", "toward zero"
  bool flush_to_zero = false;       // denormal results
  bool denormals_are_zero = false;  // operands
};
FloatingPoint CallersFloatingPoint();

// Names and values of the environment, in its order.
std::vector<std::pair<std::string, std::string>> Environment();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_PROCESS_H_
