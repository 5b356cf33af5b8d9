#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests plumb import, export and train --init through the command line.

    import_test.py PLUMB        PLUMB: the built program

The checkpoints are those of checkpoints.py, and logits are compared with its model.
"""

import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import checkpoints as cp

PLUMB = sys.argv.pop(1)
TOKENS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5]]
FAMILIES = {
    "gpt2": (cp.gpt2_config, cp.gpt2_tensors, cp.gpt2_logits),
    "llama": (cp.llama_config, cp.llama_tensors, cp.llama_logits),
}


class Case(unittest.TestCase):
    def setUp(self):
        self._directory = tempfile.TemporaryDirectory()
        self.addCleanup(self._directory.cleanup)
        self.tokens = self.path("tokens.json")
        with open(self.tokens, "w") as file:
            json.dump(TOKENS, file)

    def path(self, name):
        return os.path.join(self._directory.name, name)

    def read(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def run_plumb(self, *words, code=0):
        done = subprocess.run([PLUMB, *words], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, f"plumb {' '.join(words)}:\n{done.stdout}{done.stderr}")
        return done.stdout if code == 0 else done.stderr

    def logits(self, run, *words):
        out = self.path("logits.safetensors")
        self.run_plumb("eval", run, "--tokens", self.tokens, "--logits", out, *words)
        return cp.read_safetensors(out)["logits"]

    def refuse(self, directory, *texts, code=None):
        """Expects that import fails with these texts and leaves no files."""
        out = self.path("refused")
        done = subprocess.run(
            [PLUMB, "import", directory, "--out", out], capture_output=True, text=True, timeout=120
        )
        self.assertIn(done.returncode, (1, 2), done.stdout + done.stderr)
        if code is not None:
            self.assertEqual(done.returncode, code, done.stderr)
        for text in texts:
            self.assertIn(text, done.stderr)
        left = [name for name in os.listdir(self._directory.name) if name.startswith("refused")]
        self.assertEqual(left, [])
        return done.stderr


class Logits(Case):
    def test_equal_those_of_an_independent_model_in_every_type(self):
        for family, (config, tensors, logits) in FAMILIES.items():
            for dtype in ("f32", "bf16", "f16"):
                with self.subTest(family=family, dtype=dtype):
                    stored = cp.convert(tensors(config()), dtype)
                    directory, run = self.path(f"{family}-{dtype}"), self.path(f"run-{family}-{dtype}")
                    cp.write(directory, config(), stored)
                    self.run_plumb("import", directory, "--out", run)
                    got = self.logits(run)
                    for row, tokens in enumerate(TOKENS):
                        want = logits(config(), cp.widen(stored), tokens)
                        self.assertLess(np.abs(got[row] - want).max(), 2e-4)

    def test_greedy_continuation_with_the_cache_is_that_of_the_full_pass(self):
        for family, (config, tensors, logits) in FAMILIES.items():
            directory, run = self.path(family), self.path(f"run-{family}")
            weights = tensors(config())
            cp.write(directory, config(), weights)
            self.run_plumb("import", directory, "--out", run)
            out = self.run_plumb(
                "sample", run, "--prompt-tokens", self.tokens, "--temperature", "0", "--max-tokens", "6", "--json"
            )
            for sample, prompt in zip(json.loads(out)["samples"], TOKENS):
                tokens = list(prompt)
                for _ in range(6):
                    tokens.append(int(logits(config(), weights, tokens)[-1].argmax()))
                self.assertEqual(sample["ids"], tokens[len(prompt) :])

    def test_shards_prefixes_and_masks_change_nothing(self):
        config = cp.gpt2_config()
        plain = cp.gpt2_tensors(config)
        cp.write(self.path("plain"), config, plain)
        prefixed = cp.gpt2_tensors(config, prefix="transformer.")
        prefixed["lm_head.weight"] = prefixed["transformer.wte.weight"]
        prefixed["transformer.h.0.attn.bias"] = np.tril(np.ones((1, 1, 24, 24), np.float32))
        cp.write_shards(self.path("shards"), config, prefixed)
        self.run_plumb("import", self.path("plain"), "--out", self.path("a"))
        self.run_plumb("import", self.path("shards"), "--out", self.path("b"))
        np.testing.assert_array_equal(self.logits(self.path("a")), self.logits(self.path("b")))
        with open(self.path("b/import.json")) as file:
            ignored = {t["source"]: t["ignored"] for t in json.load(file)["tensors"] if "ignored" in t}
        self.assertEqual(ignored, {"lm_head.weight": "the tied head", "transformer.h.0.attn.bias": "a causal mask"})

    def test_bf16_weights_are_computed_with_where_they_lie(self):
        config = cp.llama_config()
        cp.write(self.path("c"), config, cp.convert(cp.llama_tensors(config), "bf16"))
        self.run_plumb("import", self.path("c"), "--out", self.path("r"))
        self.run_plumb("import", self.path("c"), "--out", self.path("copy"), "--copy")
        samples = {}
        for run in ("r", "copy"):
            for weights in ("f32", "bf16", "int8"):
                out = self.run_plumb("sample", self.path(run), "--prompt-tokens", self.tokens, "--temperature", "0",
                                     "--max-tokens", "4", "--weights", weights, "--json")
                samples[run, weights] = [s["ids"] for s in json.loads(out)["samples"]]
        for weights in ("f32", "bf16", "int8"):
            self.assertEqual(samples["r", weights], samples["copy", weights])

    def test_a_field_that_is_misread_changes_the_logits(self):
        for family, changes in {
            "gpt2": {"layer_norm_epsilon": 0.1, "activation_function": "gelu", "scale_attn_weights": False},
            "llama": {"rms_norm_eps": 0.1, "rope_theta": 100.0, "hidden_act": "gelu"},
        }.items():
            config, tensors, _ = FAMILIES[family]
            cp.write(self.path(family), config(), tensors(config()))
            self.run_plumb("import", self.path(family), "--out", self.path(f"run-{family}"))
            base = self.logits(self.path(f"run-{family}"))
            for field, value in changes.items():
                with self.subTest(field=field):
                    name = f"{family}-{field}"
                    cp.write(self.path(name), {**config(), field: value}, tensors(config()))
                    self.run_plumb("import", self.path(name), "--out", self.path(f"run-{name}"))
                    self.assertGreater(np.abs(self.logits(self.path(f"run-{name}")) - base).max(), 1e-5)


class QuantizedWeights(Case):
    """The weights are those that checkpoints.py computes from the bits; it agrees with transformers' functions."""

    def fp8(self, scale_type="f32"):
        """Writes a checkpoint of Llama in FP8 with blocks of 16 x 12, of which the last are smaller."""
        config = {**cp.llama_config(), "quantization_config": {
            "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [16, 12]}}
        random = np.random.default_rng(0)
        stored, plain = {}, {}
        for name, a in cp.llama_tensors(cp.llama_config()).items():
            stored[name] = plain[name] = a
            if "_proj" not in name:
                continue
            shape = [-(-size // block) for size, block in zip(a.shape, (16, 12))]
            bits = random.integers(0, 256, a.shape, np.uint8)
            bits[bits & 127 == 127] = 0  # not a number
            scales = random.uniform(1e-3, 2e-3, shape).astype(np.float32)
            scales = cp.convert({"s": scales}, scale_type)["s"]
            stored[name], stored[name + "_scale_inv"] = bits.view(np.int8), scales
            plain[name] = cp.from_fp8_blocks(stored[name], cp.widen({"s": scales})["s"], 16, 12)
        return config, stored, plain

    def test_fp8_in_blocks_is_the_dequantized_model(self):
        for scale_type in ("bf16", "f32"):
            config, stored, plain = self.fp8(scale_type)
            directory, run = self.path(f"c-{scale_type}"), self.path(f"r-{scale_type}")
            cp.write(directory, config, stored)
            self.run_plumb("import", directory, "--out", run)
            got = self.logits(run)
            for row, tokens in enumerate(TOKENS):
                want = cp.llama_logits(cp.llama_config(), plain, tokens)
                self.assertLess(np.abs(got[row] - want).max(), 2e-4 * np.abs(want).max())
        name = "model.layers.0.self_attn.q_proj.weight"
        with open(self.path("r-f32/import.json")) as file:
            imported = json.load(file)
        tensor = next(t for t in imported["tensors"] if t["source"] == name)
        self.assertEqual((tensor["dtype"], tensor["computed_from"]), ("F32", f"{name} and {name}_scale_inv"))
        self.assertIn({"key": "quantization_config", "use": "read"}, imported["config_keys"])
        self.run_plumb("export", self.path("r-f32"), "--out", self.path("exported"))
        self.assertNotIn("quantization_config", json.loads(self.read("exported/config.json")))
        np.testing.assert_array_equal(cp.read_safetensors(self.path("exported/model.safetensors"))[name], plain[name])

    def test_mxfp4_is_the_dequantized_model(self):
        config = {"model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 50,
                  "max_position_embeddings": 24, "num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 8,
                  "rope_theta": 1000.0}
        random = np.random.default_rng(0)

        def normal(*shape):
            return cp.to_bf16(random.normal(0, 0.2, shape).astype(np.float32))

        plain = {"model.embed_tokens.weight": normal(50, 64), "lm_head.weight": normal(50, 64), "model.norm.weight": normal(64)}
        stored = {}
        for layer in range(2):
            at = f"model.layers.{layer}."
            for name, out, width in (("q", 64, 64), ("k", 32, 64), ("v", 32, 64), ("o", 64, 64)):
                plain[f"{at}self_attn.{name}_proj.weight"] = normal(out, width)
                plain[f"{at}self_attn.{name}_proj.bias"] = normal(out)
            plain.update({at + "self_attn.sinks": normal(4), at + "input_layernorm.weight": normal(64),
                          at + "post_attention_layernorm.weight": normal(64), at + "mlp.router.weight": normal(3, 64),
                          at + "mlp.router.bias": normal(3), at + "mlp.experts.gate_up_proj_bias": normal(3, 64),
                          at + "mlp.experts.down_proj_bias": normal(3, 64)})
            for name, out, groups in (("gate_up_proj", 64, 2), ("down_proj", 64, 1)):
                blocks = random.integers(0, 256, (3, out, groups, 16), np.uint8)
                scales = random.integers(120, 125, (3, out, groups)).astype(np.uint8)
                stored[f"{at}mlp.experts.{name}_blocks"], stored[f"{at}mlp.experts.{name}_scales"] = blocks, scales
                plain[f"{at}mlp.experts.{name}"] = cp.to_bf16(cp.from_mxfp4(blocks, scales))
        cp.write(self.path("plain"), config, plain)
        kept = {name: a for name, a in plain.items() if f"{name}_blocks" not in stored}
        cp.write(self.path("c"), {**config, "quantization_config": {"quant_method": "mxfp4"}}, {**kept, **stored})
        for name in ("plain", "c"):
            self.run_plumb("import", self.path(name), "--out", self.path(f"r-{name}"))
        np.testing.assert_array_equal(self.logits(self.path("r-c")), self.logits(self.path("r-plain")))

    def test_what_is_not_read_is_refused_with_a_way(self):
        config, stored, _ = self.fp8()
        name = "model.layers.0.self_attn.q_proj.weight"
        for method, words in (({"quant_method": "gptq", "bits": 4}, "that it was made of"),
                              ({"quant_method": "bitsandbytes"}, ".dequantize().save_pretrained(OUT)"),
                              ({"quant_method": "fp8", "fmt": "e4m3"}, "weight_block_size"),
                              ({"quant_method": "fp8", "fmt": "e5m2", "weight_block_size": [16, 12]}, "fmt e4m3")):
            cp.write(self.path("c"), {**config, "quantization_config": method}, stored)
            self.assertNotIn("--allow-unread", self.refuse(self.path("c"), method["quant_method"], words))
        cp.write(self.path("c"), config, {**stored, name + "_scale_inv": np.ones((2, 2), np.float32)})
        self.refuse(self.path("c"), f'"{name}" is F8_E4M3[32, 32], and "{name}_scale_inv" F32[2, 2]')
        del stored[name + "_scale_inv"]
        cp.write(self.path("c"), config, stored)
        self.refuse(self.path("c"), f'"{name}" is F8_E4M3; F32, BF16 and F16 are read')


class Prompts(Case):
    def test_begin_token_in_the_text_is_not_added_again(self):
        cp.write(self.path("c"), cp.gpt2_config(), cp.gpt2_tensors(cp.gpt2_config()))
        begin = {"id": 49, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False,
                 "normalized": False, "special": True}
        with open(self.path("c/tokenizer.json"), "w") as file:
            json.dump({
                "version": "1.0", "added_tokens": [begin], "normalizer": None, "pre_tokenizer": None, "decoder": None,
                "post_processor": {
                    "type": "TemplateProcessing", "pair": [],
                    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                    "special_tokens": {"<s>": {"id": "<s>", "ids": [49], "tokens": ["<s>"]}}},
                "model": {"type": "BPE", "vocab": {chr(ord("A") + i): i for i in range(49)}, "merges": []}}, file)
        self.run_plumb("import", self.path("c"), "--out", self.path("r"))
        outputs = []
        for prompt in ("AbC", "<s>AbC", "<s><s>AbC"):
            done = subprocess.run(
                [PLUMB, "sample", self.path("r"), "--prompt", prompt, "--temperature", "0", "--max-tokens", "5",
                 "--num", "3", "--json"], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count("begins with <s>"), 0 if prompt == "AbC" else 1, done.stderr)
            outputs.append([sample["ids"] for sample in json.loads(done.stdout)["samples"]])
        self.assertEqual(outputs[0], outputs[1])
        self.assertNotEqual(outputs[0], outputs[2])


class ImportJson(Case):
    def test_says_what_every_tensor_became(self):
        config = cp.gpt2_config()
        tensors = cp.gpt2_tensors(config)
        cp.write(self.path("c"), config, tensors)
        self.run_plumb("import", self.path("c"), "--out", self.path("r"))
        with open(self.path("r/import.json")) as file:
            listed = {t["source"]: t for t in json.load(file)["tensors"]}
        self.assertEqual(set(listed), set(tensors))
        fused = listed["h.1.attn.c_attn.weight"]["became"]
        self.assertEqual([(b["tensor"], b["rows"]["first"]) for b in fused],
                         [(f"layers.1.attention.{x}.weight", first) for x, first in (("q", 0), ("k", 32), ("v", 64))])
        self.assertTrue(all(b["transposed"] and b["converted"] for b in fused))
        self.assertEqual(listed["h.1.attn.c_attn.bias"]["became"][1]["from"], 32)

    def test_a_checkpoint_that_is_gone_or_another_is_an_error(self):
        config = cp.llama_config()
        cp.write(self.path("c"), config, cp.llama_tensors(config))
        self.run_plumb("import", self.path("c"), "--out", self.path("r"))
        self.run_plumb("import", self.path("c"), "--out", self.path("copy"), "--copy")
        tensors = cp.llama_tensors(config)
        name = self.path("c/model.safetensors")
        info, at = os.stat(name), os.path.getsize(name) - 1
        with open(name, "r+b") as file:  # the file keeps its size and header, and one weight changes
            file.seek(at)
            last = file.read(1)
            file.seek(at)
            file.write(bytes([last[0] ^ 0x40]))
        message = self.run_plumb("eval", self.path("r"), "--tokens", self.tokens, code=2)
        self.assertIn(f"{name}: changed since {self.path('r')} was imported from it; import it again", message)
        with open(name, "r+b") as file:
            file.seek(at)
            file.write(last)
        self.assertNotEqual(os.stat(name).st_mtime_ns, info.st_mtime_ns)
        self.run_plumb("eval", self.path("r"), "--tokens", self.tokens)  # the same content at another time
        files = json.loads(self.read("r/import.json"))["files"]
        self.assertEqual(files["model.safetensors"]["modified_ns"], info.st_mtime_ns)
        old = re.sub(r'"(size|modified_ns|inode|hash)": "?[0-9a-f]+"?,?', "", self.read("r/import.json"))
        with open(self.path("r/import.json"), "w") as file:  # of an earlier version
            file.write(re.sub(r",\s*}", "}", old))
        self.run_plumb("eval", self.path("r"), "--tokens", self.tokens)
        tensors["model.extra"] = np.ones(3, np.float32)
        cp.write(self.path("c"), config, tensors)
        self.assertIn("; import it again", self.run_plumb("eval", self.path("r"), "--tokens", self.tokens, code=2))
        os.remove(self.path("c/model.safetensors"))
        self.assertIn("is gone", self.run_plumb("eval", self.path("r"), "--tokens", self.tokens, code=2))
        self.run_plumb("eval", self.path("copy"), "--tokens", self.tokens)


class Export(Case):
    def test_then_import_gives_equal_bits_and_the_same_tensors(self):
        for family, (config, tensors, logits) in FAMILIES.items():
            with self.subTest(family=family):
                weights = tensors(config())
                cp.write(self.path(family), config(), weights)
                self.run_plumb("import", self.path(family), "--out", self.path(f"r-{family}"))
                self.run_plumb("export", self.path(f"r-{family}"), "--out", self.path(f"x-{family}"))
                self.run_plumb("import", self.path(f"x-{family}"), "--out", self.path(f"rx-{family}"))
                np.testing.assert_array_equal(self.logits(self.path(f"r-{family}")), self.logits(self.path(f"rx-{family}")))
                written = cp.read_safetensors(self.path(f"x-{family}/model.safetensors"))
                strip = {name[len("transformer."):] if name.startswith("transformer.") else name: a
                         for name, a in written.items()}
                self.assertEqual(set(strip), set(weights))
                for name, a in weights.items():
                    np.testing.assert_array_equal(strip[name], a)

    def test_refuses_a_model_that_the_family_cannot_express(self):
        config = cp.gpt2_config()
        cp.write(self.path("c"), config, cp.gpt2_tensors(config))
        self.run_plumb("import", self.path("c"), "--out", self.path("r"))
        model = self.read("r/model.pbtxt").replace('"pre"', '"post"')
        with open(self.path("post.pbtxt"), "w") as file:
            file.write(model)
        with open(self.path("text"), "w") as file:
            file.write("abcdefgh\n" * 200)
        self.run_plumb("train", self.path("post.pbtxt"), "--init", self.path("r"), "--data", self.path("text"), "--out",
                       self.path("tuned"), "--set", "train.max_steps=2", "--set", "train.batch_size=2")
        message = self.run_plumb("export", self.path("tuned"), "--family", "gpt2", "--out", self.path("x"), code=2)
        self.assertIn("gpt2 cannot express this model", message)
        self.assertFalse(os.path.exists(self.path("x")))
        self.assertIn("did you mean", self.run_plumb("export", self.path("r"), "--family", "gpt", "--out", self.path("x"), code=2))

    def test_of_a_model_that_was_trained_here_is_read_back(self):
        model = ('n_layer: 2 n_head: 4 n_kv_head: 2 d_model: 32 d_ff: "48" context_length: 24\n'
                 'positions { kind: ROPE } mlp { activation: SILU gated: true }\n'
                 'norm { name: "rms" plugin: "rms_norm" } block { placement: "pre" norm: "rms" }\n')
        with open(self.path("m.pbtxt"), "w") as file:
            file.write(model)
        with open(self.path("text"), "w") as file:
            file.write("the quick brown fox jumps over the lazy dog\n" * 100)
        self.run_plumb("train", self.path("m.pbtxt"), "--data", self.path("text"), "--out", self.path("t"), "--set",
                       "train.max_steps=3", "--set", "train.batch_size=2")
        self.run_plumb("export", self.path("t"), "--family", "llama", "--out", self.path("x"))
        with open(self.path("x/config.json")) as file:
            config = json.load(file)
        got = self.logits(self.path("t"))
        weights = cp.read_safetensors(self.path("x/model.safetensors"))
        for row, tokens in enumerate(TOKENS):
            self.assertLess(np.abs(got[row] - cp.llama_logits(config, weights, tokens)).max(), 2e-4)


class FineTuning(Case):
    def test_takes_what_is_shared_and_lists_the_rest(self):
        config = cp.gpt2_config(layers=4)
        cp.write(self.path("c"), config, cp.gpt2_tensors(config))
        self.run_plumb("import", self.path("c"), "--out", self.path("r"))
        mixed = self.read("r/model.pbtxt").replace("n_layer: 4\n", "")
        mixed = re.sub(r"^block {\n.*?^}\n",
                       'layers { repeat: 2 block { placement: "pre" norm: "ln" } }\n'
                       'layers { repeat: 2 block { placement: "double" norm: "ln" } }\n', mixed, flags=re.S | re.M)
        with open(self.path("mixed.pbtxt"), "w") as file:
            file.write(mixed)
        with open(self.path("text"), "w") as file:
            file.write("abcdefgh\n" * 200)
        words = ["train", self.path("mixed.pbtxt"), "--init", self.path("r"), "--data", self.path("text"), "--set",
                 "train.max_steps=1", "--set", "train.learning_rate=0", "--set", "train.batch_size=2", "--json"]
        report = json.loads(self.run_plumb(*words, "--out", self.path("tuned")))["init"]
        self.assertGreater(report["taken"], 40)
        self.assertTrue(report["drawn"])
        self.assertTrue(all(name.startswith(("layers.2.", "layers.3.")) for name in report["drawn"]))
        self.run_plumb("train", "--resume", "--init", self.path("r"), "--data", self.path("text"), code=2)

    def test_the_same_model_begins_where_the_run_is(self):
        config = cp.gpt2_config()
        cp.write(self.path("c"), config, cp.gpt2_tensors(config))
        self.run_plumb("import", self.path("c"), "--out", self.path("r"))
        with open(self.path("text"), "w") as file:
            file.write("abcdefgh\n" * 200)
        self.run_plumb("train", self.path("r/model.pbtxt"), "--init", self.path("r"), "--data", self.path("text"), "--out",
                       self.path("same"), "--set", "train.max_steps=1", "--set", "train.learning_rate=0", "--set",
                       "train.batch_size=2")
        np.testing.assert_array_equal(self.logits(self.path("r")), self.logits(self.path("same")))


class HostileInput(Case):
    def checkpoint(self, name="c", change=None, tensors=None, **fields):
        config = {**cp.gpt2_config(), **fields}
        if change is not None:
            change(config)
        directory = self.path(name)
        cp.write(directory, config, cp.gpt2_tensors(cp.gpt2_config()) if tensors is None else tensors)
        return directory

    def test_missing_surplus_and_misshapen_tensors_are_listed_at_once(self):
        tensors = cp.gpt2_tensors(cp.gpt2_config())
        del tensors["h.0.ln_1.bias"]
        del tensors["ln_f.weight"]
        tensors["h.2.attn.c_proj.weight"] = np.ones((32, 31), np.float32)
        tensors["h.1.mlp.c_fc.bias"] = np.ones(128, np.int64)
        tensors["h.9.ln_1.weight"] = np.ones(32, np.float32)
        message = self.refuse(self.checkpoint(tensors=tensors), "missing: transformer.h.0.ln_1.bias",
                              "missing: transformer.ln_f.weight", "of another type", "h.1.mlp.c_fc.bias", "misshapen",
                              "h.2.attn.c_proj.weight", "is [32, 31], and is taken as a whole", "surplus",
                              "h.9.ln_1.weight")
        self.assertEqual(message.count("\n  "), 5)

    def test_a_head_that_is_tied_and_differs(self):
        tensors = cp.gpt2_tensors(cp.gpt2_config())
        tensors["lm_head.weight"] = tensors["wte.weight"] + 1
        self.refuse(self.checkpoint(tensors=tensors), "must be equal to")

    def test_files_that_are_no_safetensors(self):
        whole = cp.safetensors(cp.gpt2_tensors(cp.gpt2_config()))
        (length,) = struct.unpack("<Q", whole[:8])
        overlap = json.loads(whole[8 : 8 + length])
        names = [n for n in overlap if n != "__metadata__"]
        overlap[names[0]]["data_offsets"] = overlap[names[1]]["data_offsets"]
        overlapping = json.dumps(overlap).encode()
        claim = json.dumps({"wte.weight": {"dtype": "F32", "shape": [2500000000], "data_offsets": [0, 10**10]}}).encode()
        for name, content in {
            "empty": b"",
            "short": whole[:7],
            "truncated": whole[: len(whole) // 2],
            "header beyond the file": struct.pack("<Q", len(whole)) + whole[8:],
            "header of all memory": struct.pack("<Q", 2**63) + whole[8:],
            "overlapping": struct.pack("<Q", len(overlapping)) + overlapping + whole[8 + length :],
            "ten gigabytes in a kilobyte": struct.pack("<Q", len(claim)) + claim + b"\0" * 1000,
            "not JSON": struct.pack("<Q", 8) + b"????????",
        }.items():
            with self.subTest(name):
                directory = self.checkpoint()
                with open(os.path.join(directory, "model.safetensors"), "wb") as file:
                    file.write(content)
                self.refuse(directory, "model.safetensors: ")

    def test_sizes_in_config(self):
        for field, value in {
            "n_layer": -1, "n_embd": 0, "n_head": 2**40, "vocab_size": 1.5, "n_positions": "24", "n_inner": True,
            "n_layer ": None, "layer_norm_epsilon": "1e-5", "tie_word_embeddings": 1, "activation_function": "tanh",
            "add_cross_attention": True,
        }.items():
            with self.subTest(field=field):
                if value is None:
                    directory = self.checkpoint(change=lambda config: config.pop("n_layer"))
                else:
                    directory = self.checkpoint(**{field: value})
                self.refuse(directory, "config.json: ", field.strip())

    def test_sizes_that_no_model_has_take_no_memory(self):
        if subprocess.run(["bash", "-c", f"ulimit -v 2000000; {PLUMB} --version"], capture_output=True).returncode != 0:
            self.skipTest("AddressSanitizer needs terabytes of the address space")
        for fields in ({"n_embd": 2**31 - 4}, {"vocab_size": 2**31 - 1, "n_embd": 2**31 - 4}, {"n_layer": 2**31 - 1},
                       {"n_layer": 5000}, {"n_positions": 2**31 - 1}):
            with self.subTest(fields=fields):
                directory = self.checkpoint(**fields)
                limited = f"ulimit -v 2000000; exec {PLUMB} import {directory} --out {self.path('refused')}"
                done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, timeout=120)
                self.assertIn(done.returncode, (1, 2), done.stderr)
                self.assertNotIn("out of memory", done.stderr)
                self.assertFalse(os.path.exists(self.path("refused")))

    def test_configs_that_are_none(self):
        for content in (b"", b"[]", b"{", b'{"model_type": "gpt2", "model_type": "llama"}', b"\xff\xfe", b"[" * 100000):
            directory = self.checkpoint()
            with open(os.path.join(directory, "config.json"), "wb") as file:
                file.write(content)
            self.refuse(directory, "config.json: ")

    def test_unknown_families_suggest_and_list(self):
        self.refuse(self.checkpoint(model_type="gpt3", architectures=["GPT3"]), 'model_type "gpt3"', "did you mean \"gpt2\"", "llama")

    def test_unrelated_families_are_not_suggested(self):
        self.assertNotIn("did you mean", self.refuse(self.checkpoint(model_type="llena4_text", architectures=["A"])))

    def test_shard_indexes(self):
        secret = self.path("secret.safetensors")
        with open(secret, "wb") as file:
            file.write(cp.safetensors(cp.gpt2_tensors(cp.gpt2_config())))
        for shard in ("../secret.safetensors", secret, "model.safetensors.index.json", "..", "", "a/b.safetensors", 7,
                      "missing.safetensors", "linked.safetensors"):
            with self.subTest(shard=shard):
                directory = self.path(f"c-{len(os.listdir(self._directory.name))}")
                config = cp.gpt2_config()
                cp.write_shards(directory, config, cp.gpt2_tensors(config))
                if shard == "linked.safetensors":
                    os.symlink(secret, os.path.join(directory, shard))
                index = os.path.join(directory, "model.safetensors.index.json")
                with open(index) as file:
                    json_index = json.load(file)
                json_index["weight_map"]["ln_f.bias"] = shard
                with open(index, "w") as file:
                    json.dump(json_index, file)
                self.refuse(directory)

    def test_shards_that_do_not_fit_their_index(self):
        config = cp.gpt2_config()
        cp.write_shards(self.path("c"), config, cp.gpt2_tensors(config))
        index = self.path("c/model.safetensors.index.json")
        with open(index) as file:
            json_index = json.load(file)
        del json_index["weight_map"]["ln_f.bias"]
        json_index["weight_map"]["ghost"] = json_index["weight_map"]["ln_f.weight"]
        with open(index, "w") as file:
            json.dump(json_index, file)
        self.refuse(self.path("c"), '"ghost" is not in', '"ln_f.bias" of')

    def test_one_file_and_an_index_of_other_shards(self):
        config = cp.gpt2_config()
        tensors = cp.gpt2_tensors(config)
        cp.write_shards(self.path("c"), config, tensors)
        cp.write(self.path("c"), config, tensors)
        self.refuse(self.path("c"), "model.safetensors.index.json: names other shards than model.safetensors")
        with open(self.path("c/model.safetensors.index.json"), "w") as file:
            json.dump({"weight_map": {name: "model.safetensors" for name in tensors}}, file)
        self.run_plumb("import", self.path("c"), "--out", self.path("r"))

    def test_links_that_lead_out_are_not_followed_and_those_of_a_hub_cache_are(self):
        directory = self.checkpoint()
        os.rename(os.path.join(directory, "config.json"), self.path("outside.json"))
        os.symlink(self.path("outside.json"), os.path.join(directory, "config.json"))
        self.refuse(directory, "leads out of the directory")
        snapshot, blobs = self.path("hub/snapshots/abc"), self.path("hub/blobs")
        config = cp.gpt2_config()
        cp.write(snapshot, config, cp.gpt2_tensors(config))
        os.mkdir(blobs)
        for i, name in enumerate(("config.json", "model.safetensors")):
            os.rename(os.path.join(snapshot, name), os.path.join(blobs, str(i)))
            os.symlink(f"../../blobs/{i}", os.path.join(snapshot, name))
        self.run_plumb("import", snapshot, "--out", self.path("r"))

    def test_no_directory_no_weights_pickled_weights_and_places_that_are_taken(self):
        self.refuse(self.path("nowhere"), "there is no such directory")
        directory = self.checkpoint()
        os.remove(os.path.join(directory, "model.safetensors"))
        self.refuse(directory, "holds neither")
        for name, hint in (("pytorch_model.bin", "safe_serialization=True"),
                           ("pytorch_model.bin.index.json", "safe_serialization=True"),
                           ("model.Q4_K_M.gguf", "GGUF"), ("adapter_config.json", "--adapter")):
            with self.subTest(name=name):
                open(os.path.join(directory, name), "w").close()
                self.refuse(directory, "holds neither", name, hint)
                os.remove(os.path.join(directory, name))
        self.refuse("meta-llama/Llama-3.2-1B", "hf download")
        open(self.path("model.gguf"), "w").close()
        self.refuse(self.path("model.gguf"), "is a GGUF file")
        directory = self.checkpoint()
        message = self.run_plumb("import", directory, "--out", directory, code=2)
        self.assertIn("is not empty", message)


class Zoo(Case):
    def test_lists_families(self):
        self.assertIn("gpt2", json.loads(self.run_plumb("zoo", "list", "--json"))["families"])
        self.assertIn("there is no model", self.run_plumb("zoo", "show", "nothing", code=2))


if __name__ == "__main__":
    unittest.main()
