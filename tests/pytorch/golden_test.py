# SPDX-License-Identifier: Apache-2.0
"""Compares the PyTorch code of models with plumb: logits, and the gradient of every parameter. The models are the
golden cases, a model of each norm that ships, and examples. Skipped without torch.

    golden_test.py GOLDEN_DIRECTORY EXAMPLES_DIRECTORY [CASE ..]
    golden_test.py GOLDEN_DIRECTORY EXAMPLES_DIRECTORY --code CASE|FILE    prints the code
"""
import json
import pathlib
import sys
import types

try:
    import torch
except ImportError:
    print("skipped: there is no torch")
    sys.exit(77)

import plumb_runtime as plumb

TOLERANCE = 1e-5

# Models whose code is committed as examples/pytorch/NAME/model.py.
COMMITTED = {
    "pre": "examples/why_normalise/pre.pbtxt",
    "hyper_connections": "examples/pytorch/hyper_connections/model.pbtxt",
    "gemma2": "plugins/zoo/gemma-2-2b.pbtxt",
}
# Models that are refused, and a part of the message.
REFUSED = {}

NORMS = [
    "rms_norm", "rms_norm:unit_offset=true", "rms_norm:affine=false", "layer_norm", "layer_norm:bias=false",
    "layer_norm:affine=false", "group_norm:groups=2", "std_norm", "std_norm:unbiased=false", "p_rms_norm:p=0.5",
    "scale_norm", "l2_norm:scale=3", "dyt", "dyt:affine=false", "derf", "derf:bias=false", "none",
]
NORM_MODEL = """n_layer: 2 n_head: 2 d_model: 8 vocab_size: 11 context_length: 8
norm { name: "n" plugin: "%s" %s } block { placement: "pre" norm: "n" }"""


def run_code(code):
    """Returns the module that the code makes."""
    module = types.ModuleType("exported_model")
    sys.modules[module.__name__] = module  # dataclasses look it up
    exec(compile(code, "model.py", "exec"), module.__dict__)
    return module


def norm_model(setting):
    plugin, _, given = setting.partition(":")
    attributes = ""
    for name, value in (each.split("=") for each in given.split(",") if each):
        kind = "flag" if value in ("true", "false") else "number"
        attributes += f'attr {{ name: "{name}" {kind}: {value} }}'
    return NORM_MODEL % (plugin, attributes)


def golden_models(directory):
    """Yields name and text of the cases that have a file."""
    for block in (directory / "models.txt").read_text().split("# case ")[1:]:
        name, _, text = block.partition("\n")
        if (directory / "cases" / f"{name.strip()}.safetensors").exists():
            yield name.strip(), text


def next_tokens(tokens):
    """Returns each token's successor as its target; the last has none."""
    targets = torch.full_like(tokens, -1)
    targets[:, :-1] = tokens[:, 1:]
    return targets


def read_golden(path):
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    kinds, tensors = {"F32": torch.float32, "I32": torch.int32}, {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            begin, end = (start + offset for offset in entry["data_offsets"])
            tensors[name] = torch.frombuffer(data[begin:end], dtype=kinds[entry["dtype"]]).view(entry["shape"])
    return tensors


def compute_with_plumb(model):
    """Returns weights, logits and gradients as a golden file has them, for weights away from their initial values."""
    generator = torch.Generator().manual_seed(5)
    info, expected = model.info, {}
    tokens = torch.randint(info.vocab_size, (2, min(7, info.context_length)), generator=generator)
    for name, tensor in model.tensors().items():
        weights = torch.from_numpy(tensor.numpy())
        weights += 0.1 * torch.randn(weights.shape, generator=generator)
        expected[name] = weights.clone()
    model.changed()
    evaluator = plumb.Evaluator(model, 2, gradients=True)
    inputs = tokens.flatten().tolist()
    evaluator.loss(inputs, next_tokens(tokens).flatten().tolist())
    for i, name in enumerate(list(expected)):
        expected["grad." + name] = torch.from_numpy(evaluator.gradient(i).numpy().copy())
    logits = plumb.Evaluator(model, 2, logits=True).logits(inputs)
    expected["logits"] = torch.tensor(logits.tolist())
    return dict(expected, tokens=tokens)


def largest(tensor):
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def compute(module, given, dtype=torch.float32):
    """Returns logits and gradients of the code for the weights and tokens of `given`, named as there."""
    model = module.Model().to(dtype)
    parameters = dict(model.named_parameters())
    wanted = {name[5:] for name in given if name.startswith("grad.")}
    assert parameters.keys() == wanted, f"other parameters: {sorted(parameters.keys() ^ wanted)}"
    with torch.no_grad():
        for name, parameter in parameters.items():
            assert parameter.shape == given[name].shape, f"{name} is {tuple(parameter.shape)}"
            parameter.copy_(given[name])
        if "step" in given:
            model.step.copy_(given["step"])
    # Dropout is for training only; the balance loss of experts is a part of the training loss.
    model.train(hasattr(module, "balance_loss"))
    tokens = given["tokens"].long()
    logits, loss = model(tokens, next_tokens(tokens))
    loss.backward()
    found = {"grad." + name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in parameters.items()}
    return dict(found, logits=logits.detach())


def compare(found, expected, tolerance=TOLERANCE):
    """Fails unless logits and gradients are equal up to the tolerance, relative to the largest."""
    scale = max(largest(tensor) for name, tensor in expected.items() if name.startswith("grad."))
    for name in found:
        allowed = tolerance * (largest(expected[name]) if name == "logits" else scale)
        difference = largest(found[name] - expected[name])
        assert difference <= allowed, f"{name} differs by {difference:.1e}; {allowed:.1e} would be allowed"


def main(golden, examples, *wanted):
    torch.set_num_threads(1)
    golden, examples = pathlib.Path(golden), pathlib.Path(examples)
    runtime = plumb.Runtime()
    cases = {name: (text, lambda _, name=name: read_golden(golden / "cases" / f"{name}.safetensors"))
             for name, text in golden_models(golden)}
    cases.update((f"norm {norm}", (norm_model(norm), compute_with_plumb)) for norm in NORMS)
    cases.update((path.name, (path.read_text() + "\nvocab_size: 27\n", compute_with_plumb))
                 for path in sorted((examples / "models").glob("*.pbtxt")))
    if wanted[:1] == ("--code",):
        text = cases[wanted[1]][0] if wanted[1] in cases else pathlib.Path(wanted[1]).read_text()
        print(plumb.Model(runtime, plumb.Spec(text), seed=1).explain("pytorch"), end="")
        return 0
    failures, refused = [], []
    for name, source in COMMITTED.items():
        code = plumb.Model(runtime, plumb.Spec.from_file(examples.parent / source)).explain("pytorch")
        if code != (examples / "pytorch" / name / "model.py").read_text():
            failures.append(f"examples/pytorch/{name}/model.py is not the code of {source}")
    for name in wanted or cases:
        text, expected_of = cases[name]
        try:
            model = plumb.Model(runtime, plumb.Spec(text), seed=1)
            try:
                code = model.explain("pytorch")
            except plumb.Error as error:
                assert name in REFUSED and REFUSED[name] in str(error), f"is refused: {error}"
                refused.append(name)
                continue
            assert name not in REFUSED, "is not refused"
            expected = expected_of(model)
            compare(compute(run_code(code), expected), expected)
        except Exception as error:  # any error of the code is a failure of its case
            failures.append(f"{name}: {type(error).__name__}: {error}")
    print(f"{len(wanted or cases) - len(failures) - len(refused)} models are equal, {len(refused)} refused")
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
