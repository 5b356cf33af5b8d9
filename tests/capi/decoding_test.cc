// SPDX-License-Identifier: Apache-2.0
// Tests of plumb.h: text of tokens that arrive one by one, and generation past the context.
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "tests/capi/capi_fixture.h"

namespace plumb {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using DecoderHandle = Handle<plumb_decoder, plumb_decoder_free>;

// A tokenizer like Llama's: marks for spaces, byte tokens, <s> before a text.
constexpr char kTokenizer[] = R"({
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
    "special_tokens": {"<s>": {"ids": [8]}}},
  "decoder": {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "added_tokens": [{"id": 8, "content": "<s>", "special": true}],
  "model": {"type": "BPE", "byte_fallback": true, "merges": ["▁ a"], "vocab": {"▁": 0, "a": 1,
    "▁a": 2, "b": 3, "<0xF0>": 4, "<0x9F>": 5, "<0x98>": 6, "<0x80>": 7}}})";

TokenizerHandle MakeTokenizer(const std::string& json = kTokenizer) {
  TokenizerHandle tokenizer;
  EXPECT_PLUMB_OK(plumb_tokenizer_from_json(json.c_str(), &tokenizer.get, err));
  return tokenizer;
}

std::string Next(plumb_decoder* decoder, int32_t token) {
  const char* text = nullptr;
  size_t size = 99;
  EXPECT_PLUMB_OK(plumb_decoder_next(decoder, &token, 1, &text, &size, err));
  EXPECT_EQ(std::strlen(text), size);
  return std::string(text, size);
}

TEST(DecodingTest, DecodesTokenByToken) {
  DecoderHandle decoder, after;
  {
    const TokenizerHandle tokenizer = MakeTokenizer();
    EXPECT_PLUMB_OK(plumb_decoder_create(tokenizer.get, nullptr, 0, &decoder.get, err));
    const int32_t prompt[] = {8, 2, 4};  // <s>, "a", and the first byte of a character
    EXPECT_PLUMB_OK(plumb_decoder_create(tokenizer.get, prompt, 3, &after.get, err));
  }  // a decoder keeps its tokenizer alive
  std::vector<std::string> texts;
  for (const int32_t token : {8, 2, 2, 3, 4, 5, 6, 7, 4}) {
    texts.push_back(Next(decoder.get, token));
  }
  EXPECT_THAT(texts, ElementsAre("", "a", " a", "b", "", "", "", "😀", ""));
  const char* rest = nullptr;
  EXPECT_PLUMB_OK(plumb_decoder_finish(decoder.get, &rest, nullptr, err));
  EXPECT_STREQ(rest, "\xf0");
  EXPECT_EQ(Next(decoder.get, 2), "a") << "it begins a new text";
  EXPECT_EQ(Next(after.get, 5), "");
  EXPECT_EQ(Next(after.get, 6), "");
  EXPECT_EQ(Next(after.get, 7), "😀");
  EXPECT_EQ(Next(after.get, 2), " a");
  const auto fails = [&](const int32_t* tokens, size_t count) {
    return Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_decoder_next, after.get, tokens, count,
                 nullptr, nullptr);
  };
  const int32_t outside = 9;
  EXPECT_THAT(fails(&outside, 1), HasSubstr("outside the vocabulary"));
  EXPECT_THAT(fails(nullptr, 1), HasSubstr("tokens is NULL"));
  EXPECT_EQ(Next(after.get, 3), "b");
}

