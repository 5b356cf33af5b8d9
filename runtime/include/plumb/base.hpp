// SPDX-License-Identifier: Apache-2.0
// base.hpp: the base of plumb.hpp, which includes it: errors and results, views, and calls of
// plumb.h from C++. Header-only; uses plumb.h alone.
#ifndef PLUMB_BASE_HPP_
#define PLUMB_BASE_HPP_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "plumb.h"

#if defined(__cpp_exceptions)
#define PLUMB_HPP_NAMESPACE hpp1
#define PLUMB_HPP_TRY try
#define PLUMB_HPP_CATCH catch (...)
#else
#define PLUMB_HPP_NAMESPACE hpp1_without_exceptions
#define PLUMB_HPP_TRY if constexpr (true)
#define PLUMB_HPP_CATCH else
#endif

// A program may define this as nothing: the classes are then only plumb::hpp1::Model and so on.
#ifndef PLUMB_HPP_INLINE
#define PLUMB_HPP_INLINE inline
#endif

namespace plumb {
PLUMB_HPP_INLINE namespace PLUMB_HPP_NAMESPACE {

// --- Errors -------------------------------------------------------------------------------------

// Status code of an error, a plumb_status.
enum class Code : std::int32_t {
  kCancelled = PLUMB_STATUS_CANCELLED,
  kInvalidArgument = PLUMB_STATUS_INVALID_ARGUMENT,
  kNotFound = PLUMB_STATUS_NOT_FOUND,
  kAlreadyExists = PLUMB_STATUS_ALREADY_EXISTS,
  kPermissionDenied = PLUMB_STATUS_PERMISSION_DENIED,
  kResourceExhausted = PLUMB_STATUS_RESOURCE_EXHAUSTED,
  kFailedPrecondition = PLUMB_STATUS_FAILED_PRECONDITION,
  kAborted = PLUMB_STATUS_ABORTED,
  kOutOfRange = PLUMB_STATUS_OUT_OF_RANGE,
  kUnimplemented = PLUMB_STATUS_UNIMPLEMENTED,
  kInternal = PLUMB_STATUS_INTERNAL,
  kUnavailable = PLUMB_STATUS_UNAVAILABLE,
  kDataLoss = PLUMB_STATUS_DATA_LOSS,
};

// An error with its message. Immutable; any thread. Copies share their content.
class Error : public std::exception {
 public:
  // Takes ownership of `error`, which a function of plumb.h returned.
  explicit Error(plumb_error* error) : error_(error, plumb_error_free) {}
  // Creates an error that is not from a function of plumb.h.
  Error(Code code, std::string message)
      : own_(std::make_shared<const Own>(Own{code, std::move(message)})) {}

  Code code() const noexcept {
    return own_ ? own_->code : static_cast<Code>(plumb_error_code(error_.get()));
  }
  // Returns the whole message, which begins with the location if there is one.
  const char* what() const noexcept override {
    return own_ ? own_->message.c_str() : plumb_error_message(error_.get());
  }
  std::string message() const { return what(); }
  // Returns the location in a text that the message begins with; "" and 0 without one.
  std::string file() const {
    const char* file = "";
    plumb_error_location(error_.get(), &file, nullptr, nullptr);
    return file;
  }
  std::int32_t line() const noexcept {
    std::int32_t line = 0;
    plumb_error_location(error_.get(), nullptr, &line, nullptr);
    return line;
  }
  std::int32_t column() const noexcept {
    std::int32_t column = 0;
    plumb_error_location(error_.get(), nullptr, nullptr, &column);
    return column;
  }

 private:
  struct Own {
    Code code;
    std::string message;
  };
  std::shared_ptr<plumb_error> error_;
  std::shared_ptr<const Own> own_;  // instead of error_
};

namespace internal {

// Throws the error, or aborts without exceptions, for value().
[[noreturn]] inline void Raise(const Error& error) {
#if defined(__cpp_exceptions)
  throw error;
#else
  std::fprintf(stderr, "plumb: %s\n", error.what());
  std::abort();
#endif
}

}  // namespace internal

// A T, or an Error if there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : held_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const noexcept { return held_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  T& value() & { return Checked(), *std::get_if<0>(&held_); }
  const T& value() const& { return Checked(), *std::get_if<0>(&held_); }
  T value() && { return Checked(), std::move(*std::get_if<0>(&held_)); }
  // Requires: ok().
  T& operator*() & noexcept { return *std::get_if<0>(&held_); }
  const T& operator*() const& noexcept { return *std::get_if<0>(&held_); }
  T&& operator*() && noexcept { return std::move(*std::get_if<0>(&held_)); }
  T* operator->() noexcept { return std::get_if<0>(&held_); }
  const T* operator->() const noexcept { return std::get_if<0>(&held_); }
  // Requires: !ok().
  const Error& error() const noexcept { return *std::get_if<1>(&held_); }

 private:
  void Checked() const {
    if (!ok()) internal::Raise(error());
  }
  std::variant<T, Error> held_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  void value() const {
    if (!ok()) internal::Raise(*error_);
  }
  const Error& error() const noexcept { return *error_; }

 private:
  std::optional<Error> error_;
};

// --- Views --------------------------------------------------------------------------------------

// View of elements that another object owns: std::span, which C++17 lacks and which will replace
// it.
template <class T>
class Span {
 public:
  constexpr Span() noexcept = default;
  constexpr Span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}
  // Views the elements in braces, only during the call that they are written in.
  template <class U = T, class = std::enable_if_t<std::is_const_v<U>>>
  constexpr Span(std::initializer_list<std::remove_const_t<U>> list) noexcept
      : Span(list.begin(), list.size()) {}
  // Views a vector, an array, a string or another Span.
  template <class Container, class = std::enable_if_t<std::is_convertible_v<
                                 decltype(std::declval<Container&>().data()), T*>>>
  constexpr Span(Container&& container) noexcept
      : data_(container.data()), size_(container.size()) {}
  template <std::size_t n>
  constexpr Span(T (&array)[n]) noexcept : data_(array), size_(n) {}

