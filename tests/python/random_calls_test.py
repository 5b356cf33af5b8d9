#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes random calls from several threads, with exceptions in callbacks, cancellations and interrupts, right and wrong
arguments. Afterwards every handle is freed, memory is flat, and a training has the bits that it has without all this.

random_calls_test.py [SEED [CALLS]]          long sequences from a seed
random_calls_test.py --hypothesis [COUNT]    short sequences by hypothesis, which finds the shortest one that fails
"""
import collections
import functools
import gc
import importlib.util
import random
import signal
import sys
import threading

import plumb_runtime as plumb
from plumb_runtime._handles import Handle, Lease

MODEL = 'n_layer: 1 n_head: 2 d_model: 8 context_length: 8 vocab_size: 5 block { placement: "pre" norm: "rms_norm" }'
RECIPE = "batch_size: 2 max_steps: 1000000"
IDS = [i % 5 for i in range(17)]
EXPECTED = (plumb.Error, ValueError, TypeError, OverflowError, IndexError, LookupError, RuntimeError)


class Caller:
    """Random calls on objects of its own and on a model that threads share."""

    def __init__(self, seed, runtime, shared):
        self.draw = random.Random(seed)
        self.runtime, self.shared = runtime, shared
        self.counts = collections.Counter()
        self.objects = {}

    def run(self, calls):
        """Makes the calls, which are given by their names."""
        for name in calls:
            try:
                getattr(self, name)()
                self.counts[name] += 1
            except EXPECTED as error:
                self.counts[type(error).__name__] += 1
            except KeyboardInterrupt:
                self.counts["KeyboardInterrupt"] += 1

    def get(self, kind, make):
        if self.objects.get(kind) is None or self.draw.random() < 0.1:
            self.objects[kind] = None  # a model has one trainer at a time
            self.objects[kind] = make()
        return self.objects[kind]

    def model(self):
        return self.get("model", lambda: plumb.Model(self.runtime, plumb.Spec(MODEL), seed=self.draw.randrange(9)))

    def trainer(self):
        return self.get("trainer", lambda: plumb.Trainer(self.model(), RECIPE))

    def session(self):
        return self.get("session", lambda: plumb.Session(
            self.draw.choice([self.shared, self.model()]), self.draw.choice([1, 2]),
            weights=self.draw.choice(["f32", "bf16", "int8"])))

    def ids(self, count):
        wrong = self.draw.random()
        if wrong < 0.05:
            return self.draw.choice([None, "abc", [0.5] * count, [2**40] * count, [7] * count, [[1], [1, 2]], b"", []])
        return [self.draw.randrange(5) for _ in range(count)]

    def callback(self, after):
        """Returns a callback that ends after some calls: by False, an exception, a cancellation or an interrupt."""
        how, left = self.draw.choice(["false", "raise", "cancel", "interrupt", "close", "reenter"]), [after]

        def tell(*_):
            left[0] -= 1
            if left[0] > 0:
                return None
            if how == "raise":
                raise LookupError("a callback")
            if how == "cancel":
                self.objects["trainer"].cancel()
            if how == "interrupt" and threading.current_thread() is threading.main_thread():
                signal.raise_signal(signal.SIGINT)
            if how == "close":
                self.objects["trainer"].close()
            if how == "reenter":
                self.objects["trainer"].step(IDS[:16], IDS[1:])
            return False

        return tell

    def call_step(self):
        self.trainer().step(self.ids(16), self.ids(16))

    def call_run(self):
        self.trainer().run(iter(lambda: (self.ids(16), self.ids(16)), None), self.callback(self.draw.randrange(1, 4)))

    def call_run_of_batches_that_fail(self):
        def batches():
            yield IDS[:16], IDS[1:]
            raise LookupError("batches")

        self.trainer().run(batches())

    def call_probe(self):
        self.trainer().probe(1, self.callback(self.draw.randrange(1, 9)), ["logits", "param.*"][:self.draw.randrange(3)])

    def call_gradient(self):
        assert len(self.trainer().gradient(self.draw.randrange(20)).view) > 0

    def call_feed(self):
        self.session().feed(self.ids(self.draw.randrange(1, 5)), self.draw.randrange(3))

    def call_generate(self):
        session = self.session()
        session.truncate(0)
        session.feed(1)
        after = self.draw.randrange(1, 6)

        def on_token(token):
            nonlocal after
            after -= 1
            if after == 0 and self.draw.random() < 0.5:
                raise LookupError("a token")
            return after > 0

        session.generate(seed=self.draw.randrange(9), on_token=self.draw.choice([None, on_token]))

    def call_stream(self):
        session = self.session()
        session.truncate(0)
        session.feed(1)
        for token in session.stream(max_tokens=4):
            if self.draw.random() < 0.2:
                break

    def call_evaluate(self):
        evaluator = plumb.Evaluator(self.draw.choice([self.shared, self.model()]), 2, gradients=True)
        evaluator.probe(self.draw.choice([None, self.callback(2)]), ["logits"])
        evaluator.loss(self.ids(16), self.ids(16))

    def call_write(self):
        self.objects["trainer"] = self.objects["session"] = None
        model = self.model()
        for tensor in model.tensors().values():
            tensor.view.cast("B")[0] ^= 1
        model.changed()

    def call_state(self):
        trainer = self.trainer()
        for tensor in trainer.state(self.draw.choice(["model", "optimizer", "other"])):
            trainer.write_state(tensor, trainer.read_state(tensor))

    def call_describe(self):
        spec = plumb.Spec(MODEL)
        spec[self.draw.choice(["n_layer", "d_model", "nothing"])] = self.draw.choice([1, 4, -3, "x"])
        plumb.Model(self.runtime, spec).describe()

    def call_tokenize(self):
        tokenizer = plumb.Tokenizer.bytes()
        decoder = tokenizer.decoder(stop=self.draw.choice(["x", "yy", [""]]))
        for token in tokenizer.encode("any text, é"):
            decoder.next(token if self.draw.random() > 0.05 else 1000)

    def call_close(self):
        if self.objects:
            each = self.objects.pop(self.draw.choice(sorted(self.objects)))
            if each is not None:
                each.close()


CALLS = [name for name in sorted(dir(Caller)) if name.startswith("call_")]


def train():
    trainer = plumb.Trainer(plumb.Model(plumb.Runtime(threads=1), plumb.Spec(MODEL), seed=3), RECIPE)
    return [trainer.step(IDS[:16], IDS[1:])[2:4] for _ in range(20)]


def resident_kilobytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4


def live():
    gc.collect()
    return sum(isinstance(each, (Handle, Lease)) for each in gc.get_objects())


def make_calls(seed, sequences):
    """Makes each sequence of calls on a thread, the first on this one. Returns how many calls ended how."""
    # A runtime is for one thread at a time; the model is shared.
    shared = plumb.Model(plumb.Runtime(threads=2), plumb.Spec(MODEL), seed=1)
    callers = [Caller(1000 * seed + i, plumb.Runtime(threads=2), shared) for i in range(len(sequences))]
    threads = [threading.Thread(target=caller.run, args=(calls,)) for caller, calls in zip(callers[1:], sequences[1:])]
    for thread in threads:
        thread.start()
    callers[0].run(sequences[0])
    for thread in threads:
        thread.join()
    return sum((caller.counts for caller in callers), collections.Counter())


def search(count):
    """Has hypothesis choose `count` groups of sequences for one to four threads, and makes all of them once more:
    hypothesis keeps what it has tried, so only then memory must be flat."""
    from hypothesis import HealthCheck, given, settings, strategies
    groups = []

    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategies.integers(0, 2**32),
           strategies.lists(strategies.lists(strategies.sampled_from(CALLS), max_size=12), min_size=1, max_size=4))
    def check(seed, sequences):
        groups.append((seed, sequences))
        make_calls(seed, sequences)
        assert live() == 0, f"{live()} handles are left"

    check()
    print(f"{len(groups)} groups of {sum(len(sequences) for _, sequences in groups)} sequences")
    return measure([functools.partial(make_calls, *group) for group in groups])


def repeat(seed, calls):
    """Makes `calls` random calls on each of four threads, six times."""
    draws = [random.Random(i) for i in range(seed, seed + 6)]
    return measure([functools.partial(make_calls, seed + i, [draw.choices(CALLS, k=calls) for _ in range(4)])
                    for i, draw in enumerate(draws)])


def measure(groups):
    """Runs the groups. Returns how many calls ended how, and the size of the process after each sixth."""
    counts, sizes = collections.Counter(), []
    for i, group in enumerate(groups, 1):
        counts += group()
        assert live() == 0, f"group {i}: {live()} handles are left"
        if i * 6 // len(groups) > len(sizes):
            sizes.append(resident_kilobytes())
    return counts, sizes


def main(seed="1", calls="300"):
    if seed == "--hypothesis" and not importlib.util.find_spec("hypothesis"):
        print("skipped: this Python has no hypothesis")
        sys.exit(77)
    expected = train()
    counts, sizes = search(int(calls)) if seed == "--hypothesis" else repeat(int(seed), int(calls))
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    print("resident after each sixth:", ", ".join(f"{size} KiB" for size in sizes))
    assert train() == expected, "the bits of a training changed"
    ends = ("Error", "LookupError", "KeyboardInterrupt", "Cancelled", "call_step", "call_generate", "call_tokenize")
    assert all(counts[end] for end in ends), counts
    # Allocators and interpreters vary by a megabyte, however many calls there are.
    assert max(sizes[3:]) < min(sizes[1:3]) * 1.15, "memory grows"


main(*sys.argv[1:])
