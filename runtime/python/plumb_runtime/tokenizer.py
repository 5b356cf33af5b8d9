# SPDX-License-Identifier: Apache-2.0
"""Tokenizers, and decoders for tokens that arrive one by one."""
from __future__ import annotations

import array
import ctypes
import os
from collections.abc import Iterable
from ctypes import byref, c_char_p, c_int64, c_size_t, c_void_p
from typing import Any, Optional, TypeVar, Union

from . import _structs as structs
from ._arguments import Bytes, Ids, c_string, instance, tokens, utf8
from ._calls import call, taken, text
from ._handles import Object
from ._library import function

K = TypeVar("K", bound="Tokenizer")


def _array(pointer: Any, count: int) -> array.array[int]:
    return array.array("i", pointer[:count] if count else ())


class Tokenizer(Object):
    """Converts text to token ids and back. Created from the text of a tokenizer.json, or by characters(), bytes() or
    from_directory(). Immutable; for any threads at once."""
    _kind = "tokenizer"

    def __init__(self, text: Bytes) -> None:
        made = c_void_p()
        call("tokenizer_from_json", c_string(text, "text"), byref(made))
        self._take(made)

    @classmethod
    def from_directory(cls: type[K], path: Union[str, os.PathLike[str]]) -> K:
        """Returns the tokenizer in the directory of a run or a published model, with the special tokens in its
        files."""
        tokenizer, made = cls.__new__(cls), c_void_p()
        call("tokenizer_from_directory", os.fsencode(path), byref(made))
        tokenizer._take(made)
        return tokenizer

    @classmethod
    def _adopt(cls: type[K], made: c_void_p) -> K:
        """Returns the tokenizer of a handle that the library has made."""
        tokenizer = cls.__new__(cls)
        tokenizer._take(made)
        return tokenizer

    @classmethod
    def characters(cls: type[K], text: Bytes, begin_end: bool = False) -> K:
        """Returns a tokenizer with a token for each character in `text`; `begin_end` adds one that begins and ends a
        document."""
        return cls._create(0, utf8(text), begin_end)

    @classmethod
    def bytes(cls: type[K], begin_end: bool = False) -> K:
        """Returns a tokenizer with a token for each of the 256 bytes."""
        return cls._create(1, b"", begin_end)

    @classmethod
    def _create(cls: type[K], kind: int, text: Any, begin_end: bool) -> K:
        tokenizer, made = cls.__new__(cls), c_void_p()
        call("tokenizer_create", kind, text, len(text), bool(begin_end), byref(made))
        tokenizer._take(made)
        return tokenizer

    def _figures(self) -> str:
        return f": {self.vocab_size} tokens"

    @property
    def json(self) -> str:
        """The tokenizer as a tokenizer.json."""
        return text("tokenizer_json", self._live()).decode()

    def _info(self) -> structs.TokenizerInfo:
        info = structs.TokenizerInfo()
        call("tokenizer_get_info", self._live(), byref(info))
        return info

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return int(self._info().vocab_size)

    @property
    def begin(self) -> Optional[int]:
        """The token that begins a document of training data, or None."""
        token = int(self._info().begin)
        return None if token < 0 else token

    @property
    def end(self) -> Optional[int]:
        """The token that ends a document of training data, or None. In tokenizers of characters and bytes it also
        begins one."""
        token = int(self._info().end)
        return None if token < 0 else token

    @property
    def end_tokens(self) -> array.array[int]:
        """The tokens that end a text, as array.array("i"), for Session.generate()."""
        info = self._info()
        return _array(info.end_tokens, info.end_token_count)

    @property
    def prefix(self) -> array.array[int]:
        """The ids to put before those of encode() in a prompt, such as <s>, as array.array("i")."""
        info = self._info()
        return _array(info.prefix, info.prefix_count)

    def encode(self, text: Bytes) -> array.array[int]:
        """Returns ids, as array.array("i"); there may be more than the text has characters."""
        encoded, made, count = utf8(text), c_void_p(), c_int64()
        call("tokenizer_encode", self._live(), encoded, len(encoded), byref(made), byref(count))
        return array.array("i", taken(made, 4 * count.value))

    def decode(self, ids: Ids, errors: str = "replace") -> str:
        """Returns the text of ids. Tokens of bytes may be invalid UTF-8, which `errors` handles (bytes.decode). Use
        decoder() for tokens that arrive one by one."""
        (pointer, count, _kept), made, size = tokens(ids), c_void_p(), c_size_t()
        call("tokenizer_decode", self._live(), pointer, count, byref(made), byref(size))
        return taken(made, size.value).decode("utf-8", errors)

    def decoder(self, prompt: Ids = (), errors: str = "replace", stop: Union[str, Iterable[str]] = ()) -> Decoder:
        """Returns a Decoder for tokens after those of `prompt`, whose text ends before the first of the strings
        `stop`."""
        return Decoder(self, prompt, errors, stop)


class Decoder(Object):
    """Converts tokens that arrive one by one after those of `prompt` to text. The results of next() and finish()
    concatenate to what Tokenizer.decode() returns for all tokens at once, without the prompt's text. The text ends
    before the first of the strings `stop`, and `stopped` is then true; text that may become one is held back. For one
    thread at a time."""
    _kind = "decoder"

    def __init__(self, tokenizer: Tokenizer, prompt: Ids = (), errors: str = "replace",
                 stop: Union[str, Iterable[str]] = ()) -> None:
        (pointer, count, _kept), made = tokens(prompt, "prompt"), c_void_p()
        call("decoder_create", instance(tokenizer, Tokenizer, "tokenizer")._live(), pointer, count, byref(made))
        self._take(made)
        self._errors = errors
        texts = [c_string(text, "stop") for text in ((stop,) if isinstance(stop, str) else stop)]
        if texts:
            call("decoder_stop_at", self._live(), (c_char_p * len(texts))(*texts), len(texts))

    @property
    def stopped(self) -> bool:
        """True once the text has reached one of the strings `stop`, after which next() returns ""."""
        return int(function("decoder_stopped")(self._live())) != 0

    def next(self, ids: Ids) -> str:
        """Returns the text that these tokens, or this one, complete; "" if more tokens must come."""
        pointer, count, _kept = tokens(ids)
        return self._text("decoder_next", pointer, count)

    def finish(self) -> str:
        """Returns the text that was held back. The next token begins a new text, without a prompt."""
        return self._text("decoder_finish")

    def _text(self, name: str, *arguments: Any) -> str:
        found, size = c_void_p(), c_size_t()
        with self._use() as handle:
            call(name, handle, *arguments, byref(found), byref(size))
            return ctypes.string_at(found.value or 0, size.value).decode("utf-8", self._errors)
