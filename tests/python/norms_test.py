#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of norms written in Python: they train as the same norm in C does, and their errors are found. Exit code 77
without numpy."""
import gc
import logging
import sys
import threading
import unittest

import plumb_runtime as plumb

try:
    import numpy
except ImportError:
    print("skipped: there is no numpy")
    sys.exit(77)
try:
    import torch
except ImportError:
    torch = None

MODEL = 'n_layer: 2 n_head: 2 d_model: 16 context_length: 16 vocab_size: 7 block {{ placement: "pre" norm: "{}" }}'
IDS = numpy.arange(129) % 7
RECIPE = "batch_size: 8 max_steps: 20 learning_rate: 0.01"


def rms(id):
    """Returns RMSNorm, with the formula and the defaults of the norm that ships."""

    @plumb.norm(id, parameters={"weight": 1.0}, attributes={"eps": 1e-5})
    def forward(x, weight, eps):
        "y = weight x / rms(x)"
        return weight * x / numpy.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)

    @forward.backward
    def _(x, dy, weight, eps):
        scale = 1 / numpy.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
        g = dy * weight
        return scale * g - x * scale**3 * (g * x).mean(axis=-1, keepdims=True), (dy * x * scale).sum(axis=0)

    return forward


class Norms(unittest.TestCase):
    def test_trains_like_the_norm_in_c(self):
        for threads in (1, 4):
            runtime = plumb.Runtime(threads)
            runtime.register_plugin(rms("org.example.rms"))
            self.assertEqual(runtime.describe_plugin("org.example.rms")["doc"], "y = weight x / rms(x)")
            losses = []
            for norm in ("org.example.rms", "rms_norm"):
                made = plumb.Model(runtime, plumb.Spec(MODEL.format(norm)), seed=1)
                found = []
                plumb.Trainer(made, RECIPE).run(iter(lambda: (IDS[:128], IDS[1:]), None),
                                                lambda info: found.append(info.loss))
                session = plumb.Session(made)
                session.feed(IDS[:4])
                losses.append([*found, *session.logits()])
                names = [name for name in made.tensors() if "norm" in name]
                self.assertEqual(len(names), 5)
            self.assertLess(losses[0][19], losses[0][0] / 2)
            numpy.testing.assert_allclose(losses[0], losses[1], rtol=1e-4, atol=1e-4)

    def test_attributes_are_those_of_the_model(self):
        runtime = plumb.Runtime(1)
        runtime.register_plugin(rms("org.example.rms"))
        losses = []
        for norm in ("rms_norm", "org.example.rms"):
            text = MODEL.format("mine") + f'norm {{ name: "mine" plugin: "{norm}" attr {{ name: "eps" number: 0.5 }} }}'
            made = plumb.Model(runtime, plumb.Spec(text), seed=1)
            losses.append(plumb.Evaluator(made, 8).loss(IDS[:128], IDS[1:]))
        self.assertAlmostEqual(losses[0], losses[1], places=5)

    def test_the_check_finds_wrong_norms(self):
        rms("org.example.rms").check()
        rms("org.example.rms").check(dim=3, rows=2, eps=0.5)

        def wrong(forward, backward, parameters=()):
            made = plumb.norm("org.example.wrong", parameters=dict.fromkeys(parameters, 1.0))(forward)
            return made.backward(backward)

        for made, says in ((wrong(lambda x: x * 2, lambda x, dy: dy), r"gradient of x is .* at \[0, 0\] instead of"),
                           (wrong(lambda x, b: x + b, lambda x, dy, b: (dy, dy.mean(axis=0)), "b"), "gradient of b is"),
                           (wrong(lambda x: x - x.mean(), lambda x, dy: dy - dy.mean()), "y of row 0 alone"),
                           (wrong(lambda x: x[:, :3], lambda x, dy: dy), r"shape \[5, 3\] instead of \[5, 16\]"),
                           (wrong(lambda x, b: x + b, lambda x, dy, b: dy, "b"), "1 gradients instead of 2")):
            with self.assertRaisesRegex(ValueError, says):
                made.check()

    def test_a_norm_is_declared_completely(self):
        with self.assertRaisesRegex(TypeError, r"must take \(x, gain\)"):
            plumb.norm("org.example.a", parameters={"gain": 1.0})(lambda x: x)
        forward = plumb.norm("org.example.a")(lambda x: x)
        with self.assertRaisesRegex(TypeError, r"must take \(x, dy\)"):
            forward.backward(lambda x: x)
        runtime = plumb.Runtime()
        for use in (lambda: runtime.register_plugin(forward), forward.check):
            with self.assertRaisesRegex(ValueError, "no gradient"):
                use()
        with self.assertRaisesRegex(plumb.Error, "id"):
            runtime.register_plugin(plumb.norm("Not An Id")(lambda x: x).backward(lambda x, dy: dy))
        runtime.register_plugin(rms("org.example.twice"))
        with self.assertRaisesRegex(plumb.Error, "org.example.twice"):
            runtime.register_plugin(rms("org.example.twice"))

    def test_an_exception_fails_the_step(self):
        fails = []

        def forward(x):
            if fails:
                raise LookupError("not today")
            return x

        for threads in (1, 4):
            fails.clear()
            runtime = plumb.Runtime(threads)
            runtime.register_plugin(plumb.norm("org.example.fails")(forward).backward(lambda x, dy: dy))
            trainer = plumb.Trainer(plumb.Model(runtime, plumb.Spec(MODEL.format("org.example.fails")), seed=1), RECIPE)
            trainer.step(IDS[:128], IDS[1:])
            fails.append(True)
            with self.assertLogs("plumb", logging.ERROR) as logged, self.assertRaisesRegex(
                    plumb.Error, r"LookupError: not today \(.*norms_test.py:\d+\)"):
                trainer.step(IDS[:128], IDS[1:])
            self.assertIn("Traceback", logged.output[0])
            fails.clear()
            self.assertEqual(trainer.step(IDS[:128], IDS[1:]).step, 2)

    def test_an_interrupt_is_one(self):
        def forward(x):
            raise KeyboardInterrupt

        runtime = plumb.Runtime(1)
        runtime.register_plugin(plumb.norm("org.example.stops")(forward).backward(lambda x, dy: dy))
        made = plumb.Model(runtime, plumb.Spec(MODEL.format("org.example.stops")), seed=1)
        with self.assertLogs("plumb"), self.assertRaises(KeyboardInterrupt):
            plumb.Session(made).feed(1)

    def test_inputs_are_read_only(self):
        def forward(x):
            x += 1
            return x

        runtime = plumb.Runtime(1)
        runtime.register_plugin(plumb.norm("org.example.writes")(forward).backward(lambda x, dy: dy))
        made = plumb.Model(runtime, plumb.Spec(MODEL.format("org.example.writes")), seed=1)
        with self.assertLogs("plumb"), self.assertRaisesRegex(plumb.Error, "read-only"):
            plumb.Session(made).feed(1)

    def test_instances_are_freed(self):
        norm = rms("org.example.rms")
        runtime = plumb.Runtime(1)
        runtime.register_plugin(norm)
        made = plumb.Model(runtime, plumb.Spec(MODEL.format("org.example.rms")), seed=1)
        session = plumb.Session(made)
        session.feed(1)
        self.assertGreater(len(norm._instances), 0)
        del session, made, runtime
        gc.collect()
        self.assertEqual(len(norm._instances), 0)

    def test_threads_run_a_norm_at_once(self):
        runtime = plumb.Runtime(2)
        runtime.register_plugin(rms("org.example.rms"))
        made = plumb.Model(runtime, plumb.Spec(MODEL.format("org.example.rms")), seed=1)
        losses = []

        def evaluate():
            evaluator = plumb.Evaluator(made, 8)
            losses.extend(evaluator.loss(IDS[:128], IDS[1:]) for _ in range(20))

        threads = [threading.Thread(target=evaluate) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(losses), len(set(losses))), (80, 1))

    @unittest.skipUnless(torch, "there is no torch")
    def test_torch_computes_the_gradient(self):
        def forward(x, gain):
            return gain * torch.nn.functional.softsign(torch.as_tensor(x))

        @plumb.norm("org.example.softsign", parameters={"gain": 1.0})
        def softsign(x, gain):
            return forward(torch.tensor(x), torch.tensor(gain))

        @softsign.backward
        def _(x, dy, gain):
            x, gain = torch.tensor(x, requires_grad=True), torch.tensor(gain, requires_grad=True)
            return torch.autograd.grad(forward(x, gain), (x, gain), torch.tensor(dy))

        softsign.check()
        runtime = plumb.Runtime()
        runtime.register_plugin(softsign)
        made = plumb.Model(runtime, plumb.Spec(MODEL.format("org.example.softsign")), seed=1)
        trainer = plumb.Trainer(made, RECIPE)
        losses = [trainer.step(IDS[:128], IDS[1:]).loss for _ in range(20)]
        self.assertLess(losses[19], losses[0])


if __name__ == "__main__":
    unittest.main()
