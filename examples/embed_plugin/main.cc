// SPDX-License-Identifier: Apache-2.0
// A host program with its own norm, which is linked into it, and its own placement. It reads no
// file: the norm is a table in softsign.c, the description is a string, and the environment is
// ignored.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "plumb.hpp"
#include "softsign.h"

namespace {

constexpr char kModel[] = R"pbtxt(
  n_layer: 3 n_head: 2 d_model: 32 context_length: 16
  placement {
    name: "mine"
    each: "x = x + f(norm(x)) / sqrt(layer)"
    end: "x = norm(x)"
  }
  block { placement: "mine" norm: "org.example.softsign" }
)pbtxt";
constexpr char kText[] =
    "she sells sea shells by the sea shore; the shells she sells are sea shells";

}  // namespace

int main() try {
  plumb::RuntimeOptions options;
  options.use_environment = false;
  plumb::Runtime runtime = plumb::Runtime::Create(options).value();
  runtime.RegisterPlugin(&softsign_norm).value();

  const auto tokenizer = plumb::Tokenizer::Characters(kText).value();
  const std::vector<std::int32_t> text = tokenizer.Encode(kText).value();
  plumb::Spec spec = plumb::Spec::FromText(kModel, "main.cc").value();
  spec.Set("vocab_size", tokenizer.Info().vocab_size).value();
  plumb::Model model = plumb::Model::Create(runtime, spec).value();
  model.Init(1).value();

  // A row is the text from a position on.
  constexpr std::size_t kSeq = 16;
  const auto fill = [&](std::int64_t step, auto inputs, auto targets) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::size_t row = static_cast<std::size_t>(step) * 4 + i / kSeq;
      const std::size_t from = row * 7 % (text.size() - kSeq) + i % kSeq;
      inputs[i] = text[from];
      targets[i] = text[from + 1];
    }
  };
  const auto tell = [](const plumb::StepInfo& info) {
    if (info.step % 50 == 0) {
      std::printf("step %d loss %.2f\n", static_cast<int>(info.step), info.loss);
    }
  };
  plumb::Trainer trainer =
      plumb::Trainer::Create(model, {"max_steps: 200 batch_size: 4 learning_rate: 0.01"}).value();
  trainer.Run(fill, tell).value();

  // Prints the learned gains of the norm, which are read in place.
  for (std::size_t i = 0; i < model.TensorCount(); ++i) {
    const plumb::TensorView<float> tensor = model.Tensor(i).value();
    if (tensor.rank != 1) continue;
    double sum = 0;
    for (const float gain : tensor.data) sum += static_cast<double>(gain);
    std::printf("%s: mean %.3f\n", std::string(tensor.name).c_str(),
                sum / static_cast<double>(tensor.data.size()));
  }

  plumb::Session session = plumb::Session::Create(model).value();
  const std::vector<std::int32_t> prompt = tokenizer.Encode("she ").value();
  session.Feed(0, prompt).value();
  plumb::Decoder decoder = plumb::Decoder::Create(tokenizer, prompt).value();
  plumb::SampleOptions likeliest;
  likeliest.temperature = 0;
  std::printf("she ");
  const auto print = [&](std::int32_t token) {
    std::printf("%s", decoder.Next(token).value().c_str());
  };
  session.Generate(0, likeliest, print).value();
  std::printf("%s\n", decoder.Finish().value().c_str());
  return 0;
} catch (const plumb::Error& error) {
  std::fprintf(stderr, "embed_plugin: %s\n", error.what());
  return 1;
}
