// SPDX-License-Identifier: Apache-2.0
// texts.hpp: the part of plumb.hpp, which includes it, for texts: descriptions of models, and
// tokenizers.
#ifndef PLUMB_TEXTS_HPP_
#define PLUMB_TEXTS_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "plumb.h"
#include "plumb/base.hpp"

namespace plumb {
PLUMB_HPP_INLINE namespace PLUMB_HPP_NAMESPACE {

// --- Descriptions of models ---------------------------------------------------------------------

// A model's description, plumb.v1.Model in protobuf text format (plumb_spec). Thread-compatible.
class Spec {
 public:
  // Reads a description from a file.
  static Result<Spec> FromFile(const std::string& path) {
    return Made([&](plumb_spec** spec, plumb_error** error) {
      return plumb_spec_from_file(path.c_str(), spec, error);
    });
  }
  // Reads a description from text; `name` stands for the file in messages.
  static Result<Spec> FromText(const std::string& text, const std::string& name = "model") {
    if (const auto checked = internal::CheckText(text); !checked) return checked.error();
    return Made([&](plumb_spec** spec, plumb_error** error) {
      return plumb_spec_from_text(text.c_str(), name.c_str(), spec, error);
    });
  }

  // Sets a field: ("n_layer", "8"), ("norm[0].attr[0].number", "1e-6").
  Result<void> Set(const std::string& field, const std::string& value) {
    return internal::Call([&](plumb_error** error) {
      return plumb_spec_set(handle_.get(), field.c_str(), value.c_str(), error);
    });
  }
  template <class Integer, class = std::enable_if_t<std::is_integral_v<Integer>>>
  Result<void> Set(const std::string& field, Integer value) {
    if constexpr (std::is_same_v<Integer, bool>) {
      return Set(field, std::string(value ? "true" : "false"));
    } else {
      return Set(field, std::to_string(value));
    }
  }
  // Returns the description in protobuf text format.
  Result<std::string> Text() const {
    return internal::Text([&](char** text, plumb_error** error) {
      return plumb_spec_text(handle_.get(), text, error);
    });
  }

  plumb_spec* get() const noexcept { return handle_.get(); }

 private:
  using Handle = internal::Handle<plumb_spec, plumb_spec_free>;
  explicit Spec(Handle handle) : handle_(std::move(handle)) {}
  template <class Function>
  static Result<Spec> Made(const Function& function) {
    auto made = internal::Make<Handle>(function);
    if (!made) return made.error();
    return Spec(*std::move(made));
  }
  Handle handle_;
};

// --- Tokenizers ---------------------------------------------------------------------------------

// Size and special tokens of a tokenizer; -1: no such token.
struct TokenizerInfo {
  std::int64_t vocab_size = 0;
  std::int32_t begin = -1, end = -1;      // begin and end a document of training data
  std::vector<std::int32_t> prefix = {};  // before the tokens of Encode in a prompt, such as <s>
  std::vector<std::int32_t> end_tokens = {};  // end a generated text, for SampleOptions
};

// Converts text to token ids and back (plumb_tokenizer). Immutable; any thread.
class Tokenizer {
 public:
  // Creates a tokenizer with a token for each character in `text`; `begin_end` adds one that begins
  // and ends a document.
  static Result<Tokenizer> Characters(std::string_view text, bool begin_end = false) {
    return Create(PLUMB_TOKENIZER_CHARACTERS, text, begin_end);
  }
  // Creates a tokenizer with a token for each of the 256 bytes.
  static Result<Tokenizer> Bytes(bool begin_end = false) {
    return Create(PLUMB_TOKENIZER_BYTES, {}, begin_end);
  }
  // Reads a tokenizer from the text of a tokenizer.json, of a run or of a published model.
  static Result<Tokenizer> FromJson(const std::string& json) {
    if (const auto checked = internal::CheckText(json); !checked) return checked.error();
    return Made([&](plumb_tokenizer** tokenizer, plumb_error** error) {
      return plumb_tokenizer_from_json(json.c_str(), tokenizer, error);
    });
  }
  // Reads a tokenizer from the directory of a run or a published model, with the special tokens in
  // its files.
  static Result<Tokenizer> FromDirectory(const std::string& path) {
    return Made([&](plumb_tokenizer** tokenizer, plumb_error** error) {
      return plumb_tokenizer_from_directory(path.c_str(), tokenizer, error);
    });
  }

  // Returns the tokenizer as a tokenizer.json.
  Result<std::string> Json() const {
    return internal::Text([&](char** text, plumb_error** error) {
      return plumb_tokenizer_json(handle_.get(), text, error);
    });
  }
  // Returns the size and the special tokens.
  TokenizerInfo Info() const {
    auto found = internal::Sized<plumb_tokenizer_info>();
    static_cast<void>(internal::Call([&](plumb_error** error) {
      return plumb_tokenizer_get_info(handle_.get(), &found, error);
    }));
    return {found.vocab_size,
            found.begin,
            found.end,
            {found.prefix, found.prefix + found.prefix_count},
            {found.end_tokens, found.end_tokens + found.end_token_count}};
  }
  // Converts text to ids.
  Result<std::vector<std::int32_t>> Encode(std::string_view text) const {
    std::int32_t* tokens = nullptr;
    std::int64_t count = 0;
    const Result<void> encoded = internal::Call([&](plumb_error** error) {
      return plumb_tokenizer_encode(handle_.get(), text.data(), text.size(), &tokens, &count,
                                    error);
    });
    const std::unique_ptr<std::int32_t, internal::FreeMemory> owned(tokens);
    if (!encoded) return encoded.error();
    return std::vector<std::int32_t>(tokens, tokens + count);
  }
  // Converts ids to text, which for bytes may be invalid UTF-8. Use a Decoder for tokens that
  // arrive one by one.
  Result<std::string> Decode(Span<const std::int32_t> tokens) const {
    char* text = nullptr;
    std::size_t size = 0;
    const Result<void> decoded = internal::Call([&](plumb_error** error) {
      return plumb_tokenizer_decode(handle_.get(), tokens.data(), internal::Count(tokens), &text,
                                    &size, error);
    });
    const std::unique_ptr<char, internal::FreeMemory> owned(text);
    if (!decoded) return decoded.error();
    return std::string(text, size);
  }
  Result<std::string> Decode(std::int32_t token) const {
    return Decode(Span<const std::int32_t>(&token, 1));
  }

  plumb_tokenizer* get() const noexcept { return handle_.get(); }

 private:
  friend struct Run;
  using Handle = internal::Handle<plumb_tokenizer, plumb_tokenizer_free>;
  explicit Tokenizer(Handle handle) : handle_(std::move(handle)) {}
  static Result<Tokenizer> Create(std::int32_t kind, std::string_view text, bool begin_end) {
    return Made([&](plumb_tokenizer** tokenizer, plumb_error** error) {
      return plumb_tokenizer_create(kind, text.data(), text.size(), begin_end ? 1 : 0, tokenizer,
                                    error);
    });
  }
  template <class Function>
  static Result<Tokenizer> Made(const Function& function) {
    auto made = internal::Make<Handle>(function);
    if (!made) return made.error();
    return Tokenizer(*std::move(made));
  }
  Handle handle_;
};

// Converts tokens that arrive one by one to text (plumb_decoder): the results of Next and Finish
// concatenate to what Tokenizer::Decode returns for all tokens at once. Thread-compatible.
class Decoder {
 public:
  // Creates a decoder that begins after the tokens of a prompt, whose text is not returned.
  static Result<Decoder> Create(const Tokenizer& tokenizer, Span<const std::int32_t> prompt = {}) {
    auto made = internal::Make<Handle>([&](plumb_decoder** decoder, plumb_error** error) {
      return plumb_decoder_create(tokenizer.get(), prompt.data(), internal::Count(prompt), decoder,
                                  error);
    });
    if (!made) return made.error();
    return Decoder(*std::move(made));
  }

  // Returns the text that these tokens complete, often "".
  Result<std::string> Next(Span<const std::int32_t> tokens) {
    return Given([&](const char** text, std::size_t* size, plumb_error** error) {
      return plumb_decoder_next(handle_.get(), tokens.data(), internal::Count(tokens), text, size,
                                error);
    });
  }
  Result<std::string> Next(std::int32_t token) { return Next(Span<const std::int32_t>(&token, 1)); }
  // Returns the text that was held back. The next token begins a new text.
  Result<std::string> Finish() {
    return Given([&](const char** text, std::size_t* size, plumb_error** error) {
      return plumb_decoder_finish(handle_.get(), text, size, error);
    });
  }

  // Makes the text end before the first occurrence of one of these strings; text that may become
  // one is held back.
  Result<void> StopAt(const std::vector<std::string>& texts) {
    std::vector<const char*> given;
    for (const std::string& text : texts) given.push_back(text.c_str());
    return internal::Call([&](plumb_error** error) {
      return plumb_decoder_stop_at(handle_.get(), given.data(), internal::Count(given), error);
    });
  }
  // Returns true once the text has reached such a string.
  bool Stopped() const noexcept { return plumb_decoder_stopped(handle_.get()) != 0; }

  plumb_decoder* get() const noexcept { return handle_.get(); }

 private:
  using Handle = internal::Handle<plumb_decoder, plumb_decoder_free>;
  explicit Decoder(Handle handle) : handle_(std::move(handle)) {}
  template <class Function>
  static Result<std::string> Given(const Function& function) {
    const char* text = nullptr;
    std::size_t size = 0;
    const Result<void> given =
        internal::Call([&](plumb_error** error) { return function(&text, &size, error); });
    if (!given) return given.error();
    return std::string(text, size);
  }
  Handle handle_;
};

}  // namespace PLUMB_HPP_NAMESPACE
}  // namespace plumb

#endif  // PLUMB_TEXTS_HPP_
