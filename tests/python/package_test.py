#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python package: its results and its errors."""
import array
import contextlib
import ctypes
import ctypes.util
import gc
import io
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import types
import unittest
import unittest.mock
import weakref

import plumb_runtime as plumb
from plumb_runtime._arguments import tokens

try:
    import numpy
except ImportError:
    numpy = None

MODEL = 'n_layer: 1 n_head: 2 d_model: 8 context_length: 8 vocab_size: 5 block { placement: "pre" norm: "rms_norm" }'
COUNT = [i % 5 for i in range(17)]


def model(**weights):
    return plumb.Model(plumb.Runtime(threads=1), plumb.Spec(MODEL), **(weights or {"seed": 3}))


# A tokenizer like Llama's: marks for spaces, byte tokens, <s> before a text.
LLAMA = json.dumps({
    "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
                       "special_tokens": {"<s>": {"ids": [7]}}},
    "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "added_tokens": [{"id": 7, "content": "<s>", "special": True}],
    "model": {"type": "BPE", "byte_fallback": True, "merges": ["▁ a"], "vocab": {
        "▁": 0, "a": 1, "▁a": 2, "<0xF0>": 3, "<0x9F>": 4, "<0x98>": 5, "<0x80>": 6}}})


def counting(rows=2):
    while True:
        yield COUNT[:8] * rows, COUNT[1:9] * rows


class Describing(unittest.TestCase):
    def test_an_error_has_its_place(self):
        with self.assertRaises(plumb.Error) as raised:
            plumb.Spec("n_layer: 2\nn_hed: 2", name="my.pbtxt")
        error = raised.exception
        self.assertEqual((error.file, error.line, error.code), ("my.pbtxt", 2, plumb.Code.INVALID_ARGUMENT))
        self.assertGreater(error.column, 0)
        self.assertIn('did you mean "n_head"', str(error))
        with self.assertRaises(plumb.Error) as raised:
            plumb.Spec.from_file("/not/there")
        self.assertEqual((raised.exception.file, raised.exception.line), (None, None))
        self.assertEqual(raised.exception.code, plumb.Code.NOT_FOUND)

    def test_a_spec_is_set_and_printed(self):
        spec = plumb.Spec(MODEL)
        spec["n_layer"] = 3
        spec["tie_embeddings"] = True
        spec["name"] = "ä" * 400
        self.assertIn("n_layer: 3", str(spec))
        self.assertIn("tie_embeddings: true", str(spec))
        self.assertIn("ä" * 400, str(spec))
        with self.assertRaises(plumb.Error):
            spec["n_layr"] = 3
        with self.assertRaises(ValueError):
            spec["name\0"] = "n"

    def test_notebooks_show_specs_and_descriptions(self):
        spec = plumb.Spec(MODEL)
        spec["name"] = "<script>"
        self.assertIn("&lt;script&gt;", spec._repr_html_())
        shown = plumb.describe(spec)._repr_html_()
        self.assertIn("x = x + f(norm(x))", shown)
        self.assertIn("(I + J_mlp J_norm) (I + J_attention J_norm)", shown)
        self.assertIn('<img alt="data flow of a layer" src="data:image/svg+xml;base64,', shown)

    def test_a_model_tells_its_sizes(self):
        info = model().info
        self.assertEqual((info.n_layer, info.d_model, info.n_head, info.vocab_size, info.context_length),
                         (1, 8, 2, 5, 8))
        self.assertEqual(info.weight_bytes, 4 * info.parameters)
        self.assertEqual(info.cache_bytes, 2 * 8 * 8 * 4)

    def test_messages_and_reprs_are_pythons(self):
        empty = plumb.Model(plumb.Runtime(), plumb.Spec(MODEL))
        with self.assertRaisesRegex(plumb.Error, r"seed= or weights=, or call its init\(\)") as raised:
            plumb.Session(empty)
        self.assertNotIn("plumb_", str(raised.exception))
        made = model()
        tensor = made.tensor(0)
        self.assertEqual(repr(tensor), f"<plumb.Tensor {tensor.name} {list(tensor.shape)} f32>")
        self.assertEqual(repr(made), f"<plumb.Model: 1 layers, 2 heads, d_model 8, {made.info.parameters} parameters>")
        self.assertEqual(repr(plumb.Trainer(made, "batch_size: 2")), "<plumb.Trainer: 0 steps of 16 tokens>")
        session = plumb.Session(made, 2, weights="int8")
        session.feed([1, 2, 3], 1)
        self.assertEqual(repr(session), "<plumb.Session: 0, 3 of 8 tokens, int8>")
        self.assertEqual(repr(plumb.Evaluator(made, logits=True)), "<plumb.Evaluator: 1 rows, f32, logits>")
        self.assertEqual(repr(plumb.Tokenizer.bytes()), "<plumb.Tokenizer: 256 tokens>")
        session.close()
        self.assertEqual(repr(session), "<plumb.Session, closed>")

    def test_the_log_is_told_and_may_raise(self):
        cross = MODEL.replace("rms_norm", "over") + 'norm { name: "over" plugin: "batch_norm" allow_cross_token: true }'
        with self.assertLogs("plumb", logging.WARNING) as logged:
            plumb.Model(plumb.Runtime(), plumb.Spec(cross))
        self.assertIn("later tokens", logged.output[0])

        def log(level, message):
            raise LookupError(message)

        runtime = plumb.Runtime(log=log)
        with self.assertRaises(LookupError):
            plumb.Model(runtime, plumb.Spec(cross))
        plumb.Model(runtime, plumb.Spec(MODEL))

    def test_a_runtime_says_what_it_has(self):
        described = plumb.Runtime(threads=3).describe()
        self.assertEqual(described["plumb"]["version"], plumb.version())
        self.assertEqual(described["threads"]["used"], 3)
        self.assertEqual(described["plumb"]["c_abi"], 3)
        self.assertIsInstance(described["problems"], list)

    def test_norms_and_models_describe_themselves(self):
        runtime = plumb.Runtime(2)
        self.assertEqual(runtime.threads, 2)
        self.assertIn("kernels", runtime.gemm())
        self.assertEqual(runtime.describe_plugin("rms_norm")["id"], "rms_norm")
        with self.assertRaisesRegex(plumb.Error, "/not/there"):
            runtime.load_plugin("/not/there.so")
        with self.assertRaisesRegex(ValueError, "gemm bf16"):
            runtime.measure_speed("gemm")
        self.assertGreater(runtime.measure_speed("read"), 1e8)
        described = model().describe()
        self.assertEqual(described["totals"]["parameters"], model().info.parameters)
        self.assertIn("tokens", model().explain("graph"))
        self.assertIn(">layer 0: ", model().explain("svg", layer=0))
        with self.assertRaisesRegex(plumb.Error, "there is no layer 9"):
            model().explain("svg", layer=9)
        with self.assertRaisesRegex(plumb.Error, "layer is only for"):
            model().explain("graph", layer=1)
        with self.assertRaisesRegex(ValueError, "stage must be one of graph"):
            model().explain("graphs")
        training, reading = model().work(True, 4), model().work(False, 4)
        self.assertGreater(training[0], reading[0])
        self.assertEqual(training[1], reading[1])

    def test_an_evaluator_has_gradients_and_probes(self):
        evaluated = model()
        evaluator = plumb.Evaluator(evaluated, 2, gradients=True)
        inputs, targets = next(counting())
        loss = evaluator.loss(inputs, targets)
        trainer = plumb.Trainer(model(), "batch_size: 2")
        self.assertAlmostEqual(trainer.step(inputs, targets).loss, loss, places=6)
        for i in range(len(evaluated)):
            mine, steps = evaluator.gradient(i), trainer.gradient(i)
            self.assertEqual((mine.name, mine.view), (steps.name, steps.view))
        seen = []
        evaluator.probe(lambda probe: seen.append((probe.step, probe.kind, probe.name)), ["logits"])
        self.assertEqual(evaluator.loss(inputs, targets), loss)
        self.assertEqual(seen, [(0, "activation", "logits")])
        evaluator.probe(None)
        evaluator.loss(inputs, targets)
        self.assertEqual(len(seen), 1)
        with self.assertRaisesRegex(plumb.Error, "gradients"):
            plumb.Evaluator(evaluated, 2).gradient(0)

    def test_an_evaluator_has_losses_hidden_states_and_an_end(self):
        evaluated = model()
        evaluator = plumb.Evaluator(evaluated, 2)
        inputs, targets = COUNT[:8] * 2, COUNT[1:8] + [-1] + COUNT[1:9]
        losses = evaluator.losses(inputs, targets)
        self.assertEqual(losses.shape, (2, 8))
        self.assertEqual(losses[0, 7], 0)
        mean = sum(map(sum, losses.tolist())) / 15
        self.assertAlmostEqual(evaluator.loss(inputs, targets), mean, places=6)
        states = []
        evaluator.probe(lambda probe: states.append((probe.name, probe.shape)), ["layers.0.residual"])
        evaluator.loss(inputs, targets)
        self.assertEqual(states, [("layers.0.residual", (2, 8, 8))])
        with self.assertRaisesRegex(plumb.Error, "options.gradients|activations only"):
            evaluator.probe(print, ["grad.logits"])
        evaluator.probe(lambda probe: evaluator.cancel(), ["embedding.residual"])
        with self.assertRaises(plumb.Cancelled):
            evaluator.loss(inputs, targets)

    def test_a_session_is_profiled(self):
        session = plumb.Session(model())
        session.profile()
        session.feed([1, 2])
        rows = session.profile_rows()
        self.assertEqual((rows[0].name, rows[0].runs, rows[-1].name), ("step", 1, "other"))
        self.assertAlmostEqual(sum(row.seconds for row in rows[1:]), rows[0].seconds, places=6)
        session.profile(False)
        session.feed([1])
        self.assertEqual(session.profile_rows()[0].runs, 1)

    def test_texts_become_tokens_and_texts_again(self):
        tokenizer = plumb.Tokenizer.characters("hällo", begin_end=True)
        self.assertEqual((tokenizer.vocab_size, tokenizer.end), (5, 4))
        self.assertEqual(tokenizer.encode("ohä"), array.array("i", [2, 0, 3]))
        self.assertEqual(tokenizer.decode([2, 0, 3]), "ohä")
        self.assertEqual(tokenizer.decode(3), "ä")
        self.assertEqual(plumb.Tokenizer(tokenizer.json).decode([3]), "ä")
        with self.assertRaises(plumb.Error):
            tokenizer.encode("x")
        tokenizer = plumb.Tokenizer.bytes()
        self.assertIsNone(tokenizer.end)
        text = "any \0 length " * 100
        self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)
        self.assertEqual(tokenizer.decode([255]), "\ufffd")


