# SPDX-License-Identifier: Apache-2.0
"""Writes tiny checkpoints that transformers computes: python3 tests/zoo/make_transformers_golden.py [case ...]

Needs PyTorch and transformers 5. transformers_cases.py lists the models; README.md describes the files.
"""

import json
import os
import sys
import tempfile
import zlib

import safetensors.torch
import torch
import torch.nn.functional as F
import transformers

import transformers_cases
from make_golden import (BATCH, CONTINUED, HERE, PROMPT, SEQ, SMALLEST_LEAD, SMALLEST_MARGIN, tensor_file,
                         write_json)


def draw_parameters(model, generator, unit_offset):
    """Draws every parameter: gains around 1, or around 0 if the family adds 1, and matrices by their width."""
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None  # the padding token has a gradient, as any other
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            name = name.lower()
            if name.endswith("bias"):
                parameter.copy_(0.3 * noise)
            elif "norm" in name or "ln_" in name:
                parameter.copy_(0.2 * noise + (0 if unit_offset else 1))
            elif "embed" in name or "wte" in name or "wpe" in name:
                parameter.copy_(0.4 * noise)
            else:
                parameter.copy_(1.2 / parameter.shape[-1] ** 0.5 * noise)
        for name, buffer in model.named_buffers():
            if name.endswith(("correction_bias", "expert_bias")):
                buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator))
            elif name.endswith("layer_scalar"):  # a buffer there, a learned value in plumb
                buffer.copy_(1 + 0.2 * torch.randn(buffer.shape, generator=generator))
                buffer.requires_grad_()


def continue_greedily(model, prompt):
    """Returns the most likely tokens one after the other, and the smallest lead of one over the next."""
    tokens, lead = prompt, float("inf")
    for _ in range(CONTINUED):
        best = model(tokens[None]).logits[0, -1].topk(2)
        lead = min(lead, (best.values[0] - best.values[1]).item())
        tokens = torch.cat([tokens, best.indices[:1]])
    return tokens[len(prompt):], lead


def router_margin(model, tokens, top_k):
    """Returns the smallest distance of a chosen expert's logit from those of experts not chosen."""
    if top_k is None:
        return float("inf")
    margin = float("inf")
    for logits in model(tokens, output_router_logits=True).router_logits:
        best = logits.topk(top_k + 1, dim=-1).values
        margin = min(margin, (best[..., -2] - best[..., -1]).min().item())
    return margin


def decoder_run(case, model, generator):
    """Returns the next-token loss of two sequences, and a continuation that another float32 run reproduces."""
    tokens = torch.randint(case.vocab, (BATCH, SEQ), generator=generator)
    logits = model(tokens).logits
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    prompt = torch.randint(case.vocab, (PROMPT,), generator=generator)
    with torch.no_grad():
        continued, lead = continue_greedily(model, prompt)
        margin = router_margin(model, torch.cat([prompt, continued])[None], case.top_k)
        margin = min(margin, router_margin(model, tokens, case.top_k))
    fits = lead > SMALLEST_LEAD and margin > SMALLEST_MARGIN and len(set(continued.tolist())) > 3
    return fits, tokens.tolist(), logits, loss, {"prompt": prompt.tolist(), "greedy": continued.tolist()}


def encoder_run(case, model, generator):
    """Returns the loss at masked positions. The second sequence is shorter."""
    lengths = [SEQ, SEQ - 3]
    # RoBERTa gives padding tokens within a text another position.
    tokens = torch.randint(2 * (case.model_type == "roberta"), case.vocab, (BATCH, SEQ), generator=generator)
    mask = torch.stack([(torch.arange(SEQ) < length).long() for length in lengths])
    logits = model(tokens, attention_mask=mask).logits
    targets = torch.full_like(tokens, -100)
    for row, length in enumerate(lengths):
        for at in range(1, length, 3):
            targets[row, at] = torch.randint(case.vocab, (1,), generator=generator)[0]
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    loss.backward()

    def rows(tensor):
        return [row[:length].tolist() for row, length in zip(tensor, lengths)]

    return True, rows(tokens), logits, loss, {"targets": rows(targets)}


def make(case):
    """Tries seeds until all decisions have margins that float32 does not change."""
    for attempt in range(200):
        seed = zlib.crc32(f"{case.name} {attempt}".encode())
        torch.manual_seed(seed)
        model = case.model()
        draw_parameters(model, torch.Generator().manual_seed(seed), case.unit_offset)
        run = encoder_run if case.encoder else decoder_run
        fits, *found = run(case, model, torch.Generator().manual_seed(seed + 1))
        if fits:
            return (model, *found)
    raise SystemExit(f"{case.name}: no seed keeps away from ties")


def saved(model, folder):
    """Saves the model. Returns its tensors by the names in the file."""
    model.save_pretrained(folder)
    return safetensors.torch.load_file(os.path.join(folder, "model.safetensors"))


def gradient_norms(model, unused):
    """Returns norms of gradients by the names in a file, which is one of a model whose weights they are."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
        for name, buffer in model.named_buffers():
            if name.endswith(("correction_bias", "expert_bias")):
                buffer.zero_()
            elif name.endswith("layer_scalar"):
                buffer.copy_(buffer.grad)
    with tempfile.TemporaryDirectory() as scratch:
        return {name: tensor.double().norm().item() for name, tensor in saved(model, scratch).items()
                if name not in unused
                and not any(part in name for part in ("vision_tower", "multi_modal_projector", "embed_vision"))}


def write_config(case, folder):
    """Writes config.json as the family publishes it: with the fields of version 4 where a case has them."""
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config.pop("transformers_version", None)
    text = config.get("text_config", config)
    for key in case.without:
        text.pop(key, None)
    text.update(case.published)
    write_json(folder, "config.json", config)


def check_published(case, folder, tokens, logits):
    """Checks that transformers reads the published form of config.json as the same model."""
    model = case.load(folder)
    with torch.no_grad():
        again = model(torch.tensor(tokens)).logits
    difference = (again - logits).abs().max().item()
    if not difference < 1e-5:
        raise SystemExit(f"{case.name}: transformers reads its config.json as another model: {difference}")


def write(case, model, tokens, logits, loss, more):
    folder = os.path.join(HERE, "checkpoints", case.name)
    os.makedirs(folder, exist_ok=True)
    tensors = saved(model, folder)
    tensor_file.write(os.path.join(folder, "model.safetensors"), tensors)
    write_config(case, folder)
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))
    if not case.encoder:
        check_published(case, folder, tokens, logits)
    tensor_file.write(os.path.join(folder, "expected.safetensors"), {"logits": logits})
    write_json(folder, "expected.json", {"tokens": tokens, **more, "loss": loss.item(),
                                         "grad_l2": gradient_norms(model, case.unused)})
    return sum(tensor.numel() for tensor in tensors.values())


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for case in transformers_cases.all_cases():
        if sys.argv[1:] and case.name not in sys.argv[1:]:
            continue
        model, *found = make(case)
        count = write(case, model, *found)
        print(f"{case.name}: {count} parameters, loss {found[2].item():.4f}", flush=True)


if __name__ == "__main__":
    main()
