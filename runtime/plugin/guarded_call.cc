// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/guarded_call.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <typeinfo>

#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

constexpr size_t kMaxMessageLength = 512;

std::string TypeName(const std::type_info* type) {
  if (type == nullptr) return "of an unknown type";
  int failed = 0;
  char* readable = abi::__cxa_demangle(type->name(), nullptr, nullptr, &failed);
  std::string name = failed == 0 && readable != nullptr ? readable : type->name();
  std::free(readable);
  return name;
}

}  // namespace

absl::Status ExceptionLeft(const char* function) {
  const std::string name = TypeName(abi::__cxa_current_exception_type());
  std::string text = absl::StrCat("exception ", name, " left ", function, "()");
  try {
    throw;
  } catch (const std::bad_alloc&) {  // also a violation, but it may not happen again
    return absl::ResourceExhaustedError(absl::StrCat(text, ": out of memory"));
  } catch (const std::exception& exception) {
    const char* what = exception.what();
    const std::string words =
        what == nullptr ? "" : std::string(what, strnlen(what, kMaxMessageLength));
    if (!words.empty() && words != name) absl::StrAppend(&text, ": ", words);
  } catch (...) {  // only the type is known
  }
  return absl::InternalError(text);
}

}  // namespace plumb
