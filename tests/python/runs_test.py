# SPDX-License-Identifier: Apache-2.0
"""Tests of plumb.train, open_run, compare and the functions of the command line: their files are those of `plumb`, to
the byte. The variables PLUMB and PLUMB_EXAMPLES name the program and the directory examples."""
from __future__ import annotations

import filecmp
import json
import os
import re
import signal
import subprocess
import tempfile
import unittest
from typing import Any, Optional

import plumb_runtime as plumb

EXAMPLES = os.environ["PLUMB_EXAMPLES"]
NAMES = os.path.join(EXAMPLES, "data", "names.txt")
PRE = os.path.join(EXAMPLES, "why_normalise", "pre.pbtxt")
POST = os.path.join(EXAMPLES, "why_normalise", "post.pbtxt")
RECIPE = os.path.join(EXAMPLES, "why_normalise", "train.pbtxt")
SHORT = {"model.n_layer": 2, "train.max_steps": 20, "train.data.val_fraction": 0.1}
WORDS = [word for field, value in SHORT.items() for word in ("--set", f"{field}={value}")]

GPT2 = """
n_layer: 1 n_head: 2 d_model: 16 context_length: 16 tie_embeddings: true
attention { bias: true } mlp { activation: GELU_TANH bias: true }
norm { name: "ln" plugin: "layer_norm" attr { name: "eps" number: 1e-5 } }
block { placement: "pre" norm: "ln" }
"""


