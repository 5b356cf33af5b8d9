// SPDX-License-Identifier: Apache-2.0
// Tests of the stack usage of calls, on threads of a host. Whatever a formula contains, it is
// either read or refused with an error, within the stack that plumb.h promises.
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "tests/capi/host_life.h"

namespace plumb {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

// Maximum stack usage of a call that plumb.h promises.
constexpr size_t kPromised = size_t{256} << 10;

// Runs `work` in a thread with a stack of `bytes`. Returns the number of bytes that it used.
size_t OnStack(size_t bytes, std::function<void()> work) {
  constexpr char kUntouched = 0x5A;
  void* const stack =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) return 0;
  std::memset(stack, kUntouched, bytes);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, bytes);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  EXPECT_EQ(pthread_create(&thread, &attributes, run, &work), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  const char* const begin = static_cast<char*>(stack);
  const char* const end = begin + bytes;
  const char* const lowest = std::find_if(begin, end, [](char c) { return c != kUntouched; });
  const auto used = static_cast<size_t>(end - lowest);
  munmap(stack, bytes);
  return used;
}

std::string Repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

// Returns a model whose placement has one `let` and the formula `each`.
std::string BuildModel(const std::string& let, const std::string& each) {
  return absl::StrCat(
      "n_layer: 1 n_head: 1 d_model: 8 vocab_size: 9 context_length: 8\nplacement { name: \"p\" ",
      let.empty() ? "" : absl::StrCat("let: \"c = ", let, "\" "), "each: \"", each,
      "\" }\nblock { placement: \"p\" norm: \"rms_norm\" }\n");
}

class SmallStackTest : public CapiTest {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "frames are larger with sanitizers";
#endif
  }

  // Reads a model's text, and builds the model and a session. Returns "" or the error's message.
  std::string Build(const std::string& text) {
    ErrorHandle error;
    SpecHandle spec;
    ModelHandle model;
    SessionHandle session;
    if (plumb_spec_from_text(text.c_str(), "m", &spec.get, &error.get) != PLUMB_OK ||
        plumb_model_create(runtime_.get, spec.get, &model.get, &error.get) != PLUMB_OK ||
        plumb_model_init(model.get, 1, &error.get) != PLUMB_OK ||
        plumb_session_create(model.get, nullptr, &session.get, &error.get) != PLUMB_OK) {
      return plumb_error_message(error.get);
    }
    return "";
  }
  // Runs Build on a stack of kPromised bytes, prints the usage, and expects that a margin is left.
  std::string BuildOnStack(const std::string& what, const std::string& text) {
    std::string message;
    const size_t used = OnStack(kPromised, [&] { message = Build(text); });
    EXPECT_LT(used, kPromised / 16 * 15) << what;
    std::cout << what << ": " << used / 1024 << " KiB of the stack, "
              << (message.empty() ? "read" : "refused") << "\n";
    return message;
  }
};

