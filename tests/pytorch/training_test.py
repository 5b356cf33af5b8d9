# SPDX-License-Identifier: Apache-2.0
"""Trains models, and one that reads the step, with plumb and with their PyTorch code from the same weights on the same
batches: the losses of 20 steps of AdamW are equal. Skipped without torch.

    training_test.py MODEL ..
"""
import pathlib
import sys
import tempfile

try:
    import torch
except ImportError:
    print("skipped: there is no torch")
    sys.exit(77)

import export_test
import golden_test
import plumb_runtime as plumb

STEPS, ROWS, TOLERANCE = 20, 4, 1e-3


def train(runtime, text):
    """Returns the losses of plumb and of PyTorch."""
    model = plumb.Model(runtime, plumb.Spec(text), seed=3)
    recipe = plumb.recipe_text("", {"batch_size": ROWS, "max_steps": STEPS, "schedule": "CONSTANT", "warmup_steps": 0,
                                    "grad_clip": 0, "learning_rate": 3e-3})
    with tempfile.TemporaryDirectory() as directory:
        model.export_pytorch(directory, recipe)
        module = golden_test.run_code(pathlib.Path(directory, "model.py").read_text())
        exported = module.Model.from_safetensors(pathlib.Path(directory, "model.safetensors"))
    optimizer = torch.optim.AdamW(exported.parameter_groups(lr=3e-3))
    trainer, losses = plumb.Trainer(model, recipe), ([], [])
    generator = torch.Generator().manual_seed(7)
    for step in range(STEPS):
        ids = torch.randint(model.info.vocab_size, (ROWS, model.info.context_length), generator=generator)
        targets = golden_test.next_tokens(ids)
        losses[0].append(trainer.step(ids.flatten().tolist(), targets.flatten().tolist()).loss)
        if hasattr(exported, "step"):
            exported.step.fill_(step + 1)
        _, loss = exported(ids, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses[1].append(loss.item())
    return losses


def main(*files):
    torch.set_num_threads(1)
    runtime, failed = plumb.Runtime(), False
    models = {"prores": export_test.MODEL, **{file: pathlib.Path(file).read_text() for file in files}}
    for file, text in models.items():
        ours, theirs = train(runtime, text + "\nvocab_size: 27\n")
        difference = max(abs(a - b) for a, b in zip(ours, theirs))
        print(f"{file}: losses {ours[0]:.4f} to {ours[-1]:.4f}, differ by at most {difference:.1e}")
        failed = failed or not difference <= TOLERANCE or ours[0] == ours[-1]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