TEST(DecodingTest, StopTextsEndTheText) {
  const TokenizerHandle tokenizer = MakeTokenizer();
  DecoderHandle decoder;
  EXPECT_PLUMB_OK(plumb_decoder_create(tokenizer.get, nullptr, 0, &decoder.get, err));
  const char* const stops[] = {"b a", "😀"};
  EXPECT_PLUMB_OK(plumb_decoder_stop_at(decoder.get, stops, 2, err));
  std::vector<std::string> texts;
  for (const int32_t token : {2, 3, 3, 2, 2, 3}) texts.push_back(Next(decoder.get, token));
  EXPECT_THAT(texts, ElementsAre("a", "", "b", "", "", "")) << "\"b\" may begin a stop text";
  EXPECT_EQ(plumb_decoder_stopped(decoder.get), 1);
  const char* rest = nullptr;
  EXPECT_PLUMB_OK(plumb_decoder_finish(decoder.get, &rest, nullptr, err));
  EXPECT_STREQ(rest, "");
  EXPECT_EQ(plumb_decoder_stopped(decoder.get), 1);
  EXPECT_EQ(Next(decoder.get, 2), "a") << "it begins a new text";
  EXPECT_EQ(plumb_decoder_stopped(decoder.get), 0);
  EXPECT_EQ(Next(decoder.get, 3), "");
  EXPECT_PLUMB_OK(plumb_decoder_finish(decoder.get, &rest, nullptr, err));
  EXPECT_STREQ(rest, "b") << "what was held back was no stop text";
  EXPECT_EQ(plumb_decoder_stopped(decoder.get), 0);
  EXPECT_EQ(plumb_decoder_stopped(nullptr), 0);
  const auto fails = [&](const char* const* texts_given, int64_t count) {
    return Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_decoder_stop_at, decoder.get, texts_given,
                 count);
  };
  const char* const empty[] = {"a", ""};
  EXPECT_THAT(fails(empty, 2), HasSubstr("empty"));
  const char* const none[] = {nullptr};
  EXPECT_THAT(fails(none, 1), HasSubstr("texts[0] is NULL"));
  EXPECT_THAT(fails(nullptr, 1), HasSubstr("texts is NULL"));
  EXPECT_PLUMB_OK(plumb_decoder_stop_at(decoder.get, nullptr, 0, err));
  EXPECT_EQ(Next(decoder.get, 3), "b");
}

TEST(DecodingTest, ReadsEndTokensOfADirectory) {
  const std::string directory = testing::TempDir() + "decoding_test_tokenizer";
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/tokenizer.json") << kTokenizer;
  std::ofstream(directory + "/generation_config.json") << R"({"eos_token_id": [3, 8]})";
  TokenizerHandle tokenizer;
  EXPECT_PLUMB_OK(plumb_tokenizer_from_directory(directory.c_str(), &tokenizer.get, err));
  const plumb_tokenizer_info info = GetInfo(tokenizer.get);
  EXPECT_THAT(std::vector<int32_t>(info.end_tokens, info.end_tokens + info.end_token_count),
              ElementsAre(3, 8));
  EXPECT_EQ(info.end, 3);
  EXPECT_EQ(GetInfo(MakeTokenizer().get).end_token_count, 0);
  Fails(PLUMB_STATUS_NOT_FOUND, plumb_tokenizer_from_directory, "nowhere/at/all", &tokenizer.get);
}

// Copies of an element, followed by a page without access. Reading more elements than there are
// faults.
template <class T>
class Guarded {
 public:
  explicit Guarded(const T& element)
      : pages_(
            mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(pages_, MAP_FAILED);
    std::fill_n(get(), kPage / sizeof(T), element);
    EXPECT_EQ(mprotect(static_cast<char*>(pages_) + kPage, kPage, PROT_NONE), 0);
  }
  ~Guarded() { munmap(pages_, 2 * kPage); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  T* get() const { return reinterpret_cast<T*>(static_cast<char*>(pages_) + kPage % sizeof(T)); }

 private:
  static constexpr size_t kPage = 4096;
  void* const pages_;
};

// Fixture with a session on CapiTest's model, whose context is 8 tokens.
class GeneratingTest : public CapiTest {
 protected:
  GeneratingTest() : model_(CreateWithWeights()) {
    EXPECT_PLUMB_OK(plumb_session_create(model_.get, nullptr, &session_.get, err));
  }

  void Begin(const std::vector<int32_t>& prompt) {
    EXPECT_PLUMB_OK(plumb_session_truncate(session_.get, 0, 0, err));
    EXPECT_PLUMB_OK(plumb_session_feed(session_.get, 0, prompt.data(), prompt.size(), err));
  }

  // Draws up to `max` tokens with unchanged options.
  std::vector<int32_t> Generate(const plumb_sample_options* options, size_t max = 1000) {
    struct User {
      std::vector<int32_t> tokens;
      size_t max;
    } user = {{}, max};
    const plumb_status status = plumb_session_generate(
        session_.get, 0, options,
        [](void* to, int32_t token) {
          auto* const into = static_cast<User*>(to);
          into->tokens.push_back(token);
          return into->tokens.size() == into->max ? 1 : 0;
        },
        &user, nullptr);
    EXPECT_EQ(status, user.tokens.size() == max ? PLUMB_STATUS_CANCELLED : PLUMB_OK);
    return user.tokens;
  }