TEST_F(SmallStackTest, FormulasThatNestAreReadOrRefused) {
  struct Nest {
    const char *what, *open, *inner, *close;
  };
  constexpr Nest kScalars[] = {{"parentheses", "(", "1", ")"},
                               {"minus", "-", "1", ""},
                               {"powers", "1 ^ ", "1", ""},
                               {"calls", "max(1, ", "1", ")"},
                               {"sums", "1 + (", "1", ")"}};
  constexpr Nest kTensors[] = {
      {"norms", "norm(", "x", ")"},       {"sums of x", "x + (", "x", ")"},
      {"minus x", "-", "x", ""},          {"drops", "drop(", "x", ", 0.1)"},
      {"parts", "part(", "x", ", 0, 1)"}, {"dots", "x * dot(x, ", "x", ")"},
      {"concats", "concat(", "x", ")"},   {"stops", "stop(", "x", ")"}};
  constexpr Nest kConditions[] = {{"not", "not ", "1 < 2", ""}, {"not (", "not (", "1 < 2", ")"}};
  for (const size_t depth : {10, 20, 94, 101, 400}) {
    const auto check = [&](const Nest& nest, const char* before, const char* after, bool in_let) {
      const std::string text = absl::StrCat(before, Repeated(nest.open, depth), nest.inner,
                                            Repeated(nest.close, depth), after);
      const std::string message =
          BuildOnStack(absl::StrCat(depth, " ", nest.what),
                       in_let ? BuildModel(text, "x = x + c * f(norm(x))") : BuildModel("", text));
      const bool two = nest.open == std::string("not (") || nest.what == std::string("dots");
      const size_t levels = two ? 2 * depth : depth;
      if (levels > 100) {
        EXPECT_THAT(message, AnyOf(HasSubstr("nests too deep"), HasSubstr("at most"),
                                   HasSubstr("inside of each other")))
            << nest.what;
      } else {
        EXPECT_EQ(message, "") << nest.what;
      }
    };
    for (const Nest& nest : kScalars) check(nest, "", "", true);
    for (const Nest& nest : kTensors) check(nest, "x = x + f(", ")", false);
    for (const Nest& nest : kConditions) check(nest, "x = x + f(norm(x)) if ", "", false);
  }
}

TEST_F(SmallStackTest, LongChainsAreReadOrRefused) {
  struct Chain {
    const char *what, *first, *next;
  };
  constexpr Chain kLets[] = {{"+", "1", "+1"}, {"*", "1", "*1"}, {"-", "1", "-1"}};
  constexpr Chain kStatements[] = {{"+ x", "x = x + f(norm(x))", "+x"},
                                   {"and", "x = x + f(norm(x)) if 1<2", " and 1<2"}};
  for (const size_t terms : {95, 200, 100000}) {
    const auto check = [&](const Chain& chain, bool in_let) {
      const std::string text = absl::StrCat(chain.first, Repeated(chain.next, terms));
      const std::string message =
          BuildOnStack(absl::StrCat(terms, " times ", chain.what),
                       in_let ? BuildModel(text, "x = x + c * f(norm(x))") : BuildModel("", text));
      if (terms > 100) {
        EXPECT_THAT(message, AnyOf(HasSubstr("inside of each other"), HasSubstr("at most")))
            << chain.what;
      } else {
        EXPECT_EQ(message, "") << chain.what;
      }
    };
    for (const Chain& chain : kLets) check(chain, true);
    for (const Chain& chain : kStatements) check(chain, false);
  }
}

// Each level evaluates its body with a variable of its own.
TEST_F(SmallStackTest, RangesThatNestAreReadOrRefused) {
  for (const size_t depth : {10, 47, 95, 101}) {
    for (const char* name : {"sum", "concat", "softmax"}) {
      std::string text = "x";
      for (size_t i = 0; i < depth; ++i) {
        text = absl::StrCat(name, "(k", i, " = 0..0, ",
                            name[1] == 'o' && name[0] == 's' ? "0, " : "", text, ")");
      }
      const std::string message =
          BuildOnStack(absl::StrCat(depth, " ranges of ", name),
                       BuildModel("", absl::StrCat("x = x + f(", text, ")")));
      if (depth > 100) {
        EXPECT_THAT(message, AnyOf(HasSubstr("nests too deep"), HasSubstr("at most")));
      } else if (text.size() < 2000) {
        EXPECT_EQ(message, "");
      }
    }
  }
}

TEST_F(SmallStackTest, MessagesThatNestAreRefused) {
  std::string message = BuildOnStack("messages", Repeated("block { inside {", 100000));
  EXPECT_NE(message, "");
  message = BuildOnStack("unknown messages", Repeated("a {", 100000));
  EXPECT_THAT(message, HasSubstr("nest more than 50 deep"));
  message = BuildOnStack("unknown lists", "a: " + Repeated("[", 100000));
  EXPECT_THAT(message, HasSubstr("nest more than 50 deep"));
}

}  // namespace
}  // namespace plumb