class Streaming(unittest.TestCase):
    def test_tokens_one_by_one_have_the_text_of_all(self):
        tokenizer = plumb.Tokenizer(LLAMA)
        decoder = tokenizer.decoder()
        ids = [7, 2, 2, 1, 3, 4, 5, 6, 3]
        pieces = [decoder.next(token) for token in ids]
        self.assertEqual(pieces, ["", "a", " a", "a", "", "", "", "😀", ""])
        self.assertEqual(decoder.finish(), "\N{REPLACEMENT CHARACTER}")
        self.assertEqual("".join(pieces) + "\N{REPLACEMENT CHARACTER}", tokenizer.decode(ids))
        self.assertEqual(decoder.next([2, 2]), "a a")  # the decoder starts a new text
        after = tokenizer.decoder([7, 2])
        tokenizer.close()
        self.assertEqual(after.next(2), " a")
        with self.assertRaises(plumb.Error):
            after.next(8)
        after.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            after.next(2)

    def test_a_text_ends_before_a_stop_text(self):
        tokenizer = plumb.Tokenizer.bytes()
        for stop, shown in ((["END"], "one EN two é "), ("é", "one EN two "), (("two", "one"), "")):
            decoder, text = tokenizer.decoder(stop=stop), ""
            for token in tokenizer.encode("one EN two é END"):
                text += decoder.next(token)
                if decoder.stopped:
                    break
            self.assertTrue(decoder.stopped)
            self.assertEqual(text + decoder.finish(), shown)
        with self.assertRaisesRegex(plumb.Error, "empty"):
            tokenizer.decoder(stop=[""])

    def test_generation_ends_at_any_end_token(self):
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "tokenizer.json"), "w", encoding="utf-8") as file:
                file.write(LLAMA)
            with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
                file.write('{"eos_token_id": [1, 3]}')
            self.assertEqual(list(plumb.Tokenizer.from_directory(directory).end_tokens), [1, 3])
        session = plumb.Session(model())
        session.feed([1, 2])
        whole = session.generate(max_tokens=40, seed=2)
        ends = [whole[5], whole[9]]
        first = min(whole.index(token) for token in ends)
        for draw in (session.generate, session.stream):
            session.truncate(0)
            session.feed([1, 2])
            self.assertEqual(list(draw(max_tokens=40, seed=2, end_tokens=ends)), whole[:first])
            self.assertEqual(session.finish_reason, "stop")
        with self.assertRaisesRegex(plumb.Error, "end_tokens"):
            session.generate(end_tokens=[5])

    def test_bytes_are_held_back_until_a_character_is_whole(self):
        tokenizer = plumb.Tokenizer.bytes()
        text = "a\0é€😀 \n"
        for given in (text, "z" + text):
            ids = tokenizer.encode(given)
            for prompt in range(len(ids) + 1):
                decoder = tokenizer.decoder(ids[:prompt], errors="strict")
                pieces = [decoder.next(token) for token in ids[prompt:]] + [decoder.finish()]
                known = bytes(list(ids[:prompt])).decode(errors="ignore")
                self.assertEqual(known + "".join(pieces), given)

    def test_there_may_be_more_tokens_than_characters(self):
        tokenizer = plumb.Tokenizer(LLAMA.replace('"\\u2581 a"', ""))
        self.assertEqual(list(tokenizer.encode("a")), [0, 1])
        self.assertEqual(list(tokenizer.encode("")), [])
        self.assertEqual(list(tokenizer.encode("a a")), [0, 1, 0, 1])

    def test_a_prompt_has_a_prefix(self):
        self.assertEqual(list(plumb.Tokenizer(LLAMA).prefix), [7])
        self.assertEqual(list(plumb.Tokenizer.bytes().prefix), [])
        self.assertEqual(list(plumb.Tokenizer.bytes(begin_end=True).prefix), [256])


