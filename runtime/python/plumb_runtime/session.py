# SPDX-License-Identifier: Apache-2.0
"""Sessions: sequences that grow token by token."""
from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import POINTER, byref, c_int32, c_void_p
from typing import Any, Callable, Optional

from . import _structs as structs
from ._arguments import Ids, instance, int32, integer, tokens, weights_format
from ._calls import Interruptible, call, guarded
from ._handles import Object
from ._library import function
from .errors import Cancelled
from .model import Model
from .probe import ProfileRow, profile_rows
from .tensor import floats

_FINISH_REASONS = (None, "stop", "length", "context")


class Session(Object):
    """`sequences` (1 to 64) that grow token by token, computed with `weights` in "f32", "bf16" or "int8". For one
    thread at a time."""
    _kind = "session"

    def __init__(self, model: Model, sequences: int = 1, *, weights: str = "f32") -> None:
        options, made = structs.SessionOptions(sequences=sequences, weights=weights_format(weights)), c_void_p()
        self._info, self._count, self._weights = instance(model, Model, "model").info, options.sequences or 1, weights
        of_model = model._live()
        call("session_create", of_model, byref(options), byref(made))
        self._take(made, keep=of_model)
        self._finish_reason: Optional[str] = None

    def _figures(self) -> str:
        lengths = ", ".join(str(self.length(sequence)) for sequence in range(self._count))
        return f": {lengths} of {self._info.context_length} tokens, {self._weights}"

    def feed(self, ids: Ids, sequence: int = 0) -> None:
        """Appends tokens to a sequence."""
        pointer, count, _kept = tokens(ids)
        with self._use() as handle:
            call("session_feed", handle, int32(sequence, "sequence"), pointer, count)

    def append(self, token: int, sequence: int = 0) -> None:
        """Appends one token; a sequence with a full context restarts with the newer half of its tokens."""
        with self._use() as handle:
            call("session_append", handle, int32(sequence, "sequence"), int32(token, "token"))

    def feed_batch(self, ids: Ids) -> None:
        """Appends ids[s] to each sequence s, in one pass over the weights; -1 appends nothing."""
        pointer, count, _kept = tokens(ids)
        with self._use() as handle:
            call("session_feed_batch", handle, pointer, count)

    def logits(self, sequence: int = 0) -> Optional[memoryview[float]]:
        """Returns the logits [vocab_size] of the next token, valid until the next call, without a copy (numpy.asarray
        makes none either); None before a token was fed."""
        handle = self._live()
        logits = function("session_logits")(handle, int32(sequence, "sequence"))
        if not logits:
            return None
        return floats(ctypes.addressof(logits.contents), (self._info.vocab_size,), handle)[0]

    def length(self, sequence: int = 0) -> int:
        """Returns the number of tokens in a sequence."""
        return int(function("session_length")(self._live(), int32(sequence, "sequence")))

    def truncate(self, length: int, sequence: int = 0) -> None:
        """Removes all but the first `length` tokens."""
        with self._use() as handle:
            call("session_truncate", handle, int32(sequence, "sequence"), integer(length, "length"))

    def copy(self, source: int, to: int) -> None:
        """Makes the sequence `to` a copy of `source`: its tokens, caches and logits, to continue both."""
        with self._use() as handle:
            call("session_copy", handle, int32(source, "source"), int32(to, "to"))

    def generate(self, sequence: int = 0, *, on_token: Optional[Callable[[int], object]] = None, max_tokens: int = 0,
                 temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0,
                 index: int = 0, drawn: int = 0, vocabulary: int = 0, end_tokens: Ids = ()) -> list[int]:
        """Draws tokens and appends all but the last. Ends after max_tokens, also beyond the context, or, if that is 0,
        when the context is full; when one of end_tokens is drawn, which is not returned; or when on_token(id) returns
        False. `finish_reason` has the reason. `temperature` 0 takes the most likely token, and ignores top_k
        and top_p. Samples of one seed differ by their index. Returns the ids."""
        if top_p == 0:  # in C, 0 means the default
            raise ValueError("top_p must be above 0 and at most 1 (1 keeps all tokens), is 0")
        ends, end_count, _kept = tokens(end_tokens, "end_tokens")
        options = structs.SampleOptions(max_tokens=max_tokens, top_k=top_k,
                                        temperature=temperature, top_p=top_p, seed=seed, index=index, drawn=drawn,
                                        vocabulary=vocabulary, end_tokens=ctypes.cast(ends, POINTER(c_int32)),
                                        end_token_count=end_count)
        ids: list[int] = []
        with self._use() as handle, Interruptible() as interrupt:
            def told(_user: Any, token: int) -> int:
                ids.append(token)
                return 1 if interrupt.stops() else guarded(on_token, token) if on_token else 0

            self._finish_reason = None
            try:
                call("session_generate", handle, int32(sequence, "sequence"), byref(options), structs.TokenFn(told),
                     None)
            except Cancelled:
                if function("session_finish_reason")(handle) == 0:  # by cancel(), not by on_token
                    raise
            self._finish_reason = _FINISH_REASONS[function("session_finish_reason")(handle)]
        return ids

    def stream(self, sequence: int = 0, *, max_tokens: int = 0, drawn: int = 0, **options: Any) -> Iterator[int]:
        """Yields the tokens of generate(), which takes the same options, as they are drawn."""
        end = drawn + max_tokens if max_tokens else None
        while True:
            ids = self.generate(sequence, max_tokens=1, drawn=drawn, **options)
            drawn += 1
            is_full = end is None and self.length(sequence) == self._info.context_length
            stops = self._finish_reason == "stop"
            if not stops and drawn != end:
                self._finish_reason = "context" if is_full else "stop"  # the consumer stopped
            yield from ids
            if stops or drawn == end or is_full:
                return
            self.append(ids[0], sequence)

    @property
    def finish_reason(self) -> Optional[str]:
        """The reason why the last generate() or stream() ended: "stop" (an end token, on_token, or the consumer
        stopped), "length" (max_tokens), "context" (it is full, and max_tokens is 0). None: it failed, or was not
        called."""
        return self._finish_reason

    def profile(self, on: bool = True) -> None:
        """Starts a new profile of the following passes that feed tokens, or ends it."""
        with self._use() as handle:
            call("session_profile", handle, bool(on))

    def profile_rows(self) -> list[ProfileRow]:
        """Returns the profile, like Trainer.profile_rows."""
        with self._use() as handle:
            return profile_rows("session", handle)

    def cancel(self) -> None:
        """Ends generate() before its next token, and feed() before its next 512 tokens, with Cancelled. Any thread."""
        function("session_cancel")(self._live())