  ModelHandle model_;
  SessionHandle session_;
};

TEST_F(GeneratingTest, FinishReasonIsReported) {
  EXPECT_EQ(plumb_session_finish_reason(nullptr), PLUMB_FINISH_NONE);
  EXPECT_EQ(plumb_session_finish_reason(session_.get), PLUMB_FINISH_NONE);
  plumb_sample_options options = PLUMB_SAMPLE_OPTIONS_INIT;
  Begin({1});
  EXPECT_EQ(Generate(&options).size(), 8u);
  EXPECT_EQ(plumb_session_finish_reason(session_.get), PLUMB_FINISH_CONTEXT);
  Begin({1});
  EXPECT_EQ(Generate(&options, 3).size(), 3u);
  EXPECT_EQ(plumb_session_finish_reason(session_.get), PLUMB_FINISH_STOP);
  options.max_tokens = 3;
  Begin({1});
  EXPECT_EQ(Generate(&options).size(), 3u);
  EXPECT_EQ(plumb_session_finish_reason(session_.get), PLUMB_FINISH_LENGTH);
  plumb_session_cancel(session_.get);
  const auto ignore = [](void*, int32_t) { return 0; };
  EXPECT_EQ(plumb_session_generate(session_.get, 0, &options, ignore, nullptr, nullptr),
            PLUMB_STATUS_CANCELLED);
  EXPECT_EQ(plumb_session_finish_reason(session_.get), PLUMB_FINISH_NONE);
}

TEST_F(GeneratingTest, EndsAtAnyEndToken) {
  plumb_sample_options options = PLUMB_SAMPLE_OPTIONS_INIT;
  options.max_tokens = 40;
  options.seed = 3;
  Begin({1});
  const std::vector<int32_t> whole = Generate(&options);
  for (const std::vector<int32_t>& ends : {std::vector<int32_t>{0}, {4, 2}, {3, 1, 0}}) {
    options.end_tokens = ends.data();
    options.end_token_count = static_cast<int64_t>(ends.size());
    const auto first = std::find_first_of(whole.begin(), whole.end(), ends.begin(), ends.end());
    ASSERT_NE(first, whole.end()) << "another seed would do";
    Begin({1});
    EXPECT_EQ(Generate(&options), std::vector<int32_t>(whole.begin(), first))
        << "the end token is not returned";
    EXPECT_EQ(plumb_session_finish_reason(session_.get), PLUMB_FINISH_STOP);
  }
  const auto ignore = [](void*, int32_t) { return 0; };
  const auto generate = [&](plumb_error** e) {
    return plumb_session_generate(session_.get, 0, &options, ignore, nullptr, e);
  };
  const int32_t outside[] = {0, 5};
  options.end_tokens = outside;
  options.end_token_count = 2;
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, generate), HasSubstr("end_tokens: id 5 at 1"));
  options.end_tokens = nullptr;
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, generate), HasSubstr("end_tokens is NULL"));
}

// Like `plumb sample`: the newer half of a full context is fed as a new sequence.
TEST_F(GeneratingTest, MaxTokensReachPastTheContext) {
  plumb_sample_options options = PLUMB_SAMPLE_OPTIONS_INIT;
  options.max_tokens = 40;
  options.seed = 3;
  const std::vector<int32_t> prompt = {1, 4, 2};
  Begin(prompt);
  const std::vector<int32_t> whole = Generate(&options);
  ASSERT_EQ(whole.size(), 40u);
  EXPECT_EQ(plumb_session_finish_reason(session_.get), PLUMB_FINISH_LENGTH);

  SessionHandle fresh;
  std::swap(fresh.get, session_.get);
  EXPECT_PLUMB_OK(plumb_session_create(model_.get, nullptr, &session_.get, err));
  std::vector<int32_t> context = prompt, by_hand, appended;
  options.max_tokens = 1;
  Begin(context);
  for (options.drawn = 0; options.drawn < 40; ++options.drawn) {
    by_hand.push_back(Generate(&options).front());
    context.push_back(by_hand.back());
    if (context.size() > 8) context.erase(context.begin(), context.end() - 4);
    if (context.size() == 4) {
      Begin(context);
    } else {
      EXPECT_PLUMB_OK(plumb_session_feed(session_.get, 0, &context.back(), 1, err));
    }
  }
  EXPECT_EQ(by_hand, whole);
  Begin(prompt);
  for (options.drawn = 0; options.drawn < 40; ++options.drawn) {
    appended.push_back(Generate(&options).front());
    EXPECT_PLUMB_OK(plumb_session_append(session_.get, 0, appended.back(), err));
    EXPECT_LE(plumb_session_length(session_.get, 0), 8);
  }
  EXPECT_EQ(appended, whole);
}