  constexpr T* data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T* begin() const noexcept { return data_; }
  constexpr T* end() const noexcept { return data_ + size_; }
  constexpr T& operator[](std::size_t i) const noexcept { return data_[i]; }
  constexpr Span subspan(std::size_t from, std::size_t size) const noexcept {
    return Span(data_ + from, size);
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

// View of a tensor, row-major.
template <class T>
struct TensorView {
  std::string_view name;
  int rank = 0;
  std::array<std::int64_t, 4> shape = {1, 1, 1, 1};  // 1 beyond the rank
  Span<T> data;                                      // all elements; empty: not available as floats
};

// --- Behind the classes -------------------------------------------------------------------------

// Result of a callback that is not void.
enum class Next { kGoOn, kStop };

enum class LogLevel : std::int32_t {
  kInfo = PLUMB_LOG_INFO,
  kWarning = PLUMB_LOG_WARNING,
  kError = PLUMB_LOG_ERROR
};

namespace internal {

inline Error TwoLengths(Span<const std::int32_t> inputs, Span<const std::int32_t> targets) {
  return Error(Code::kInvalidArgument, "inputs have " + std::to_string(inputs.size()) +
                                           " ids and targets " + std::to_string(targets.size()));
}

// Callbacks that the library calls until the last handle created with a runtime is freed.
struct Host {
  std::function<void(LogLevel, std::string_view)> log;
  std::function<void*(std::size_t, std::size_t)> allocate;
  std::function<void(void*, std::size_t)> release;
  std::function<void(std::int32_t, const std::function<void(std::int32_t)>&)> run;
};

// Frees a handle, and keeps the callbacks alive that it may call.
template <class T, void (*Free)(T*)>
struct Freer {
  void operator()(T* handle) const noexcept { Free(handle); }
  std::shared_ptr<Host> host;
};
template <class T, void (*Free)(T*)>
using Handle = std::unique_ptr<T, Freer<T, Free>>;

// Exception that a callback threw on this thread, until the call around it returns.
inline std::exception_ptr& Thrown() noexcept {
  thread_local std::exception_ptr thrown;
  return thrown;
}

// Returns 0, or 1 if `body` returns Next::kStop or throws.
template <class Body>
std::int32_t Stops(const Body& body) noexcept {
  using Returned = decltype(body());
  static_assert(std::is_void_v<Returned> || std::is_same_v<Returned, Next>,
                "a callback returns nothing or a plumb::Next");
  PLUMB_HPP_TRY {
    if constexpr (std::is_void_v<Returned>) {
      body();
      return 0;
    } else {
      return body() == Next::kGoOn ? 0 : 1;
    }
  }
  PLUMB_HPP_CATCH {
    if (Thrown() == nullptr) Thrown() = std::current_exception();
    return 1;
  }
}

// The functions of a Host, with C signatures.
inline void Log(void* host, std::int32_t level, const char* message) noexcept {
  Stops([&] { static_cast<Host*>(host)->log(static_cast<LogLevel>(level), message); });
}
inline void* Allocate(void* host, std::size_t size, std::size_t alignment) noexcept {
  void* memory = nullptr;
  Stops([&] { memory = static_cast<Host*>(host)->allocate(size, alignment); });
  return memory;
}
inline void Release(void* host, void* memory, std::size_t size) noexcept {
  static_cast<Host*>(host)->release(memory, size);
}
inline void RunTasks(void* host, std::int32_t n, void (*task)(void* argument, std::int32_t i),
                     void* argument) noexcept {
  static_cast<Host*>(host)->run(n, [=](std::int32_t i) { task(argument, i); });
}

// Ends a call that may have called back: rethrows an exception of the callback, or returns the
// error.
inline std::optional<Error> Finish(plumb_status status, plumb_error* error) {
  std::optional<Error> failure;
  if (status != PLUMB_OK) failure.emplace(error);
#if defined(__cpp_exceptions)
  if (Thrown() != nullptr) std::rethrow_exception(std::exchange(Thrown(), nullptr));
#endif
  return failure;
}

// Calls function(error) and returns its status as a Result.
template <class Function>
Result<void> Call(const Function& function) {
  plumb_error* error = nullptr;
  const plumb_status status = function(&error);
  if (std::optional<Error> failure = Finish(status, error)) return *std::move(failure);
  return {};
}

// Returns the handle that `function` creates.
template <class H, class Function>
Result<H> Make(const Function& function, std::shared_ptr<Host> host = nullptr) {
  typename H::pointer made = nullptr;
  plumb_error* error = nullptr;
  const plumb_status status = function(&made, &error);
  H handle(made, {std::move(host)});
  if (std::optional<Error> failure = Finish(status, error)) return *std::move(failure);
  return handle;
}

// Returns the number of elements as plumb.h counts them.
template <class Container>
std::int64_t Count(const Container& container) noexcept {
  return static_cast<std::int64_t>(container.size());
}

// Memory that a call made for the caller.
struct FreeMemory {
  void operator()(void* memory) const noexcept { plumb_free(memory); }
};

// Returns the text that function(&text, error) makes.
template <class Function>
Result<std::string> Text(const Function& function) {
  char* text = nullptr;
  const Result<void> made = Call([&](plumb_error** error) { return function(&text, error); });
  const std::unique_ptr<char, FreeMemory> owned(text);
  if (!made) return made.error();
  return std::string(text);
}

// Fails for a text that ends early as a C string.
inline Result<void> CheckText(const std::string& text) {
  if (text.find('\0') == std::string::npos) return {};
  return Error(Code::kInvalidArgument, "the text contains a null character");
}

template <class Options>
Options Sized() noexcept {
  Options options;
  std::memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  return options;
}

template <class T>
TensorView<T> View(const plumb_tensor& tensor) {
  TensorView<T> view;
  view.name = tensor.name;
  view.rank = tensor.rank;
  std::size_t size = 1;
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    view.shape[d] = tensor.shape[d];
    size *= static_cast<std::size_t>(tensor.shape[d]);
  }
  view.data = Span<T>(tensor.data, tensor.data == nullptr ? 0 : size);
  return view;
}

// Returns the tensor that `function` fills in.
template <class T, class Function>
Result<TensorView<T>> GetTensor(const Function& function) {
  auto tensor = Sized<plumb_tensor>();
  const Result<void> found = Call([&](plumb_error** error) { return function(&tensor, error); });
  if (!found) return found.error();
  return View<T>(tensor);
}

}  // namespace internal

}  // namespace PLUMB_HPP_NAMESPACE
}  // namespace plumb

#endif  // PLUMB_BASE_HPP_
