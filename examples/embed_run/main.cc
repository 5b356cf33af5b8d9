// SPDX-License-Identifier: Apache-2.0
// Continues a text with a run of `plumb train` or `plumb import`: embed_run RUN TEXT
//   c++ -std=c++17 main.cc -o embed_run $(pkg-config --cflags --libs plumb)
//     -Wl,-rpath,$(pkg-config --variable=libdir plumb)
#include <cstdint>
#include <exception>
#include <iostream>
#include <plumb.hpp>
#include <stdexcept>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("usage: embed_run RUN TEXT");
  plumb::Runtime runtime = plumb::Runtime::Create().value();
  plumb::Run run = plumb::Run::Open(runtime, argv[1]).value();
  const plumb::TokenizerInfo tokens = run.tokenizer.Info();
  std::vector<std::int32_t> ids = tokens.prefix;
  for (const std::int32_t id : run.tokenizer.Encode(argv[2]).value()) ids.push_back(id);
  plumb::Session session = plumb::Session::Create(run.model).value();
  session.Feed(0, ids).value();
  plumb::Decoder decoder = plumb::Decoder::Create(run.tokenizer, ids).value();
  plumb::SampleOptions options;
  options.temperature = 0;
  options.end_tokens = tokens.end_tokens;
  std::cout << argv[2];
  session
      .Generate(0, options,
                [&](std::int32_t token) {
                  std::cout << decoder.Next({&token, 1}).value();
                })
      .value();
  std::cout << "\n";
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