TEST_F(GeneratingTest, AppendRefusesUnknownTokens) {
  const auto append = [&](int32_t sequence, int32_t token) {
    return [&, sequence, token](plumb_error** e) {
      return plumb_session_append(session_.get, sequence, token, e);
    };
  };
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, append(0, 5)),
              HasSubstr("not in the vocabulary"));
  EXPECT_THAT(Fails(PLUMB_STATUS_OUT_OF_RANGE, append(1, 0)), HasSubstr("no sequence 1"));
  EXPECT_PLUMB_OK(plumb_session_append(session_.get, 0, 3, err));
  EXPECT_EQ(plumb_session_length(session_.get, 0), 1);
}

TEST_F(GeneratingTest, NullIsTheInitializerAndTemperatureZeroTakesTheLikeliest) {
  const plumb_sample_options defaults = PLUMB_SAMPLE_OPTIONS_INIT;
  EXPECT_EQ(defaults.struct_size, sizeof(defaults));
  Begin({1, 4});
  const std::vector<int32_t> drawn = Generate(&defaults);
  Begin({1, 4});
  EXPECT_EQ(Generate(nullptr), drawn);
  // They draw at random.
  std::vector<int32_t> first;
  plumb_sample_options options = defaults;
  for (options.seed = 0; options.seed < 20; ++options.seed) {
    Begin({1, 4});
    first.push_back(Generate(&options, 1).front());
  }
  EXPECT_GT(*std::max_element(first.begin(), first.end()),
            *std::min_element(first.begin(), first.end()));
  Begin({1, 4});
  const std::vector<float> logits = Logits(session_.get, 0, 5);
  const auto likeliest =
      static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  auto zeros = MakeStruct<plumb_sample_options>();
  for (zeros.seed = 0; zeros.seed < 5; ++zeros.seed) {
    Begin({1, 4});
    EXPECT_EQ(Generate(&zeros, 1).front(), likeliest);
  }
}

TEST_F(GeneratingTest, ACopyContinuesLikeItsSequence) {
  plumb_session_options options = PLUMB_SESSION_OPTIONS_INIT;
  options.sequences = 2;
  SessionHandle session;
  EXPECT_PLUMB_OK(plumb_session_create(model_.get, &options, &session.get, err));
  const int32_t tokens[] = {1, 4, 2, 0, 3};
  EXPECT_PLUMB_OK(plumb_session_copy(session.get, 0, 1, err));
  EXPECT_EQ(plumb_session_logits(session.get, 1), nullptr);
  EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, tokens, 5, err));
  EXPECT_PLUMB_OK(plumb_session_feed(session.get, 1, tokens + 3, 2, err));
  EXPECT_PLUMB_OK(plumb_session_copy(session.get, 0, 1, err));
  EXPECT_EQ(plumb_session_length(session.get, 1), 5);
  EXPECT_EQ(Logits(session.get, 1, 5), Logits(session.get, 0, 5));
  EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, tokens, 2, err));
  EXPECT_PLUMB_OK(plumb_session_feed(session.get, 1, tokens, 2, err));
  EXPECT_EQ(Logits(session.get, 1, 5), Logits(session.get, 0, 5));
  // A copy of a shortened sequence has no logits until it is fed.
  EXPECT_PLUMB_OK(plumb_session_truncate(session.get, 0, 3, err));
  EXPECT_PLUMB_OK(plumb_session_copy(session.get, 0, 1, err));
  EXPECT_EQ(plumb_session_logits(session.get, 1), nullptr);
  EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, tokens + 3, 2, err));
  EXPECT_PLUMB_OK(plumb_session_feed(session.get, 1, tokens + 3, 2, err));
  EXPECT_EQ(Logits(session.get, 1, 5), Logits(session.get, 0, 5));
  Fails(PLUMB_STATUS_OUT_OF_RANGE, plumb_session_copy, session.get, 0, 2);
}

TEST_F(GeneratingTest, FeedingIsCancelled) {
  const int32_t tokens[] = {1, 4};
  Begin({1});
  const std::vector<float> before = Logits(session_.get, 0, 5);
  plumb_session_cancel(session_.get);
  EXPECT_EQ(plumb_session_feed(session_.get, 0, tokens, 2, nullptr), PLUMB_STATUS_CANCELLED);
  EXPECT_EQ(plumb_session_length(session_.get, 0), 1);
  EXPECT_EQ(Logits(session_.get, 0, 5), before);
  EXPECT_PLUMB_OK(plumb_session_feed(session_.get, 0, tokens, 2, err));
  EXPECT_EQ(plumb_session_length(session_.get, 0), 3);
}

