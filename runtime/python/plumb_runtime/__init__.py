# SPDX-License-Identifier: Apache-2.0
"""plumb: describe, train and sample transformers whose norm placements are formulas.

    import plumb_runtime as plumb

    runtime = plumb.Runtime()
    tokenizer = plumb.Tokenizer.characters(text)
    spec = plumb.Spec(description)
    spec["vocab_size"] = tokenizer.vocab_size
    model = plumb.Model(runtime, spec, seed=1)
    plumb.Trainer(model, "max_steps: 100").run(batches)
    session, prompt = plumb.Session(model), tokenizer.prefix + tokenizer.encode("once")
    session.feed(prompt)
    decoder = tokenizer.decoder(prompt)
    for token in session.stream(temperature=0.8, seed=1):
        print(decoder.next(token), end="")
    print(decoder.finish(), session.finish_reason)

Errors are plumb.Error, with the location in a text: file, line, column. Messages go to the logger "plumb".
Objects close with `with`, close() or the last reference, in any order; a view of a tensor keeps its memory
alive. A Trainer and a Session are for one thread at a time, and long calls release the GIL. While a trainer steps, no
session of its model may run on another thread (in on_step it may). A process created by fork() needs its own objects.

The package calls libplumb.so by ctypes (load() says where it is searched). It needs the standard library only, and
numpy for arrays.
"""
from . import figures
from ._library import load, version
from .errors import Cancelled, Code, Error
from .evaluator import Evaluator
from .model import Model, ModelInfo, Spec
from .norms import Norm, norm
from .probe import Probe, ProfileRow
from .progress import Progress
from .runs import Run, RunStep, open_run, train
from .runtime import Runtime
from .session import Session
from .studies import Study, StudyProgress, compare
from .tensor import Tensor
from .tensorboard import TensorBoard
from .tokenizer import Decoder, Tokenizer
from .tools import Description, Placement, bench, describe, export, import_checkpoint, placement, report, theory
from .training import LossRows, StateTensor, StepInfo, Trainer, TrainerMemory, recipe_text

__all__ = ["Cancelled", "Code", "Decoder", "Description", "Error", "Evaluator", "LossRows", "Model", "ModelInfo",
           "Norm", "Placement", "Probe", "ProfileRow", "Progress", "Run", "RunStep", "Runtime", "Session", "Spec",
           "StateTensor", "StepInfo", "Study", "StudyProgress", "Tensor", "TensorBoard", "Tokenizer", "Trainer",
           "TrainerMemory", "bench", "compare", "describe", "export", "figures", "import_checkpoint", "load", "norm",
           "open_run", "placement", "recipe_text", "report", "theory", "train", "version"]
