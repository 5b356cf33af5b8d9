#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small model on names and samples new ones: demo.py [FILE], with one name per line."""
import random
import sys

import plumb_runtime as plumb

DESCRIPTION = """
n_layer: 2 n_head: 4 d_model: 32 context_length: 16
block { placement: "pre" norm: "rms_norm" }
"""
RECIPE = "max_steps: 300 batch_size: 16 learning_rate: 0.01 schedule: COSINE"
NAMES = """ada adele agnes alan albert alice alma amanda anna anton august bella bertha bruno camilla carl carla clara
daniel dora edgar elena ella elsa emil emma erik eva felix frida greta hanna helena hugo ida irma jonas julia karin
lara lena leo lina linda magda marie marta max mia nina nora oskar otto paula rosa sara selma sofia stella theo vera
viktor wanda""".split()


def batches(names, tokenizer, rows, seq):
    """Yields rows of one name each, between two line breaks; the rest of a row has no targets."""
    draw = random.Random(1)
    while True:
        inputs, targets = [], []
        for name in draw.choices(names, k=rows):
            ids = list(tokenizer.encode(f"\n{name}\n")[:seq + 1])
            rest = seq + 1 - len(ids)
            inputs += ids[:-1] + [0] * rest
            targets += ids[1:] + [-1] * rest
        yield inputs, targets


def main():
    names = NAMES
    if len(sys.argv) > 1:
        with open(sys.argv[1], encoding="utf-8") as file:
            names = file.read().split()
    with plumb.Runtime() as runtime:
        tokenizer = plumb.Tokenizer.characters("\n".join(names))
        spec = plumb.Spec(DESCRIPTION, name="demo.py")
        spec["vocab_size"] = tokenizer.vocab_size
        model = plumb.Model(runtime, spec, seed=1)
    print(f"{model.info.parameters} parameters")

    def progress(info):
        if info.step % 100 == 0:
            print(f"step {info.step} loss {info.loss:.2f}")

    plumb.Trainer(model, RECIPE).run(batches(names, tokenizer, 16, 16), progress)

    session = plumb.Session(model)
    end = tokenizer.encode("\n")
    for index in range(5):
        session.truncate(0)
        session.feed(end)
        decoder = tokenizer.decoder(end)
        for token in session.stream(temperature=0.7, seed=1, index=index):
            if token == end[0]:
                break
            print(decoder.next(token), end="", flush=True)
        print(decoder.finish())


if __name__ == "__main__":
    try:
        main()
    except plumb.Error as error:
        sys.exit(f"demo.py: {error}")