// Each number of elements is set to a host's -1 or to the result of an overflow.
TEST_F(GeneratingTest, RefusesAbsurdCounts) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const TokenizerHandle tokenizer = MakeTokenizer();
  DecoderHandle decoder;
  EXPECT_PLUMB_OK(plumb_decoder_create(tokenizer.get, nullptr, 0, &decoder.get, err));
  auto evaluating = MakeStruct<plumb_evaluator_options>();
  evaluating.gradients = 1;
  EvaluatorHandle evaluator;
  EXPECT_PLUMB_OK(plumb_evaluator_create(model_.get, &evaluating, &evaluator.get, err));
  const ModelHandle bare = Create(TinyModel().Text());
  TrainerHandle trainer;
  const plumb_trainer_options training = Recipe("batch_size: 1");
  EXPECT_PLUMB_OK(plumb_trainer_create(model_.get, &training, &trainer.get, err));
  const Guarded<int32_t> ids(0);
  const char byte = 'a';
  char* text = nullptr;
  const Guarded<const char*> words("logits");
  auto tensor = MakeStruct<plumb_tensor_in_file>();
  tensor.name = "norm.weight";
  tensor.path = "/dev/null";
  tensor.dtype = PLUMB_DTYPE_F32;
  const Guarded<plumb_tensor_in_file> in_files(tensor);
  double loss = 0;
  // The counts are the largest ones, and those whose sizes in bytes overflow by one or wrap to a
  // few.
  for (const int64_t n : {int64_t{-1}, kMax, kMax / 2 + 2, kMax / 4 + 2}) {
    SCOPED_TRACE(n);
    const std::vector<std::function<plumb_status(plumb_error**)>> calls = {
        [&](plumb_error** e) { return plumb_session_feed(session_.get, 0, ids.get(), n, e); },
        [&](plumb_error** e) { return plumb_session_feed_batch(session_.get, ids.get(), n, e); },
        [&](plumb_error** e) {
          return plumb_tokenizer_decode(tokenizer.get, ids.get(), n, &text, nullptr, e);
        },
        [&](plumb_error** e) {
          return plumb_decoder_next(decoder.get, ids.get(), n, nullptr, nullptr, e);
        },
        [&](plumb_error** e) {
          plumb_decoder* none = nullptr;
          return plumb_decoder_create(tokenizer.get, ids.get(), n, &none, e);
        },
        [&](plumb_error** e) {
          return plumb_evaluator_run(evaluator.get, ids.get(), ids.get(), n, &loss, e);
        },
        [&](plumb_error** e) { return plumb_evaluator_set_types(evaluator.get, ids.get(), n, e); },
        [&](plumb_error** e) {
          return plumb_trainer_step(trainer.get, ids.get(), ids.get(), n, nullptr, e);
        },
        [&](plumb_error** e) { return plumb_model_map_tensors(bare.get, in_files.get(), n, e); },
        [&](plumb_error** e) {
          return plumb_trainer_probe(trainer.get, 1, words.get(), n, nullptr, nullptr, e);
        },
        [&](plumb_error** e) {
          const plumb_probe_fn see = [](void*, const plumb_probe*) -> int32_t { return 0; };
          return plumb_evaluator_probe(evaluator.get, words.get(), n, see, nullptr, e);
        },
        [&](plumb_error** e) { return plumb_recipe_text("", nullptr, words.get(), n, &text, e); },
    };
    for (size_t i = 0; i < calls.size(); ++i) {
      SCOPED_TRACE(i);
      const plumb_status status = calls[i](nullptr);
      EXPECT_TRUE(status == PLUMB_STATUS_INVALID_ARGUMENT || status == PLUMB_STATUS_OUT_OF_RANGE)
          << status;
    }
  }
  // The elements of texts are bytes.
  constexpr size_t kMaxSize = std::numeric_limits<size_t>::max();
  plumb_tokenizer* made = nullptr;
  int32_t* encoded = nullptr;
  int64_t count = 0;
  EXPECT_EQ(plumb_tokenizer_create(PLUMB_TOKENIZER_CHARACTERS, &byte, kMaxSize, 0, &made, nullptr),
            PLUMB_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(plumb_tokenizer_encode(tokenizer.get, &byte, kMaxSize, &encoded, &count, nullptr),
            PLUMB_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(plumb_model_load_memory(bare.get, &byte, kMaxSize, nullptr),
            PLUMB_STATUS_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace plumb
