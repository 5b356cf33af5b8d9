// plumb.h for the tools that stand on it: handles that free themselves, errors as statuses. Private
// to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_HANDLES_H_
#define PLUMB_RUNTIME_TOOLS_HANDLES_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumb.h"

namespace plumb {

template <auto kFree>
struct FreeHandle {
  template <class T>
  void operator()(T* handle) const {
    kFree(handle);
  }
};

// T: plumb_model and the like.
template <class T, auto kFree>
using Handle = std::unique_ptr<T, FreeHandle<kFree>>;

using RuntimeHandle = Handle<plumb_runtime, plumb_runtime_free>;
using SpecHandle = Handle<plumb_spec, plumb_spec_free>;
using ModelHandle = Handle<plumb_model, plumb_model_free>;
using TrainerHandle = Handle<plumb_trainer, plumb_trainer_free>;
using SessionHandle = Handle<plumb_session, plumb_session_free>;
using EvaluatorHandle = Handle<plumb_evaluator, plumb_evaluator_free>;

// `code` and the message of `error`, which is freed. Throws std::bad_alloc where that is what
// happened below plumb.h: so do the tools, and OrOutOfMemory says what the memory was for.
absl::Status TakeError(plumb_status code, plumb_error* error);

// function(arguments..., &error).
template <class Function, class... Arguments>
absl::Status CallPlumb(Function function, Arguments... arguments) {
  plumb_error* error = nullptr;
  const plumb_status code = function(arguments..., &error);
  return TakeError(code, error);
}

// The handle that create(arguments..., &handle, &error) makes.
template <class Made, class Function, class... Arguments>
absl::StatusOr<Made> MakeHandle(Function create, Arguments... arguments) {
  typename Made::pointer handle = nullptr;
  const absl::Status status = CallPlumb(create, arguments..., &handle);
  if (!status.ok()) return status;
  return Made(handle);
}

// The text of a function that ends with buffer, capacity, needed and error. It is called again when
// the text is longer than most.
template <class Function, class... Arguments>
absl::StatusOr<std::string> TextOf(Function function, Arguments... arguments) {
  std::string text(size_t{64} << 10, '\0');
  for (;;) {
    size_t needed = 0;
    const absl::Status status =
        CallPlumb(function, arguments..., text.data(), text.size(), &needed);
    if (!status.ok()) return status;
    const bool fits = needed < text.size();
    text.resize(fits ? needed : needed + 4096);  // what is described may have grown meanwhile
    if (fits) return text;
  }
}

// Options or an info of plumb.h: all 0, and the size.
template <class Struct>
Struct Sized() {
  Struct made = {};
  made.struct_size = sizeof(made);
  return made;
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_HANDLES_H_