def command(*words: str) -> str:
    """Runs `plumb` and returns what it prints."""
    return subprocess.run([os.environ["PLUMB"], *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
                          text=True).stdout


class RunsTest(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def assert_equal_runs(self, one: str, other: str) -> None:
        with open(os.path.join(other, "latest"), encoding="utf-8") as file:
            weights = os.path.join("checkpoints", file.read().strip(), "model.safetensors")
        for name in ("latest", "model.pbtxt", "train.pbtxt", "tokenizer.json", weights):
            self.assertTrue(filecmp.cmp(os.path.join(one, name), os.path.join(other, name), shallow=False), name)

    def test_a_run_that_was_interrupted_equals_the_command_lines(self) -> None:
        steps: list[int] = []

        def interrupt(step: plumb.RunStep) -> None:
            steps.append(step.step)
            if step.step == 7:
                os.kill(os.getpid(), signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            plumb.train(PRE, NAMES, RECIPE, out=self.path("run"), set=SHORT, callbacks=[interrupt])
        self.assertEqual(steps, [1, 2, 3, 4, 5, 6, 7])
        self.assertEqual(plumb.open_run(self.path("run")).step, 7)
        with self.assertRaises(plumb.Error) as raised:
            plumb.train(PRE, NAMES, RECIPE, out=self.path("run"), set=SHORT)
        self.assertEqual(raised.exception.code, plumb.Code.ALREADY_EXISTS)
        run = plumb.train(PRE, NAMES, RECIPE, out=self.path("run"), set=SHORT, resume=True)
        self.assertEqual(run.step, 20)
        command("train", PRE, "--data", NAMES, "--train", RECIPE, *WORDS, "--out", self.path("command"))
        self.assert_equal_runs(self.path("run"), self.path("command"))
        self.assertEqual(len(run.metrics["loss"]), 20)
        checkpoints = self.path("run/checkpoints")
        checkpoint = plumb.open_run(os.path.join(checkpoints, os.listdir(checkpoints)[0]))
        self.assertEqual(checkpoint.recipe, run.recipe)
        self.assertEqual(checkpoint.prompt("ma"), run.prompt("ma"))
        self.assertIn("max_steps: 20", run.recipe)
        self.assertEqual(run.info["seed"], 1)

    def test_prompts_are_context_and_completions_are_targets(self) -> None:
        with open(self.path("sums.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(f'{{"prompt": "{i % 5}+{i % 4}=", "completion": "{i % 5 + i % 4}"}}\n' for i in range(20))
        settings = {"model.n_layer": 2, "train.max_steps": 4, "train.batch_size": 16, "train.data.format": "JSONL"}
        run = plumb.train(PRE, self.path("sums.jsonl"), out=self.path("sums"), set=settings)
        self.assertEqual(run.metrics["tokens"], [2 * 16] * 4)  # the sum and the end token of 16 documents
        self.assertEqual(run.prompt("1+1="), [run.tokenizer.begin, *run.tokenizer.encode("1+1=")])

    def test_callbacks_stop_a_run_and_their_exceptions_arrive(self) -> None:
        stopped = plumb.train(PRE, NAMES, RECIPE, out=self.path("stopped"), set=SHORT,
                              callbacks=lambda step: step.step < 3)
        self.assertEqual(stopped.step, 3)
        with self.assertRaises(ZeroDivisionError):
            plumb.train(PRE, NAMES, RECIPE, out=self.path("failed"), set=SHORT,
                        callbacks=lambda step: 1 // (4 - step.step))
        self.assertEqual(plumb.open_run(self.path("failed")).step, 4)
        self.assertEqual(plumb.train(PRE, NAMES, RECIPE, out=self.path("at"), set=SHORT, stop_at=5).step, 5)

    def test_an_opened_run_samples_like_the_command_line(self) -> None:
        run = plumb.train(PRE, NAMES, RECIPE, out=self.path("run"), set=dict(SHORT, **{"train.max_steps": 200}))
        for seed in (1, 2, 3):
            self.assertEqual(run.sample("ma", seed=seed) + "\n",
                             command("sample", run.path, "--prompt", "ma", "--num", "1", "--seed", str(seed)))
        self.assertEqual(run.sample("an", temperature=0) + "\n",
                         command("sample", run.path, "--prompt", "an", "--num", "1", "--temperature", "0"))
        self.assertEqual(run.sample(seed=5, max_tokens=4) + "\n",
                         command("sample", run.path, "--num", "1", "--seed", "5", "--max-tokens", "4"))

    def test_errors_have_their_place(self) -> None:
        with open(self.path("wrong.pbtxt"), "w", encoding="utf-8") as file:
            file.write("n_layer: 1\nn_hed: 2\n")
        with self.assertRaises(plumb.Error) as raised:
            plumb.train(self.path("wrong.pbtxt"), NAMES, out=self.path("run"))
        error = raised.exception
        self.assertEqual((os.path.basename(error.file or ""), error.line, error.column), ("wrong.pbtxt", 2, 1))
        for call in (lambda: plumb.open_run(self.path("none")), lambda: plumb.train(PRE, NAMES, out=self.path("run"),
                                                                                  set={"train.max_stps": 2}),
                     lambda: plumb.compare([PRE], NAMES, out=self.path("study"), grid={"train.lr": [1]}),
                     lambda: plumb.compare([PRE], NAMES, out=self.path("study"),
                                           grid={"train.learning_rate": [0.001, "1e-3"]}),
                     lambda: plumb.import_checkpoint(self.path("none"), self.path("imported")),
                     lambda: plumb.theory(self.path("wrong.pbtxt"))):
            with self.assertRaises(plumb.Error):
                call()
        self.assertFalse(os.path.exists(self.path("run")))

    def test_a_study_equals_the_command_lines(self) -> None:
        grid = {"train.learning_rate": [0.003, 0.01]}
        study = plumb.compare([PRE, POST], NAMES, RECIPE, out=self.path("study"), set=SHORT, grid=grid, seeds=3,
                              margin=0.5, samples=0)
        command("compare", PRE, POST, "--data", NAMES, "--train", RECIPE, *WORDS, "--grid",
                "train.learning_rate=0.003,0.01", "--seeds", "3", "--samples", "0", "--margin", "0.5", "--out",
                self.path("command"))
        with open(self.path("command/report.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["paired"], study.report["paired"])
        self.assertTrue(all(0 <= pair["p_equal"] <= 1 for pair in study.differences() if pair["test"] == "t"))
        for name in ("runs.csv", "table.csv"):
            self.assertTrue(filecmp.cmp(self.path(f"study/{name}"), self.path(f"command/{name}"), shallow=False), name)
        self.assertEqual(len(study.runs["seed"]), 12)
        self.assertEqual({row["cell"] for row in study.differences()}, {"learning_rate=0.003", "learning_rate=0.01"})
        self.assertEqual([row["model"] for row in study.best()], sorted(("pre", "post"), key=lambda name: next(
            row["mean"] for row in study.best() if row["model"] == name)))
        self.assertIn("<table", study._repr_html_())

    def test_what_a_study_of_others_contains_is_text(self) -> None:
        hostile = "</td><script>alert(1)</script>\" onerror=alert(1)"
        with open(self.path("report.json"), "w", encoding="utf-8") as file:
            json.dump({"conclusion": hostile, "table": {"columns": [hostile], "rows": [[{"text": hostile}]]}}, file)
        with open(self.path("runs.csv"), "w", encoding="utf-8", newline="") as file:
            file.write("model,train.let[0],min\r\n'=1+1,'-a,-0.5\r\n'a,x,'\r\n")
        study = plumb.Study(self.directory)
        tags = re.findall(r"<[^>]*>", study._repr_html_())
        self.assertEqual({re.split(r"[ >]", tag.strip("</"))[0] for tag in tags}
                         - {"p", "table", "thead", "tr", "th", "td"}, set())
        self.assertNotIn("\" onerror", study._repr_html_())
        self.assertEqual(study.runs, {"model": ["=1+1", "'a"], "train.let[0]": ["-a", "x"], "min": [-0.5, "'"]})

    def test_an_interrupted_study_continues(self) -> None:
        # The timer's signal arrives while runs are trained.
        previous = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        self.addCleanup(signal.signal, signal.SIGALRM, previous)
        long = {"model.n_layer": 2, "train.max_steps": 1000000}
        signal.setitimer(signal.ITIMER_REAL, 2)
        with self.assertRaises(KeyboardInterrupt):
            plumb.compare([PRE, POST], NAMES, RECIPE, out=self.path("study"), set=long, seeds=2, samples=0)
        self.assertTrue(os.path.exists(self.path("study/study.pbtxt")))
        self.assertFalse(os.path.exists(self.path("study/runs.csv")))

    def test_a_study_of_a_norm_in_python(self) -> None:
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest("numpy is not installed")

        @plumb.norm("org.example.halve")
        def halve(x):  # type: ignore[no-untyped-def]
            return x / 2

        @halve.backward
        def _(x, dy):  # type: ignore[no-untyped-def]
            return dy / 2

        placement = plumb.placement("x = x + f(norm(x))", end="x = norm(x)", name="halved")
        spec = placement.spec(norm="org.example.halve", n_layer=1, n_head=2, d_model=8, context_length=16)
        study = plumb.compare({"halved": spec, "pre": PRE}, NAMES, RECIPE, out=self.path("study"), seeds=2, samples=0,
                              set={"train.max_steps": 5, "model.n_layer": 1}, norms=[halve])
        self.assertEqual([status for status in study.runs["status"]], ["finished"] * 4)
        runtime = plumb.Runtime()
        runtime.register_plugin(halve)
        found = plumb.describe(spec, set={"model.vocab_size": 27}, runtime=runtime)
        self.assertEqual(str(found), repr(found))  # the program has no such norm
        self.assertEqual(study.runs["model"], ["halved", "halved", "pre", "pre"])

    def test_a_study_notices_an_edited_norm(self) -> None:
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest("numpy is not installed")

        def divide(by: object, version: Optional[str] = None) -> plumb.Norm:
            @plumb.norm("org.example.divide", version=version)
            def forward(x):  # type: ignore[no-untyped-def]
                return x / float(by)  # type: ignore[arg-type]

            @forward.backward
            def _(x, dy):  # type: ignore[no-untyped-def]
                return dy / float(by)  # type: ignore[arg-type]
            return forward

        class Unknown:
            def __float__(self) -> float:
                return 2.0

        spec = plumb.placement("x = x + f(norm(x))", end="x = norm(x)", name="divided").spec(
            norm="org.example.divide", n_layer=1, n_head=2, d_model=8, context_length=16)

        def compare(norm: plumb.Norm, out: str, **more: Any) -> list[object]:
            study = plumb.compare({"divided": spec}, NAMES, RECIPE, out=self.path(out), seeds=2, samples=0,
                                  set={"train.max_steps": 3}, norms=[norm], **more)
            return list(study.runs["last_100"])

        two, three = compare(divide(2), "two"), compare(divide(3), "three")
        self.assertNotEqual(two, three)
        self.assertEqual(compare(divide(2), "study", store=self.path("store")), two)
        self.assertEqual(compare(divide(2), "study"), two)
        with self.assertRaisesRegex(plumb.Error, "norm org.example.divide: python"):
            compare(divide(3), "study", store=self.path("store"))
        self.assertEqual(compare(divide(3), "study", store=self.path("store"), overwrite=True), three)
        self.assertEqual(compare(divide(2), "again", store=self.path("store")), two)
        # The code of an object cannot be compared: only a version makes its runs reusable.
        self.assertEqual(compare(divide(Unknown()), "unknown", store=self.path("other")), two)
        with self.assertRaisesRegex(plumb.Error, "has no version"):
            compare(divide(Unknown()), "unknown")
        self.assertEqual(os.listdir(self.path("other")), ["plumb-store.txt"])
        for _ in range(2):
            self.assertEqual(compare(divide(Unknown(), "1"), "named"), two)

    def test_the_command_line_extends_a_study_of_specs(self) -> None:
        def spec(each: str) -> plumb.Spec:
            return plumb.placement(each, name="mine").spec(n_layer=1, n_head=2, d_model=8, context_length=16)

        models = {"a": spec("x = x + f(norm(x))"), "b": spec("x = norm(x + f(x))")}
        short = {"train.max_steps": 5}
        plumb.compare(models, NAMES, RECIPE, out=self.path("study"), seeds=2, samples=0, set=short)
        command("compare", self.path("study/study.pbtxt"), "--seeds", "3", "--out", self.path("study"))
        self.assertEqual(len(plumb.Study(self.path("study")).runs["seed"]), 6)
        models["b"] = spec("x = x + norm(f(x))")
        with self.assertRaisesRegex(FileExistsError, "overwrite=True\n  -  each: \"x = norm.*\n  \\+  each: \"x = x"):
            plumb.compare(models, NAMES, RECIPE, out=self.path("study"), seeds=3, samples=0, set=short)
        edited = plumb.compare(models, NAMES, RECIPE, out=self.path("study"), seeds=3, samples=0, set=short, overwrite=True)
        self.assertEqual(edited.runs["model"], ["a"] * 3 + ["b"] * 3)

    def test_inputs_that_no_run_was_trained_with_are_replaced(self) -> None:
        def spec(each: str) -> plumb.Spec:
            return plumb.placement(each).spec(n_layer=1, n_head=2, d_model=8, context_length=16)

        def compare(b: str, data: Any, recipe: Any = "max_steps: 3") -> list[object]:
            models = {"a": spec("x = x + f(norm(x))"), "b": spec(b), **more}
            return list(plumb.compare(models, data, recipe, out=self.path("study"), seeds=2, samples=0).runs["model"])

        names, post, more = ["anna", "bob", "carla"] * 5, "x = norm(x + f(x))", {}
        for b, data in (("x = x + g(norm(x))", names), (post, [])):
            with self.assertRaises(plumb.Error):
                compare(b, data)
        self.assertEqual(compare(post, names), ["a", "a", "b", "b"])
        self.assertEqual(os.listdir(self.path("study/models")), ["a.pbtxt", "b.pbtxt"])
        # A model that is added may be wrong at first; the others, their data and recipe have runs.
        more = {"c": spec("x = x + g(norm(x))")}
        with self.assertRaisesRegex(plumb.Error, "study/models/c.pbtxt:.*unknown function \"g\""):
            compare(post, names)
        more = {"c": spec("x = x + norm(f(x))")}
        self.assertEqual(compare(post, names), ["a", "a", "b", "b", "c", "c"])
        for wrong, changed in (((post, names[1:] + ["dora"] * 5), r'-{"text": "anna"}'),
                               ((post, names, "max_steps: 4"), "-max_steps: 3\n  .max_steps: 4$"),
                               (("x = x + f(x)", names), r'-  each: "x = norm\(x \+ f\(x\)\)"')):
            with self.assertRaisesRegex(FileExistsError, "has other contents; choose another out, .*\n  " + changed) as raised:
                compare(*wrong)
            self.assertLessEqual(len(str(raised.exception).split("\n")), 5)

        with self.assertRaises(plumb.Error):
            plumb.train(spec(post), [], out=self.path("run"))
        self.assertEqual(plumb.train(spec(post), names, {"max_steps": 3}, out=self.path("run")).step, 3)
        with self.assertRaisesRegex(FileExistsError, "data.jsonl"):
            plumb.train(spec(post), names[1:], out=self.path("run"))

    def test_a_recipe_may_be_a_dict(self) -> None:
        recipe = {"max_steps": 4, "learning_rate": 0.5, "data.val_fraction": 0.2}
        study = plumb.compare(PRE, NAMES, recipe, out=self.path("study"), seeds=2, samples=0, title="A title",
                              grid={"train.learning_rate": [0.003, 0.01]}, set={"model.n_layer": 1, "train.max_steps": 5})
        self.assertEqual(study.runs["steps"], [5] * 4)
        self.assertEqual(study.report["title"], "A title")
        run = plumb.train(PRE, NAMES, recipe, out=self.path("run"), set={"model.n_layer": 1})
        for line in ("max_steps: 4", "learning_rate: 0.5", "val_fraction: 0.2", "decay_steps: 4"):
            self.assertIn(line, run.recipe)

    def test_models_data_recipes_and_tokenizers_may_be_objects(self) -> None:
        text = 'n_layer: 1 n_head: 2 d_model: 8 context_length: 16 block { placement: "pre" norm: "rms_norm" }'
        with open(self.path("library.pbtxt"), "w", encoding="utf-8") as file:
            file.write('placement { name: "mine" each: "x = x + f(norm(x))" }')
        with open(self.path("file.pbtxt"), "w", encoding="utf-8") as file:
            file.write('import: "library.pbtxt"\n' + text.replace('"pre"', '"mine"'))
        names = ["anna", "bob", "carla", "dora\nemma"] * 5
        tokenizer = plumb.Tokenizer.characters("".join(names), begin_end=True)
        recipe = "max_steps: 4  # steps\nbatch_size: 2"
        models = {"a": plumb.Spec(text), "b": text, "c": self.path("file.pbtxt")}
        study = plumb.compare(models, names, recipe, out=self.path("study"), seeds=2, samples=0, tokenizer=tokenizer)
        self.assertEqual(study.runs["model"], ["a", "a", "b", "b", "c", "c"])
        self.assertEqual(study.runs["steps"], [4] * 6)
        run = study.run("b", 1)
        self.assertEqual(run.tokenizer.json, tokenizer.json)
        self.assertEqual(run.prompt("a"), [tokenizer.end, *tokenizer.encode("a")])
        for data in (iter(names), NAMES):
            self.assertEqual(plumb.train(text, data, recipe, out=self.path(f"run{data is NAMES}")).step, 4)
        rows = [{"prompt": f"{i % 5}+", "completion": str(i % 5)} for i in range(20)]
        self.assertEqual(plumb.train(models["a"], rows, recipe, out=self.path("sums")).metrics["tokens"], [4] * 4)
        vocabulary = {"model.vocab_size": 27}
        for model in (*models.values(), plumb.placement("x = x + f(norm(x))").spec(
                n_layer=1, n_head=2, d_model=8, context_length=16)):
            self.assertEqual(plumb.describe(model, set=vocabulary).fields["dims"]["d_model"], 8)
        self.assertIn("depths", plumb.theory(text, seeds=1, set=vocabulary))

    def test_errors_name_the_argument_and_what_it_may_be(self) -> None:
        def compare(models: Any = (PRE,), data: Any = NAMES, recipe: Any = None, **more: Any) -> None:
            plumb.compare(models, data, recipe, out=self.path("study"), **more)

        def train(model: Any = PRE, data: Any = NAMES, **more: Any) -> None:
            plumb.train(model, data, out=self.path("run"), **more)

        wrong: Any = 3.5
        for call, error in (
                (lambda: compare(wrong), "models must be a Spec, its text or a file, not float"),
                (lambda: compare([PRE, wrong]), r"models\[1\] must be a Spec, its text or a file, not float"),
                (lambda: compare({"a": wrong}), "a must be a Spec, its text or a file, not float"),
                (lambda: compare(data=wrong), "data must be a file, or a list of texts"),
                (lambda: compare(data=["a", wrong]), r"data\[1\] must be a text, or prompt and completion, not float"),
                (lambda: compare(recipe=wrong), "recipe must be a recipe's text or a file, not float"),
                (lambda: compare(seeds=wrong), "seeds must be an integer, not float"),
                (lambda: compare(seeds=[1, wrong]), r"seeds\[1\] must be an integer, not float"),
                (lambda: compare(grid={"train.learning_rate": wrong}), "must be a list of values, not float"),
                (lambda: compare(callbacks=[wrong]), "callbacks must be functions, not float"),
                (lambda: train(wrong), "model must be a Spec, its text or a file, not float"),
                (lambda: train(set=wrong), "set must be a dict of fields"),
                (lambda: train(init=wrong), "run must be a Run or its directory, not float"),
                (lambda: train(tokenizer=wrong), "tokenizer must be a Tokenizer, a file or a directory, not float"),
                (lambda: plumb.describe(wrong), "model must be a Spec, its text or a file, not float"),
                (lambda: plumb.theory(wrong), "model must be a Spec, its text or a file, not float"),
                (lambda: plumb.report([wrong], out=self.path("report")), "run must be a Run or its directory, not float")):
            with self.assertRaisesRegex(TypeError, error):
                call()
        formula = "x = x + f(norm(x))"
        for call, error in (
                (lambda: compare(["pre", "post"]), r"models\[0\]: 'pre' is a placement, not the file of a model.*"
                 r'grid={"model.block.placement": \["pre", ...\]}'),
                (lambda: compare({"a": "pre"}), "a: 'pre' is a placement"),
                (lambda: train("pre"), "model: 'pre' is a placement, .*block { placement: \"pre\" norm: "),
                (lambda: compare({"a": formula}), r"a: 'x = x .* write plumb.placement\('x = x .*\).spec\(n_layer="),
                (lambda: plumb.describe(formula), "model: 'x = x .* is a statement of a placement"),
                (lambda: plumb.theory("two words"), "must be a Spec, its text or a file; 'two words' is neither"),
                (lambda: compare(data="anna\n" * 9999), r"^data: a str .* 'anna\\nanna.{1,90} is not;.*a list of documents$"),
                (lambda: train(data="x" * 9999), "pass a list of documents$"),
                (lambda: compare(recipe="max_steps 5"), "recipe must be a recipe's text .*; 'max_steps 5' is neither"),
                (lambda: compare([]), "models has no model")):
            with self.assertRaisesRegex(ValueError, error):
                call()
        for call in (lambda: compare({"model": plumb.placement(formula)}), lambda: train(plumb.placement(formula)),
                     lambda: plumb.describe(plumb.placement(formula))):  # type: ignore[arg-type]
            with self.assertRaisesRegex(TypeError, r"not Placement; its spec\(n_layer=, .*\) is one"):
                call()
        for more, error in (({"grid": {"trian.lr": [1, 2]}}, r'^grid\["trian.lr"\]: '), ({"seeds": 0}, "^seeds: "),
                            ({"seeds": [1, 1]}, r"^seeds\[1\]: "), ({"match": "step"}, "^match: unknown value")):
            with self.assertRaisesRegex(plumb.Error, error) as raised:
                compare(**more)
            self.assertIsNone(raised.exception.file)
        bad = plumb.placement("x = x + g(norm(x))").spec(n_layer=1, n_head=2, d_model=8, context_length=16)
        vocabulary = {"model.vocab_size": 27}
        for call in (lambda: train(bad), lambda: plumb.theory(bad, set=vocabulary),
                     lambda: plumb.describe(bad, set=vocabulary)):
            with self.assertRaisesRegex(plumb.Error, r'^model:\d+:\d+: placement "mine"'):
                call()
        unsized = "n_layer: 1 n_head: 2 d_model: 8 context_length: 16 block { placement: \"pre\" norm: \"rms_norm\" }"
        for call in (lambda: plumb.describe(unsized), lambda: plumb.theory(unsized), lambda: plumb.bench(unsized)):
            with self.assertRaisesRegex(plumb.Error, '^model: vocab_size is missing; give set={"model.vocab_size": 27}, '):
                call()
        with self.assertRaisesRegex(ValueError, "is set by the argument data; drop it in set"):
            train(data=["anna"], set={"train.data.format": "TEXT"})
        with open(self.path("data.jsonl"), "w", encoding="utf-8") as file:
            file.write("own")
        with self.assertRaises(FileExistsError):  # a file of the user is not replaced
            plumb.train(PRE, ["anna"], out=self.directory)
        with self.assertRaisesRegex(ValueError, "would be the file of two models"):
            compare({"a b": plumb.Spec("n_layer: 1"), "a_b": plumb.Spec("n_layer: 2")})
        for text, place in (("max_steps: 3\nbatch: 2", ("recipe", 2, 1)), ("max_stepz: 3", ("recipe", 1, 1))):
            with self.assertRaises(plumb.Error) as raised:
                plumb.train(PRE, NAMES, text, out=self.path("run"))
            self.assertEqual((raised.exception.file, raised.exception.line, raised.exception.column), place)

    def test_a_study_has_its_runs_curves_and_callbacks(self) -> None:
        seen: list[plumb.StudyProgress] = []
        grid = {"train.learning_rate": [0.003, 0.01]}
        study = plumb.compare([PRE, POST], NAMES, RECIPE, out=self.path("study"), set=SHORT, grid=grid, seeds=2,
                              samples=0, callbacks=seen.append)
        self.assertEqual((seen[-1].runs, seen[-1].ended, seen[-1].steps_taken), (8, 8, 160))
        ended = [path for progress in seen for path in progress.new]
        self.assertEqual(sorted(ended), sorted(os.path.join(study.path, "runs", name)
                                               for name in os.listdir(self.path("study/runs"))))
        curves = study.curves()
        self.assertEqual(list(curves), ["model", "train.learning_rate", "seed", "step", "loss", "val_loss"])
        self.assertEqual({len(column) for column in curves.values()}, {8 * 20})
        for seed in (1, 2):  # only the first keeps its weights
            run = study.run("post", seed, "learning_rate=0.01")
            rows = [i for i in range(160) if (curves["model"][i], curves["train.learning_rate"][i],
                                              curves["seed"][i]) == ("post", 0.01, seed)]
            self.assertEqual([curves["step"][i] for i in rows], run.metrics["step"])
            for i, loss in zip(rows, run.metrics["loss"]):
                self.assertAlmostEqual(curves["loss"][i], loss, places=3)
            self.assertEqual([curves["val_loss"][i] is None for i in rows], [True] * 19 + [False])
        self.assertRegex(repr(run), "step 20: without weights")
        self.assertIn("<table", run._repr_html_())
        with self.assertRaisesRegex(plumb.Error, "has no checkpoint"):
            run.sample("a")
        self.assertEqual(study.run("pre", 1).path, study.run("pre", 1, next(
            row["cell"] for row in study.best() if row["model"] == "pre")).path)
        for wrong, error in ((("pri", 1), "no run of pri, .* with seed 1; it has those of pre, learning_rate=0.003; "),
                             (("pre", 3), "no run of pre, .* with seed 3"), (("pre", 1, "x"), "no run of pre, x with")):
            with self.assertRaisesRegex(KeyError, error):
                study.run(*wrong)  # type: ignore[arg-type]
        again = plumb.report([study, study.run("pre", 1).path], out=self.path("report"))
        self.assertEqual(len(again.runs["seed"]), 8)
        self.assertEqual(len(plumb.report(study, out=self.path("report")).runs["seed"]), 8)

    def test_a_callback_stops_a_study_which_continues(self) -> None:
        def compare(callback: Any) -> plumb.Study:
            return plumb.compare([PRE, POST], NAMES, RECIPE, out=self.path("study"), set=SHORT, seeds=2, samples=0,
                                 callbacks=[callback])

        with self.assertRaises(plumb.Cancelled):
            compare(lambda _: False)
        with self.assertRaises(ZeroDivisionError):
            compare(lambda _: 1 // 0)
        self.assertEqual(compare(lambda progress: None).runs["status"], ["finished"] * 4)

    def test_descriptions_and_checkpoints(self) -> None:
        spec = plumb.placement("x = x + f(norm(x))", name="mine").spec(
            n_layer=2, n_head=2, d_model=16, context_length=8, mlp="{ activation: RELU }")
        found = plumb.describe(spec, set={"model.vocab_size": 27})
        self.assertEqual(found.fields["dims"]["n_layer"], 2)
        self.assertTrue(found._repr_svg_().startswith("<svg"))
        self.assertEqual(str(plumb.describe(PRE)), command("describe", PRE))
        self.assertIn("    Jacobian: (I + J_mlp J_norm) (I + J_attention J_norm)\n", str(found))
        self.assertRegex(repr(found), "^<plumb.Description of .* parameters>>$")
        self.assertIn("depths", plumb.theory(spec, seeds=1, set={"model.vocab_size": 27}))
        run = plumb.train(plumb.Spec(GPT2), NAMES, RECIPE, out=self.path("gpt2"), set={"train.max_steps": 3})
        plumb.export(run, self.path("exported"), family="gpt2")
        again = plumb.import_checkpoint(self.path("exported"), self.path("imported"))
        self.assertEqual({name: list(tensor.view.tolist()) for name, tensor in run.model.tensors().items()},
                         {name: list(tensor.view.tolist()) for name, tensor in again.model.tensors().items()})
        self.assertEqual(run.sample("ma", seed=4), again.sample("ma", seed=4))


if __name__ == "__main__":
    unittest.main()
