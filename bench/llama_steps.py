#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes prompts and decoding of llama.cpp on request, by llama-cpp-python's C interface: a worker of
compare_peers.py. The weights of a GPT-2 become a GGUF file in F32, BF16 or Q8_0 (int8)."""
import ctypes
import os

import gguf
import llama_cpp
import numpy

import peer_worker

NAMES = {"embedding.token": "token_embd", "embedding.position": "position_embd", "end.norm": "output_norm",
         "attention.norm": "attn_norm", "attention.qkv": "attn_qkv", "attention.o": "attn_output",
         "mlp.norm": "ffn_norm", "mlp.up": "ffn_up", "mlp.down": "ffn_down"}


def write_gguf(c, path):
    """Writes the model and returns its number of parameters."""
    types = gguf.GGMLQuantizationType
    matrices = {"f32": types.F32, "bf16": types.BF16, "int8": types.Q8_0}[c.dtype]
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(c.context)
    writer.add_embedding_length(c.d_model)
    writer.add_feed_forward_length(4 * c.d_model)
    writer.add_block_count(c.n_layer)
    writer.add_head_count(c.n_head)
    writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(c.vocab)
    writer.add_tokenizer_model("none")
    parameters = 0
    for name, values in peer_worker.weights(c):
        parameters += values.size
        kind = matrices if values.ndim > 1 and name != "embedding.position.weight" else types.F32
        module, last = name.rsplit(".", 1)
        if module.startswith("layers."):
            _, layer, module = module.split(".", 2)
            new = f"blk.{layer}.{NAMES[module]}.{last}"
        else:
            new = f"{NAMES[module]}.{last}"
        writer.add_tensor(new, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return parameters


def main():
    c = peer_worker.parse_options()
    path = c.weights + ".gguf"
    parameters = write_gguf(c, path)
    discard = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(discard, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    settings = llama_cpp.llama_model_default_params()
    # Version 0.3.36 ends the process if several Q8_0 rows are multiplied by AMX.
    settings.use_extra_bufts = c.dtype != "int8" or c.task == "decode" and c.batch == 1
    model = llama_cpp.llama_model_load_from_file(path.encode(), settings)
    os.remove(path)
    options = llama_cpp.llama_context_default_params()
    options.n_ctx, options.n_seq_max = c.batch * c.context, c.batch
    options.n_batch = options.n_ubatch = c.tokens if c.task == "prompt" else c.batch
    options.n_threads = options.n_threads_batch = c.threads
    context = llama_cpp.llama_init_from_model(model, options)
    tokens, targets = peer_worker.session_tokens(c)
    batch = llama_cpp.llama_batch_init(tokens.size, 0, 1)

    def decode(columns, first):
        """Feeds tokens [batch, n] of all sequences at the positions from `first`; only the last have logits."""
        count, n = columns.shape
        batch.n_tokens = columns.size
        for i, token in enumerate(columns.ravel().tolist()):
            batch.token[i], batch.pos[i] = token, first + i % n
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, i // n
            batch.logits[i] = i % n == n - 1
        if llama_cpp.llama_decode(context, batch) != 0:
            raise RuntimeError("llama_decode failed")

    def step():
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        if c.task == "prompt":
            decode(tokens, 0)
        else:
            for i in range(c.tokens):
                decode(tokens[:, i:i + 1], i)
        n = c.tokens if c.task == "prompt" else 1
        logits = [numpy.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i * n + n - 1), (c.vocab,))
                  for i in range(c.batch)]
        losses = [peer_worker.session_loss(of_sequence, target) for of_sequence, target in zip(logits, targets)]
        return sum(losses) / c.batch, tokens.size

    peer_worker.serve(parameters, step)


if __name__ == "__main__":
    main()
