# SPDX-License-Identifier: Apache-2.0
"""Reads exports with transformers: read_by_transformers.py PLUMB FAMILIES [CASE..] [--column COLUMN]..

Exports runs of a checkpoint of each family, loads the exports with from_pretrained, and compares the logits with
plumb's own. The runs are:

  import f32    the imported checkpoint
  import bf16   the checkpoint with its weights rounded to bf16
  LoRA          updates of the projections of attention, trained on the import and merged into the weights
  PEFT          the same updates, exported by --adapter, which peft adds to the exported import
  scratch       the model of the import, trained from random weights: its config.json is derived from the model

Prints a table of the largest differences. Needs torch and transformers, and peft for its column. Without them it is
skipped with a message.
"""

import argparse
import os
import shutil
import sys
import tempfile

from from_scratch import files_by_model_type, first_cases, import_case, train
from plumb_cli import CHECKPOINTS, Failed, largest_difference, plumb, read_json, read_safetensors, write_json

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(0)
try:
    import peft
except ImportError:
    peft = None

LOGITS = 2e-4
COLUMNS = ("import f32", "import bf16", "LoRA", "PEFT", "scratch")
TOKENS = [[2 + (7 * i + 3 * row) % 25 for i in range(15)] for row in range(2)]  # 1 is RoBERTa's padding
UNREAD = {
    "gemma3": "transformers wants the tensors for images", "gemma4": "transformers wants the tensors for images",
    "mistral3": "transformers wants the tensors for images", "grok-1": "transformers does not have it",
}
LORA = ("--set", "model.adapter.extends=lora", "--set", "model.adapter.let[0]=rank = 2",
        "--set", "model.adapter.let[1]=alpha = 6", "--set", "train.import=lora", "--set", "train.learning_rate=0.05",
        "--set", "train.max_steps=4")


class Refused(Exception):
    """Raised with plumb's message if it refuses an export."""


def logits(binary, run, scratch):
    """Returns plumb's logits for TOKENS."""
    tokens, out = os.path.join(scratch, "tokens.json"), os.path.join(scratch, "logits.safetensors")
    write_json(tokens, TOKENS)
    plumb(binary, "eval", run, "--tokens", tokens, "--logits", out, "--json")
    return read_safetensors(out)["logits"][1]


def export(binary, run, out, *options):
    try:
        plumb(binary, "export", run, "--out", out, *options)
    except Failed as error:
        raise Refused(str(error).partition("\n")[2].removeprefix("error: ")) from error


def load(folder, encoder):
    """Returns the model that transformers loads in float32. Missing and surplus tensors are errors."""
    kind = transformers.AutoModelForMaskedLM if encoder else transformers.AutoModelForCausalLM
    model, info = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True,
                                       attn_implementation="eager", experts_implementation="eager")
    wrong = {key: sorted(info[key])[:3] for key in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[key]}
    if wrong:
        raise Failed(f"from_pretrained: {wrong}")
    return model.eval()


def differ(model, wanted):
    """Returns the largest difference of the model's logits."""
    with torch.no_grad():
        return largest_difference(model(torch.tensor(TOKENS)).logits.float().flatten().tolist(), wanted)


def round_to_bf16(source, out):
    """Copies a checkpoint with its weights in bfloat16."""
    shutil.copytree(source, out)
    path = os.path.join(out, "model.safetensors")
    save_file({name: tensor.to(torch.bfloat16) for name, tensor in load_file(path).items()}, path,
              metadata={"format": "pt"})


def runs_of(binary, files, name, scratch):
    """Returns pairs of a column and a function that returns its difference."""
    def at(path):
        return os.path.join(scratch, path)

    imported, family = import_case(binary, files, name, scratch)
    model = os.path.join(imported, "model.pbtxt")
    with open(model, encoding="utf-8") as file:
        encoder = "bidirectional: true" in file.read()

    def compare(run):
        out = at(os.path.basename(run) + "_export")
        export(binary, run, out, "--family", family)
        return differ(load(out, encoder), logits(binary, run, scratch))

    def rounded():
        round_to_bf16(os.path.join(CHECKPOINTS, name), at("rounded"))
        plumb(binary, "import", at("rounded"), "--family", family, "--out", at("bf16"))
        return compare(at("bf16"))

    def lora():
        try:
            train(binary, model, scratch, at("lora"), "--init", imported, *LORA)
        except Failed as error:
            if "matches no tensor" not in str(error):
                raise
            raise Refused("lora adapts q and v of attention, which the model does not have") from error
        return compare(at("lora"))

    def by_peft():
        if not os.path.exists(at("lora")):
            raise Refused("there is no adapter")
        export(binary, at("lora"), at("adapter"), "--family", family, "--adapter")
        if peft is None:
            raise Refused("peft is not installed")
        base = load(at("imported_export"), encoder)
        return differ(peft.PeftModel.from_pretrained(base, at("adapter")).eval(), logits(binary, at("lora"), scratch))

    def scratch_run():
        train(binary, model, scratch, at("scratch"))
        return compare(at("scratch"))

    return zip(COLUMNS, (lambda: compare(imported), rounded, lora, by_peft, scratch_run))


def check(binary, files, name, columns):
    """Prints the row of a checkpoint. Returns the number of differences that are too large, and of errors."""
    model_type = read_json(CHECKPOINTS, name, "config.json")["model_type"]
    if model_type in UNREAD:
        print(f"| {name} | {UNREAD[model_type]} |", flush=True)
        return 0
    row, notes, wrong = [], [], 0
    with tempfile.TemporaryDirectory() as scratch:
        for column, run in runs_of(binary, files, name, scratch):
            if column not in columns:
                continue
            try:
                difference = run()
                wrong += not difference <= LOGITS
                row.append(f"{difference:.1e}" + ("" if difference <= LOGITS else " WRONG"))
            except Refused as error:
                row.append("refused")
                notes.append(f"  {column}: {error}")
            except Exception as error:  # transformers raises all kinds
                wrong += 1
                row.append("FAILED")
                notes.append(f"  {column}: {type(error).__name__}: {str(error)[:600]}")
    print(f"| {name} | {' | '.join(row)} |", *notes, sep="\n", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plumb")
    parser.add_argument("families", help="directory of the families' files")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--column", action="append", choices=COLUMNS)
    flags = parser.parse_args()
    columns = flags.column or COLUMNS
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, "
          f"peft {peft.__version__ if peft else 'not installed'}\n\n| checkpoint | {' | '.join(columns)} |\n"
          f"|{'---|' * (len(columns) + 1)}", flush=True)
    files = files_by_model_type(flags.families)
    cases = flags.cases or first_cases(files)
    wrong = sum(check(flags.plumb, files, name, columns) for name in cases)
    print(f"\n{len(cases)} checkpoints, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
