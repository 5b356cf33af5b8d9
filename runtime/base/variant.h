// NeverHeld: a last alternative for variants whose copies may throw.
#ifndef PLUMB_RUNTIME_BASE_VARIANT_H_
#define PLUMB_RUNTIME_BASE_VARIANT_H_

namespace plumb {

// libstdc++ 12 believes that a std::variant of its own containers and strings always holds a value,
// and destroys one that was never made where a copy runs out of memory. A type of ours among them
// keeps it from that.
struct NeverHeld {
  ~NeverHeld() {}  // not trivial: it would believe the same of that
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_VARIANT_H_
