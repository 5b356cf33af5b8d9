#!/usr/bin/env bash
# examples/embed_server builds against an installed plumb and serves what `plumb train` wrote, to curl and
# to headless Chromium. Says what is missing and counts as skipped without the libraries or curl; without
# node, chromium or playwright-core the page alone is not tried.
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
# What links it without CMake.
read -ra flags <<< "$(pkg-config --cflags --libs plumb cpp-httplib libcrypto)"
c++ server/CMakeFiles/embed_server.dir/*.o -o by_pkg_config "${flags[@]}" -pthread

plumb train "$source/examples/embed_cpp/model.pbtxt" --data "$source/examples/data/names.txt" --out "$work/names" \
  --set train.data.format=DOCUMENTS --set train.max_steps=150 --set train.learning_rate=0.01 > train.log
plumb train "$source/examples/embed_cpp/model.pbtxt" --set model.context_length=2048 --set model.d_model=128 \
  --data "$source/examples/data/names.txt" --out "$work/long" --set train.data.vocabulary=BYTES --set train.max_steps=1 --set train.batch_size=1 >> train.log
"$3" "$source/tests/sdk/embed_server_test.py" "$work/server/embed_server" "$work/names" "$work/long"
"$source/tests/sdk/embed_server_page.sh" "$work/server/embed_server" "$work/names" "$work/long" || [ $? = 77 ]