class Training(unittest.TestCase):
    def test_learns_to_count(self):
        losses = []
        made = model()
        trainer = plumb.Trainer(made, "max_steps: 40 batch_size: 2 learning_rate: 0.03")
        self.assertEqual(trainer.step_tokens, 16)
        trainer.run(counting(), lambda info: losses.append(info.loss))
        self.assertEqual((len(losses), trainer.steps), (40, 40))
        self.assertLess(losses[-1], losses[0] / 2)
        session = plumb.Session(made)
        session.feed([0, 1, 2])
        self.assertEqual(session.generate(temperature=0, max_tokens=5), [3, 4, 0, 1, 2])

    def test_a_batch_is_a_pair(self):
        trainer = plumb.Trainer(model(), "max_steps: 3 batch_size: 2")
        inputs, targets = next(iter(counting()))
        for wrong in ((), (inputs,), (inputs, targets, targets)):
            with self.assertRaisesRegex(ValueError, "a pair"):
                trainer.run([wrong])
            with self.assertRaisesRegex(ValueError, "a pair"):
                trainer.step_micro_batches([wrong])
        self.assertEqual(trainer.steps, 0)
        with self.assertRaises(ValueError):
            plumb.recipe_text(settings=[("max_steps", "3", "batch_size")])

    def test_progress_is_one_line_of_a_terminal(self):
        for is_terminal in (True, False):
            stream = io.StringIO()
            stream.isatty = lambda: is_terminal
            with plumb.Progress(3, stream=stream, seconds=0) as progress:
                plumb.Trainer(model(), "max_steps: 3 batch_size: 2").run(counting(), progress)
            lines = stream.getvalue().split("\r")
            if is_terminal:
                self.assertEqual([line.partition(",")[0] for line in lines],
                                 ["", "step 1 of 3", "step 2 of 3", "step 3 of 3", "step 3 of 3"])
                self.assertTrue(lines[-1].endswith("\n"))
                self.assertIn("steps/s", lines[2])
            else:
                self.assertEqual(lines, [""])

    def test_progress_is_a_line_now_and_then_of_a_log(self):
        for seconds, shows, steps in ((0.0, None, ["1", "2", "3"]), (0.0, False, []), (3600.0, None, [])):
            stream = io.StringIO()
            with unittest.mock.patch("plumb_runtime.progress.LOG_SECONDS", seconds):
                with plumb.Progress(3, stream=stream, shows=shows) as progress:
                    plumb.Trainer(model(), "max_steps: 3 batch_size: 2").run(counting(), progress)
            self.assertEqual([line[:11] for line in stream.getvalue().splitlines()],
                             [f"step {step} of 3" for step in steps])

    def test_progress_is_one_output_of_a_notebook(self):
        shown = []
        handle = types.SimpleNamespace(update=lambda data, raw: shown.append(("update", data["text/plain"])))

        def display(data, raw, display_id):
            shown.append(("display", data["text/plain"]))
            return handle

        ipython = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=1),
                                        display=types.SimpleNamespace(display=display))
        stderr = io.StringIO()
        with unittest.mock.patch.dict(sys.modules, IPython=ipython), contextlib.redirect_stderr(stderr):
            with plumb.Progress(3, seconds=0) as progress:
                plumb.Trainer(model(), "max_steps: 3 batch_size: 2").run(counting(), progress)
        self.assertEqual([(how, text.partition(",")[0]) for how, text in shown],
                         [("display", "step 1 of 3"), ("update", "step 2 of 3"), ("update", "step 3 of 3"),
                          ("update", "step 3 of 3")])
        self.assertEqual(stderr.getvalue(), "")

    def test_batches_end_and_have_one_size(self):
        trainer = plumb.Trainer(model(), "batch_size: 1")
        trainer.run([(COUNT[:8], COUNT[1:9])] * 3)
        self.assertEqual(trainer.steps, 3)
        for wrong, error in (([(COUNT[:7], COUNT[1:9])], ValueError), ([(1, 2, 3)], ValueError), ([3], TypeError),
                             ([("abcdefgh", COUNT[:8])], TypeError), ([([9] * 8, COUNT[:8])], plumb.Error),
                             ([([0.5] * 8, COUNT[:8])], TypeError), ([([2**40] * 8, COUNT[:8])], OverflowError)):
            with self.assertRaises(error, msg=str(wrong)):
                trainer.run(wrong)
        self.assertEqual(trainer.steps, 3)
        with self.assertRaises(TypeError):
            trainer.run(7)

    def test_ids_may_be_anything_that_holds_integers(self):
        results = []
        kinds = [tuple, lambda ids: array.array("i", ids), lambda ids: array.array("q", ids), bytes,
                 lambda ids: memoryview(array.array("i", ids)).toreadonly(), iter]
        if numpy:
            kinds += [numpy.array, lambda ids: numpy.array(ids, numpy.int32).reshape(1, -1),
                      lambda ids: numpy.repeat(numpy.array(ids, numpy.int32), 2)[::2]]
        for kind in kinds:
            trainer = plumb.Trainer(model(), "batch_size: 1")
            results.append(trainer.step(kind(COUNT[:8]), kind(COUNT[1:9]))[:5])
        self.assertEqual(len(set(results)), 1)
        if numpy:
            session = plumb.Session(model())
            session.feed(numpy.int64(3))
            self.assertEqual(session.length(), 1)

    def test_ids_may_have_rows(self):
        flat, rows = COUNT[:16], [COUNT[:8], COUNT[8:16]]
        kinds = [rows, tuple(map(tuple, rows)), map(iter, rows), [array.array("q", row) for row in rows], [rows],
                 [[id] for id in flat], (ctypes.c_int32 * 16)(*flat), (ctypes.c_int64 * 8 * 2)(*map(tuple, rows)),
                 memoryview(array.array("i", flat)).cast("B").cast("i", (2, 8)), memoryview(bytes(flat[::-1]))[::-1],
                 (ctypes.c_int32.__ctype_be__ * 16)(*flat)]
        if numpy:
            for kind in ("i1", "u1", "i2", "i4", "u4", "i8", "u8", ">i4", ">i8"):
                wide = numpy.array([COUNT[:9], COUNT[8:17]], kind)
                kinds += [wide[:, :-1], wide[None, :, :-1], numpy.asfortranarray(wide)[:, :-1], list(wide[:, :-1])]
        for kind in kinds:
            pointer, count, _kept = tokens(kind)
            self.assertEqual(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int32))[:count], flat, repr(kind))
        ids = array.array("i", flat)
        self.assertEqual(ctypes.cast(tokens(ids)[0], ctypes.c_void_p).value, ids.buffer_info()[0])
        trainer = plumb.Trainer(model(), "batch_size: 2")
        trainer.step(rows, [[-1] * 8, COUNT[1:9]])
        trainer.run([(rows, rows)])
        self.assertEqual(trainer.steps, 2)
        evaluator = plumb.Evaluator(trainer._model, rows=2, logits=True)
        evaluator.loss(flat, rows)
        columns = [list(column) for column in zip(*rows)]
        views = [columns, [array.array("i", column) for column in columns], [columns],
                 memoryview(array.array("i", flat)).cast("B").cast("i", (8, 2))]
        for turned in views + ([numpy.array(rows).T] if numpy else []):
            for call in (lambda: trainer.step(rows, turned), lambda: trainer.step(turned, flat),
                         lambda: trainer.run([(flat, turned)]), lambda: evaluator.loss(rows, turned),
                         lambda: evaluator.losses(turned, rows), lambda: evaluator.logits(turned)):
                self.assertRaisesRegex(ValueError, "has rows of 2 tokens, not of 8; is it transposed", call)
        self.assertEqual(trainer.steps, 2)
        for wrong, error, says in (([[1, 2], [3]], ValueError, r"ids is ragged: .*ids\[1\] \(1,\)"),
                                   ([[1, 2], 3], ValueError, "ragged"), ([3, [1, 2]], ValueError, "ragged"),
                                   ([[1], [[2]]], ValueError, "ragged"),
                                   ([[1, 2], [3, 0.5]], TypeError, r"ids\[1\]\[1\] must be .* not float"),
                                   ([[1], "a"], TypeError, "not str"), ([[1], [None]], TypeError, "NoneType"),
                                   ([[1], [2**31]], OverflowError, "2147483648"),
                                   (array.array("d", [1]), TypeError, "format 'd'"),
                                   (array.array("Q", [2**63]), OverflowError, "32 bits")):
            with self.assertRaisesRegex(error, says, msg=str(wrong)):
                tokens(wrong)

    def test_what_a_callback_raises_comes_out(self):
        trainer = plumb.Trainer(model(), "batch_size: 2")

        def fails():
            yield next(counting())
            raise LookupError("no more")

        with self.assertRaisesRegex(LookupError, "no more"):
            trainer.run(fails())
        self.assertEqual(trainer.steps, 1)

        def after(info):
            raise SystemExit(3)

        with self.assertRaises(SystemExit):
            trainer.run(counting(), after)
        session = plumb.Session(model())
        session.feed(1)
        with self.assertRaises(ZeroDivisionError):
            session.generate(on_token=lambda token: 1 // 0)
        self.assertEqual(trainer.step(*next(counting())).step, 3)

    def test_false_and_cancel_end_a_run(self):
        trainer = plumb.Trainer(model(), "batch_size: 2 max_steps: 1000000000")
        with self.assertRaises(plumb.Cancelled):
            trainer.run(counting(), lambda info: info.step < 2)
        self.assertEqual(trainer.steps, 2)
        timer = threading.Timer(0.05, trainer.cancel)
        timer.start()
        with self.assertRaises(plumb.Cancelled):
            trainer.run(counting())
        timer.join()
        session = plumb.Session(model())
        session.feed(1)
        self.assertEqual(len(session.generate(on_token=lambda token: False)), 1)
        session.cancel()
        with self.assertRaises(plumb.Cancelled):
            session.generate()

    def test_a_step_callback_may_sample(self):
        made = model()
        session = plumb.Session(made)
        drawn = []

        def sample(info):
            session.truncate(0)
            session.feed(0)
            drawn.append(session.generate(max_tokens=2))

        plumb.Trainer(made, "batch_size: 2 max_steps: 4").run(counting(), sample)
        self.assertEqual([len(tokens) for tokens in drawn], [2] * 4)

    def interrupted(self, code):
        """Runs code in a process of its own, which prints when it can be interrupted. Interrupts
        it."""
        child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True)
        self.addCleanup(child.kill)
        self.assertEqual(child.stdout.readline(), "runs\n")
        time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        printed = child.communicate(timeout=30)[0]
        self.assertEqual(child.returncode, 0, printed)
        return printed

    def test_ctrl_c_ends_a_run_after_a_whole_step(self):
        for _ in range(5):
            printed = self.interrupted(f"""
                import plumb_runtime as plumb
                model = plumb.Model(plumb.Runtime(threads=1), plumb.Spec({MODEL!r}), seed=1)
                trainer = plumb.Trainer(model, "batch_size: 1 max_steps: 1000000000")
                session = plumb.Session(model)
                def batches():
                    print("runs", flush=True)
                    while True:
                        yield [1] * 8, [2] * 8
                def sample(info):
                    session.truncate(0)
                    session.feed(1)
                    session.generate()
                try:
                    trainer.run(batches(), sample)
                except KeyboardInterrupt:
                    steps = trainer.steps
                    assert trainer.step([1] * 8, [2] * 8).step == steps + 1
                    print("interrupted")
                """)
            self.assertEqual(printed, "interrupted\n")


    def test_a_trainer_is_saved_and_goes_on(self):
        recipe = "batch_size: 2 max_steps: 6 learning_rate: 0.01"
        first, second = model(), model(seed=4)
        trainer, resumed = plumb.Trainer(first, recipe), plumb.Trainer(second, recipe)
        batches = counting()
        trainer.run([next(batches) for _ in range(3)])
        with tempfile.TemporaryDirectory() as directory:
            file = os.path.join(directory, "checkpoint")
            trainer.save(file)
            resumed.load(file)
        self.assertEqual(resumed.steps, 3)
        trainer.run(batches)
        resumed.run(batches)
        for name, tensor in first.tensors().items():
            self.assertEqual(tensor.view, second.tensors()[name].view, name)

    def test_probes_see_tensors_of_a_step(self):
        probed = model()
        trainer = plumb.Trainer(probed, "batch_size: 2 max_steps: 4")
        seen = []
        trainer.probe(2, lambda probe: seen.append((probe.step, probe.kind, probe.name, probe.shape)), ["logits"])
        gc.collect()
        trainer.run(counting())
        self.assertEqual(seen, [(step, "activation", "logits", (2, 8, 5)) for step in (1, 2, 4)])
        with self.assertRaises(plumb.Error):
            trainer.probe(1, seen.append, ["no.such"])
        self.assertIn("logits", probed.probe_points())

        def fails(probe):
            raise LookupError(probe.name)

        trainer.probe(1, fails)
        with self.assertRaises(LookupError):
            trainer.step(*next(counting()))
        trainer.probe(0, fails)
        trainer.step(*next(counting()))

    def test_a_probe_has_its_tensor_until_it_returns(self):
        trainer = plumb.Trainer(model(), "batch_size: 2")
        probes, sums = [], []

        def look(probe):
            probes.append(probe)
            flat = probe.view.cast("B").cast("f")
            sums.append(sum(flat) / len(flat))
            self.assertEqual((probe.view.shape, probe.view.readonly, probe.dtype), (probe.shape, True, "f32"))

        trainer.probe(1, look, ["logits", "param.head.*"])
        trainer.step(*next(counting()))
        self.assertGreater(len(probes), 0)
        for probe, mean in zip(probes, sums):
            self.assertAlmostEqual(probe.mean, mean, places=5)
            for gone in (lambda: probe.view, probe.numpy):
                with self.assertRaisesRegex(ValueError, "until the callback returns"):
                    gone()
        kept = []
        trainer.probe(1, lambda probe: kept.append(probe.view[0:1]), ["logits"])
        with self.assertRaisesRegex(RuntimeError, "logits outlives"):
            trainer.step(*next(counting()))

    def test_a_function_computes_the_loss(self):
        calls = []

        def halves(rows):
            """Halves of the squares of the logits where there is a target, over 24."""
            calls.append((rows.step, rows.micro_batch, rows.first_row))
            self.assertEqual(rows.inputs.tolist(), [COUNT[:8]] * 2)
            self.assertEqual(rows.targets.tolist(), [COUNT[1:9]] * 2)
            self.assertTrue(rows.logits.readonly and not rows.gradient.readonly)
            logits, gradient = rows.logits.cast("B").cast("f"), rows.gradient.cast("B").cast("f")
            for i, logit in enumerate(logits):
                gradient[i] = logit / 24
            return sum(logit * logit for logit in logits) / 48

        recipe = "batch_size: 2 gradient_accumulation_steps: 2 learning_rate: 0.05"
        of = model()
        trainer = plumb.Trainer(of, recipe, loss=halves)
        self.assertEqual(plumb.Trainer.plan(of, recipe, loss=halves), trainer.memory)
        ids = COUNT[:8] * 4, COUNT[1:9] * 4
        losses = [trainer.step(*ids).loss for _ in range(30)]
        self.assertEqual(calls[:3], [(1, 0, 0), (1, 1, 0), (2, 0, 0)])
        self.assertLess(losses[-1], losses[0] / 10)
        trainer.close()

        kept = []
        for wrong, kind in ((lambda rows: kept.append(rows.logits[0:1]) or 0.0, RuntimeError), (lambda rows: None, TypeError),
                            (lambda rows: 1 // 0, ZeroDivisionError)):
            with plumb.Trainer(of, recipe, loss=wrong) as trainer:
                with self.assertRaises(kind):
                    trainer.step(*ids)
                self.assertEqual(trainer.steps, 0)
        with plumb.Trainer(of, recipe, loss=lambda rows: False) as trainer:
            with self.assertRaises(plumb.Cancelled):
                trainer.step(*ids)
            self.assertEqual(trainer.steps, 0)

    @unittest.skipUnless(numpy, "there is no numpy")
    def test_a_histogram_of_a_probe(self):
        for dtype in ("F32", "BF16"):
            seen = []
            trainer = plumb.Trainer(model(), f"batch_size: 2 dtype: {dtype}")
            trainer.probe(1, lambda probe: seen.append((probe, probe.numpy())))
            trainer.step(*next(counting()))
            self.assertIn(dtype.lower(), {probe.dtype for probe, _ in seen})
            for probe, values in seen:
                if values is None:
                    self.assertEqual((dtype, probe.kind), ("BF16", "parameter"))
                    continue
                self.assertEqual((values.dtype, values.shape), (numpy.float32, probe.shape))
                self.assertEqual(numpy.histogram(values)[0].sum(), probe.elements)
                self.assertAlmostEqual(float(abs(values).max()), probe.max, places=5)

    def test_a_step_callback_saves_and_looks(self):
        recipe = "batch_size: 2 max_steps: 4"
        made = model()
        trainer, seen = plumb.Trainer(made, recipe), []
        with tempfile.TemporaryDirectory() as directory:
            file = os.path.join(directory, "checkpoint")

            def look(info):
                seen.append((trainer.steps, trainer.gradient(0).shape, set(made.tensors())))
                if info.step == 2:
                    trainer.save(file)
                for change in (lambda: trainer.step(*next(counting())), lambda: trainer.load(file),
                               lambda: trainer.run(counting()), lambda: trainer.probe(1, print)):
                    with self.assertRaisesRegex(RuntimeError, "in a call"):
                        change()

            trainer.run(counting(), look)
            resumed = model(seed=4)
            again = plumb.Trainer(resumed, recipe)
            again.load(file)
        self.assertEqual([steps for steps, _, _ in seen], [1, 2, 3, 4])
        self.assertEqual(again.steps, 2)
        again.run(counting())
        self.assertEqual([tensor.view for tensor in resumed.tensors().values()],
                         [tensor.view for tensor in made.tensors().values()])
        blocked = []

        def elsewhere(info):
            def save():
                with self.assertRaisesRegex(RuntimeError, "in a call"):
                    trainer.save("not written")
                blocked.append(info.step)
            thread = threading.Thread(target=save)
            thread.start()
            thread.join()

        trainer = plumb.Trainer(model(), "batch_size: 2 max_steps: 1")
        trainer.run(counting(), elsewhere)
        self.assertEqual(blocked, [1])

    def test_an_evaluator_agrees_with_the_trainer(self):
        made = model()
        evaluator = plumb.Evaluator(made, rows=2, logits=True)
        inputs, targets = next(counting())
        loss = evaluator.loss(inputs, targets)
        logits = evaluator.logits(inputs)
        self.assertEqual(logits.shape, (2, 8, 5))
        self.assertAlmostEqual(plumb.Trainer(made, "batch_size: 2").step(inputs, targets).loss, loss, places=5)
        with self.assertRaises(ValueError):
            evaluator.loss(inputs, targets[1:])
        with self.assertRaises(ValueError):
            plumb.Evaluator(made).logits(inputs[:8])


class Sampling(unittest.TestCase):
    def test_a_stream_is_what_generate_gives(self):
        session = plumb.Session(model(), weights="int8")
        for options in ({"seed": 5}, {"seed": 5, "index": 1, "max_tokens": 3}, {"temperature": 0}, {"vocabulary": 1}):
            session.truncate(0)
            session.feed(1)
            whole = session.generate(**options)
            session.truncate(0)
            session.feed(1)
            self.assertEqual(list(session.stream(**options)), whole)

    def test_a_generation_says_why_it_ended(self):
        session = plumb.Session(model())
        self.assertIsNone(session.finish_reason)
        for options, reason, drawn in (({}, "context", 8), ({"max_tokens": 3}, "length", 3), ({"max_tokens": 20}, "length", 20)):
            session.truncate(0)
            session.feed(1)
            self.assertEqual(len(session.generate(seed=1, **options)), drawn)
            self.assertEqual(session.finish_reason, reason)
            session.truncate(0)
            session.feed(1)
            self.assertEqual(len(list(session.stream(seed=1, **options))), drawn)
            self.assertEqual(session.finish_reason, reason)
        session.truncate(0)
        session.feed(1)
        self.assertEqual(len(session.generate(on_token=lambda _: False)), 1)
        self.assertEqual(session.finish_reason, "stop")
        for _ in session.stream(max_tokens=3):
            break
        self.assertEqual(session.finish_reason, "stop")
        with self.assertRaises(plumb.Error):
            session.generate(temperature=-1)
        self.assertIsNone(session.finish_reason)

    def test_a_text_may_be_longer_than_the_context(self):
        session, by_hand = plumb.Session(model()), plumb.Session(model())
        session.feed([1, 2])
        drawn = session.generate(max_tokens=40, seed=2)
        self.assertEqual(len(drawn), 40)
        self.assertLessEqual(session.length(), 8)
        session.truncate(0)
        session.feed([1, 2])
        self.assertEqual(list(session.stream(max_tokens=40, seed=2)), drawn)
        context = [1, 2]  # of 8 tokens; a full context continues with its newer half
        by_hand.feed(context)
        for i, token in enumerate(drawn):
            self.assertEqual(by_hand.generate(max_tokens=1, drawn=i, seed=2), [token])
            context.append(token)
            if len(context) > 8:
                context = context[-4:]
                by_hand.truncate(0)
                by_hand.feed(context)
            else:
                by_hand.feed(token)
        with self.assertRaises(plumb.Error):
            by_hand.feed([1] * 8)

    def test_greedy_is_the_likeliest_and_zeros_are_nothing(self):
        session = plumb.Session(model())
        for seed in range(5):
            session.truncate(0)
            session.feed(1)
            logits = session.logits().tolist()
            self.assertEqual(session.generate(temperature=0, max_tokens=1, seed=seed), [logits.index(max(logits))])
            with self.assertRaisesRegex(ValueError, "top_p"):
                session.generate(top_p=0)

    def test_a_sequence_is_copied(self):
        session = plumb.Session(model(), sequences=2)
        session.feed([1, 4, 2])
        session.copy(0, 1)
        self.assertEqual(session.length(1), 3)
        self.assertEqual(session.logits(1).tolist(), session.logits(0).tolist())

    def test_several_sequences_grow_together(self):
        made = model()
        session, alone = plumb.Session(made, sequences=3), plumb.Session(made)
        session.feed_batch([1, 2, 3])
        session.feed_batch([4, 0, 1])
        alone.feed([2, 0])
        for a, b in zip(session.logits(1), alone.logits()):
            self.assertAlmostEqual(a, b, places=5)
        self.assertEqual(session.length(2), 2)
        self.assertIsNone(plumb.Session(made).logits())

    def test_options_out_of_range(self):
        made = model()
        for seed in (-1, 2**64):
            with self.assertRaisesRegex(OverflowError, "seed: .* is not in 0 .. 18446744073709551615"):
                model(seed=seed)
            with self.assertRaisesRegex(OverflowError, "seed"):
                made.init(seed)
        made.init(2**64 - 1)
        trainer = plumb.Trainer(made)
        for use in (lambda: plumb.Trainer(made, seq=2**63), lambda: plumb.Runtime(threads=2**31),
                    lambda: trainer.probe(2**64, print), lambda: plumb.Session(made).truncate(2**64),
                    lambda: plumb.Session(made).feed(1, 2**32), lambda: plumb.Session(made).logits(2**32),
                    lambda: plumb.Session(made).length(2**32), lambda: plumb.Session(made).generate(2**32),
                    lambda: plumb.Evaluator(made, rows=2**64 + 1)):
            with self.assertRaises(OverflowError):
                use()
        trainer.close()
        for wrong in ({"sequences": 65}, {"sequences": 2**32 + 1}, {"weights": "f16"}, {"sequences": "1"}):
            with self.assertRaises((plumb.Error, OverflowError, ValueError, TypeError), msg=str(wrong)):
                plumb.Session(made, **wrong)
        session = plumb.Session(made)
        session.feed(1)
        for wrong in ({"temperature": -1}, {"top_p": 2}, {"max_tokens": -1}, {"seed": -1}, {"sequence": 4}):
            with self.assertRaises((plumb.Error, OverflowError), msg=str(wrong)):
                session.generate(**wrong)
        with self.assertRaises(plumb.Error):
            session.feed([1] * 8)
        self.assertEqual(session.length(), 1)


class Tensors(unittest.TestCase):
    def test_views_are_the_weights_and_keep_them(self):
        made = model()
        tensors = made.tensors()
        self.assertEqual(len(tensors), len(made))
        name, tensor = next((name, tensor) for name, tensor in tensors.items() if len(tensor.shape) == 2)
        self.assertEqual(tensor.view.shape, tensor.shape)
        tensor.view[1, 2] = 0.25
        with tempfile.TemporaryDirectory() as directory:
            file = os.path.join(directory, "w.safetensors")
            made.save(file)
            with open(file, "rb") as opened:
                content = opened.read()
            for weights in (file, content):
                self.assertEqual(model(weights=weights).tensors()[name].view[1, 2], 0.25)
            with self.assertRaises(plumb.Error):
                model(weights=content[:-1])
        made.close()
        del made, tensors
        gc.collect()
        self.assertEqual(tensor.view[1, 2], 0.25)

    def test_gradients_are_views_too(self):
        made = model()
        trainer = plumb.Trainer(made, "batch_size: 2")
        with self.assertRaises(plumb.Error):
            trainer.gradient(0)
        info = trainer.step(*next(counting()))
        squares = sum(value * value for i in range(len(made)) for value in trainer.gradient(i).view.cast("B").cast("f"))
        self.assertAlmostEqual(squares, info.gradient_norm**2, delta=1e-4 * squares)
        gradient = trainer.gradient(0).view
        named = trainer.gradients()
        self.assertEqual(list(named), list(made.tensors()))
        for name, tensor in named.items():
            self.assertEqual(trainer.gradient(name).view, tensor.view)
            self.assertEqual(made.tensor(name).view, made.tensors()[name].view)
        evaluator = plumb.Evaluator(made, gradients=True)
        evaluator.loss(COUNT[:8], COUNT[1:9])
        self.assertEqual(evaluator.gradient("head.weight").view, evaluator.gradients()["head.weight"].view)
        with self.assertRaisesRegex(KeyError, "no tensor 'head'; tensors.. has .*head.weight"):
            trainer.gradient("head")
        del named, tensor
        evaluator.close()
        trainer.close()
        self.assertIsInstance(gradient[(0,) * gradient.ndim], float)

    def test_a_frozen_tensor_has_no_gradient(self):
        trainer = plumb.Trainer(model(), "batch_size: 2 rule { match: 'head.*' } rule { match: '*' freeze: true }")
        trainer.step(*next(counting()))
        with self.assertRaisesRegex(plumb.Error, "frozen by a rule of the recipe"):
            trainer.gradient(0)
        self.assertEqual(list(trainer.gradients()), ["head.weight"])
        with self.assertRaisesRegex(plumb.Error, "no step was done"):
            plumb.Trainer(model(), "batch_size: 2").gradients()
        trainer.close()

    def test_a_view_forbids_bf16(self):
        made = model()
        view = made.tensor(0).view
        with self.assertRaisesRegex(RuntimeError, "view"):
            plumb.Trainer(made, "dtype: BF16")
        del view
        plumb.Trainer(made, "dtype: BF16 batch_size: 2").step(*next(counting()))

    def test_weights_are_mapped_and_changed(self):
        made, mapped = model(), model(seed=4)
        with tempfile.TemporaryDirectory() as directory:
            file = os.path.join(directory, "w.safetensors")
            made.save(file)
            view = mapped.tensor(0).view
            with self.assertRaisesRegex(RuntimeError, "view"):
                mapped.map(file)
            del view
            mapped.map(file)
        self.assertEqual(mapped.tensor(0).view, made.tensor(0).view)
        session = plumb.Session(mapped, weights="bf16")
        session.feed(1)
        before = session.logits().tolist()
        for tensor in mapped.tensors().values():
            flat = tensor.view.cast("B").cast("f")
            for i, weight in enumerate(flat):
                flat[i] = 2 * weight
        mapped.changed()
        session.truncate(0)
        session.feed(1)
        self.assertNotEqual(session.logits().tolist(), before)
        session.close()
        kept = mapped.tensor(0).view
        with self.assertRaisesRegex(RuntimeError, "view"):
            plumb.Trainer(mapped)
        del kept, tensor, flat
        plumb.Trainer(mapped)

    @unittest.skipUnless(numpy, "there is no numpy")
    def test_numpy_sees_the_same_memory(self):
        made = model()
        tensor = made.tensor(0)
        weights = tensor.numpy()
        self.assertEqual((weights.dtype, weights.shape), (numpy.float32, tensor.shape))
        weights[...] = 7
        self.assertEqual(tensor.view[(0,) * len(tensor.shape)], 7)
        self.assertEqual(made.tensor(0).numpy().mean(), 7)
        del made, tensor
        gc.collect()
        self.assertEqual(weights.mean(), 7)


class Misuse(unittest.TestCase):
    def test_use_after_close(self):
        made = model()
        trainer, session = plumb.Trainer(made, "batch_size: 2"), plumb.Session(made)
        tokenizer, spec, runtime = plumb.Tokenizer.bytes(), plumb.Spec(MODEL), plumb.Runtime()
        for each in (runtime, spec, tokenizer, made, trainer, session):
            each.close()
            each.close()
        for use in (lambda: made.info, lambda: made.init(1), lambda: made.tensor(0), lambda: len(made),
                    lambda: made.save("x"), lambda: plumb.Trainer(made), lambda: plumb.Session(made),
                    lambda: trainer.step([1] * 16, [1] * 16), lambda: trainer.run(counting()), trainer.cancel,
                    lambda: trainer.steps, lambda: trainer.gradient(0), lambda: session.feed(1), session.logits,
                    session.generate, session.cancel, lambda: tokenizer.encode("a"), lambda: tokenizer.json,
                    lambda: str(spec), lambda: plumb.Model(runtime, plumb.Spec(MODEL)), spec.__enter__,
                    lambda: plumb.Model(plumb.Runtime(), spec), lambda: runtime.register_plugin(0),
                    runtime.describe):
            with self.assertRaisesRegex(ValueError, "is closed"):
                use()

    def test_wrong_types(self):
        made, session = model(), plumb.Session(model())
        runtime, spec = plumb.Runtime(), plumb.Spec(MODEL)
        for use in (lambda: plumb.Spec(3), lambda: plumb.Spec.from_file(None), lambda: plumb.Model(spec, runtime),
                    lambda: plumb.Model(None, None), lambda: plumb.Trainer(made, 3), lambda: plumb.Trainer(session),
                    lambda: plumb.Trainer("made"), lambda: plumb.Session(3), lambda: plumb.Tokenizer(3),
                    lambda: plumb.Tokenizer.characters(3), lambda: session.feed("abc"), lambda: session.feed(None),
                    lambda: session.feed([1.5]), lambda: session.feed([None]), lambda: session.feed(memoryview(bytes(4)).cast("f")),
                    lambda: made.tensor(0.5), lambda: made.tensor(None), lambda: made.init("1"), lambda: made.load(3.5),
                    lambda: plumb.Runtime("2"), lambda: plumb.Runtime(gemm=3), lambda: runtime.register_plugin("x.so")):
            with self.assertRaises((TypeError, ctypes.ArgumentError)):
                use()
        with self.assertRaises(IndexError):
            made.tensor(-1)
        with self.assertRaises(plumb.Error):
            made.tensor(999)

    def test_two_calls_at_once(self):
        made = model()
        trainer = plumb.Trainer(made, "batch_size: 2 max_steps: 3")
        with self.assertRaisesRegex(RuntimeError, "in a call"):
            trainer.run(counting(), lambda info: trainer.step([1] * 16, [1] * 16))
        # The trainer is closed by its own callback. The running call keeps it alive.
        trainer = plumb.Trainer(model(), "batch_size: 2 max_steps: 3")
        steps = []
        trainer.run(counting(), lambda info: (steps.append(info.step), trainer.close()) and None)
        self.assertEqual(steps, [1, 2, 3])

    def test_what_a_callback_raises_keeps_nothing(self):
        def raises(*_):
            raise KeyError("mine")

        def train(made):
            trainer = plumb.Trainer(made, "batch_size: 2")
            return trainer, lambda: trainer.run(counting(), raises)

        def fill(made):
            trainer = plumb.Trainer(made, "batch_size: 2")
            return trainer, lambda: trainer.run(map(raises, [1]))

        def micro_batches(made):
            trainer = plumb.Trainer(made, "batch_size: 2")
            return trainer, lambda: trainer.step_micro_batches([([[1]] * 3, [[1]] * 3)])

        def probe(made):
            trainer = plumb.Trainer(made, "batch_size: 2")
            trainer.probe(1, raises, ["logits"])
            return trainer, lambda: trainer.step(*next(counting()))

        def evaluate(made):
            evaluator = plumb.Evaluator(made, gradients=True)
            evaluator.probe(raises, ["logits"])
            return evaluator, lambda: evaluator.loss(COUNT[:8], COUNT[1:9])

        def sample(made):
            session = plumb.Session(made)
            session.feed(1)
            return session, lambda: session.generate(on_token=raises)

        def fail(made):
            session = plumb.Session(made)
            return session, lambda: session.feed([1] * 99)

        gc.collect()
        gc.disable()
        try:
            for make in (train, fill, micro_batches, probe, evaluate, sample, fail):
                made = model()
                used, call = make(made)
                try:  # assertRaises would clear the frames of the traceback
                    call()
                    self.fail(make.__name__)
                except (KeyError, ValueError, plumb.Error):
                    pass
                handles = [weakref.ref(used._handle), weakref.ref(made._handle)]
                del used, call, made
                self.assertEqual([handle() for handle in handles], [None, None], make.__name__)
        finally:
            gc.enable()

    def test_closing_in_any_order_and_collecting(self):
        for order in range(4):
            made = model()
            parts = [made, plumb.Trainer(made, "batch_size: 2"), plumb.Session(made), made.tensor(0)]
            del made
            parts[:] = parts[order:] + parts[:order]
            while parts:
                parts.pop(0)
                gc.collect()

    def test_other_threads_run_during_a_step(self):
        spec = plumb.Spec('n_layer: 2 n_head: 4 d_model: 256 context_length: 128 vocab_size: 5 '
                          'block { placement: "pre" norm: "rms_norm" }')
        trainer = plumb.Trainer(plumb.Model(plumb.Runtime(threads=1), spec, seed=1), "batch_size: 8")
        ids, counts, ends = [1] * 1024, [0], threading.Event()
        trainer.step(ids, ids)

        def count():
            while not ends.wait(0.001):
                counts[0] += 1

        thread = threading.Thread(target=count)
        thread.start()
        before = counts[0]
        trainer.step(ids, ids)
        during = counts[0] - before
        ends.set()
        thread.join()
        self.assertGreater(during, 3)  # a step takes a tenth of a second

    def test_threads_have_sessions_of_their_own(self):
        made = model()

        def decode(seed, into):
            session = plumb.Session(made)
            session.feed(1)
            into[seed] = session.generate(seed=seed)

        alone, together = {}, {}
        for seed in range(4):
            decode(seed, alone)
        threads = [threading.Thread(target=decode, args=(seed, together)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(together, alone)


class Loading(unittest.TestCase):
    def run_with(self, **environment):
        return subprocess.run([sys.executable, "-c", "import plumb_runtime as plumb; print(plumb.version())"], text=True, capture_output=True,
                              env={**os.environ, **environment}, check=False)

    def test_a_library_that_is_not_there_or_is_none(self):
        self.assertIn("PLUMB_LIBRARY", self.run_with(PLUMB_LIBRARY="/not/there.so").stderr)
        other = ctypes.util.find_library("m") or "libm.so.6"
        self.assertIn("has no plumb_", self.run_with(PLUMB_LIBRARY=other).stderr)

    def test_the_library_is_found(self):
        self.assertEqual(self.run_with().stdout, plumb.version() + "\n")
        self.assertIs(plumb.load(), plumb.load())


class KeepingAState(unittest.TestCase):
    RECIPE = "max_steps: 9 batch_size: 2 gradient_accumulation_steps: 2 seed: 3"
    PAIRS = [([COUNT[:8]] * 2, [COUNT[1:9]] * 2), ([COUNT[:3]] * 2, [COUNT[1:4]] * 2)]

    def test_a_recipe_is_completed(self):
        whole = plumb.recipe_text("max_steps: 7", {"learning_rate": 0.5})
        self.assertIn("learning_rate: 0.5", whole)
        self.assertIn("decay_steps: 7", whole)
        self.assertEqual(plumb.recipe_text(whole), whole)
        with self.assertRaises(plumb.Error) as raised:
            plumb.recipe_text("max_steps: 7\nbeta1: 2", name="train.pbtxt")
        self.assertEqual((raised.exception.file, raised.exception.line), ("train.pbtxt", 2))

    def test_memory_is_planned(self):
        of = plumb.Model(plumb.Runtime(threads=1), plumb.Spec(MODEL))
        planned = plumb.Trainer.plan(of, self.RECIPE)
        self.assertEqual(2 * planned.total, sum(planned))
        self.assertEqual(plumb.Trainer(of, self.RECIPE, draw_weights=True).memory, planned)
        self.assertGreater(plumb.Evaluator.plan(of, logits=True), plumb.Evaluator.plan(of))

    def test_micro_batches_may_be_short(self):
        trainer = plumb.Trainer(model(), self.RECIPE)
        self.assertEqual(trainer.step_micro_batches(self.PAIRS).tokens, 22)
        for wrong in (self.PAIRS[:1], self.PAIRS * 2, [([COUNT[:9]] * 2, [COUNT[1:10]] * 2)] * 2,
                      [([COUNT[:8]], [COUNT[1:9]])] * 2, [([COUNT[:8]] * 2, [COUNT[1:8]] * 2)] * 2):
            with self.assertRaises(ValueError):
                trainer.step_micro_batches(wrong)
        self.assertEqual(trainer.steps, 1)

    def test_a_state_goes_on_elsewhere(self):
        for dtype in ("dtype: F32", "dtype: BF16"):
            one, other = (plumb.Trainer(model(), f"{self.RECIPE} {dtype}") for _ in range(2))
            for _ in range(2):
                one.step_micro_batches(self.PAIRS)
            for kind in ("model", "optimizer"):
                tensors = one.state(kind)
                self.assertEqual(tensors, other.state(kind))
                for tensor in tensors:
                    other.write_state(tensor, one.read_state(tensor))
            other.steps = one.steps
            self.assertEqual(one.step_micro_batches(self.PAIRS), other.step_micro_batches(self.PAIRS)._replace(
                seconds=unittest.mock.ANY))
            with self.assertRaises(ValueError):
                other.write_state(tensors[0], array.array("f", [1]))
            with self.assertRaises(ValueError):
                one.state("weights")

    def test_rates_figures_and_profiles(self):
        trainer = plumb.Trainer(model(), self.RECIPE + " learning_rate: 0.5")
        trainer.scale_learning_rate(0.5)
        self.assertEqual(trainer.learning_rate, 0.25)
        self.assertEqual(trainer.profile_rows(), [])
        trainer.profile()
        trainer.probe(3, None, ["logits", "param.head.weight"])
        self.assertEqual(trainer.get_probes(), [])
        trainer.step_micro_batches(self.PAIRS)
        self.assertEqual([(seen.kind, seen.name) for seen in trainer.get_probes()],
                         [("activation", "logits"), ("parameter", "head.weight"), ("parameter gradient", "head.weight")])
        self.assertGreater(trainer.get_probes()[0].norm, 0)
        trainer.step_micro_batches(self.PAIRS)
        self.assertEqual(trainer.get_probes(), [])
        rows = trainer.profile_rows()
        self.assertEqual((rows[0].name, rows[0].runs, rows[-1].name), ("step", 2, "other"))
        self.assertTrue(any(row.in_graph and row.flops > 0 for row in rows))
        trainer.check()
        tensor = trainer.state("optimizer")[0]
        values = array.array("f", bytes(trainer.read_state(tensor)))
        values[0] = float("inf")
        trainer.write_state(tensor, values)
        with self.assertRaises(plumb.Error) as raised:
            trainer.check()
        self.assertEqual(raised.exception.code, plumb.Code.ABORTED)

    def test_a_model_is_told(self):
        of = model()
        self.assertEqual(list(of.norms()), ["rms_norm"])
        self.assertIn('each: "x = x + f(norm(x))"', of.text())


if __name__ == "__main__":
    unittest.main()
