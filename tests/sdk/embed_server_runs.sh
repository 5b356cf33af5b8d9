#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that examples/embed_server builds with an installed plumb and serves a run of `plumb train`, with
# curl and in headless Chromium. Without the libraries or curl it prints what is missing and counts as
# skipped. Without node, chromium or playwright-core only the page is not tested.
#   embed_server_runs.sh BUILD_DIRECTORY SOURCE_DIRECTORY PYTHON
. "$(dirname "${BASH_SOURCE[0]}")/install.sh" "$1"
source=$(realpath "$2")
for needed in cpp-httplib nlohmann_json; do
  pkg-config --exists "$needed" || { echo "skipped: no $needed here (tools/install_dependencies.sh test)"; exit 77; }
done
command -v curl > /dev/null || { echo "skipped: no curl here"; exit 77; }

cp -R "$source/examples/embed_server" "$work/embed_server"
cd "$work"
CXXFLAGS="-O1 -Wall -Wextra -Wconversion -Wshadow -Wpedantic -Werror" cmake -S embed_server -B server \
  -DCMAKE_PREFIX_PATH="$prefix" > cmake.log || { cat cmake.log; exit 1; }
cmake --build server --parallel 2 > build.log || { cat build.log; exit 1; }
# The server is also linked without CMake.
read -ra flags <<< "$(pkg-config --cflags --libs plumb cpp-httplib libcrypto)"
c++ server/CMakeFiles/embed_server.dir/*.o -o by_pkg_config "${flags[@]}" -pthread

plumb train "$source/examples/embed_cpp/model.pbtxt" --data "$source/examples/data/names.txt" --out "$work/names" \
  --set train.data.format=DOCUMENTS --set train.max_steps=150 --set train.learning_rate=0.01 > train.log
plumb train "$source/examples/embed_cpp/model.pbtxt" --set model.context_length=2048 --set model.d_model=128 \
  --data "$source/examples/data/names.txt" --out "$work/long" --set train.data.vocabulary=BYTES --set train.max_steps=1 --set train.batch_size=1 >> train.log
# A tokenizer like Llama's: marks for spaces, byte tokens, <s> before a text and </s> after it.
"$3" - > tokenizer.json << 'END'
import json
import string
vocab = ["▁", *string.ascii_lowercase, "▁a", "an", "ma", *(f"<0x{byte:02X}>" for byte in range(256))]
print(json.dumps({
    "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
                       "special_tokens": {"<s>": {"ids": [len(vocab)]}}},
    "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "added_tokens": [{"id": len(vocab) + i, "content": name, "special": True} for i, name in enumerate(["<s>", "</s>"])],
    "model": {"type": "BPE", "byte_fallback": True, "merges": ["▁ a", "a n", "m a"],
              "vocab": {piece: i for i, piece in enumerate(vocab)}}}))
END
printf 'anna and the man 😀\nmama 😀😁 an ant\n%.0s' {1..200} > smiles.txt
plumb train "$source/examples/embed_cpp/model.pbtxt" --data smiles.txt --out "$work/smiles" --set train.data.vocabulary=TOKENIZER \
  --set train.data.tokenizer="$work/tokenizer.json" --set train.max_steps=150 --set train.learning_rate=0.01 >> train.log
PYTHONPATH="$prefix/share/plumb/python" "$3" "$source/tests/sdk/embed_server_test.py" "$work/server/embed_server" "$work/names" "$work/long" "$work/smiles"
"$source/tests/sdk/embed_server_page.sh" "$work/server/embed_server" "$work/names" "$work/long" || [ $? = 77 ]
