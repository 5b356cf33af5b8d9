// SPDX-License-Identifier: Apache-2.0
// A host program in C++17 with a loss of its own: trains a model on a text, and then a smaller one
// on the probabilities of the first instead of the text (Hinton et al. 2015, arXiv:1503.02531).
//
//   embed_distill MODEL.pbtxt TEXT
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "plumb.hpp"

namespace {

constexpr std::int64_t kRows = 8;

plumb::Model Make(plumb::Runtime& runtime, plumb::Spec& spec, std::int64_t layers) {
  spec.Set("n_layer", layers).value();
  plumb::Model model = plumb::Model::Create(runtime, spec).value();
  model.Init(1).value();
  return model;
}

void Train(plumb::Model& model, const std::vector<std::int32_t>& text, plumb::TrainerOptions how) {
  how.recipe = "max_steps: 300 batch_size: 8 learning_rate: 0.01 schedule: COSINE";
  plumb::Trainer trainer = plumb::Trainer::Create(model, how).value();
  const auto seq = static_cast<std::size_t>(model.Info().context_length);
  const auto fill = [&](auto step, auto inputs, auto targets) {
    for (std::size_t at = 0; at < inputs.size(); ++at) {
      const std::size_t row = at / seq + static_cast<std::size_t>(step) * 31;
      const std::size_t from = row * 97 % (text.size() - seq) + at % seq;
      inputs[at] = text[from];
      targets[at] = text[from + 1];
    }
  };
  const auto print = [](const plumb::StepInfo& info) {
    if (info.step % 100 != 0 && info.step != 1) return;
    std::printf("step %d loss %.3f\n", static_cast<int>(info.step), info.loss);
  };
  trainer.Run(fill, print).value();
}

// Sets p to the softmax of n logits.
void Softmax(const float* logits, std::size_t n, std::vector<double>* p) {
  const double top = static_cast<double>(*std::max_element(logits, logits + n));
  double sum = 0;
  p->resize(n);
  for (std::size_t j = 0; j < n; ++j)
    sum += (*p)[j] = std::exp(static_cast<double>(logits[j]) - top);
  for (double& each : *p) each /= sum;
}

// Sets the loss to the mean divergence of the student's probabilities q from the teacher's p,
// sum p log(p / q), whose derivative by the student's logits is q - p.
plumb::Next Distill(plumb::Evaluator& teacher, plumb::LossInfo& loss) {
  const auto positions = static_cast<std::size_t>(loss.rows * loss.seq);
  const auto n = static_cast<std::size_t>(loss.vocab_size);
  const auto logits = teacher.Logits({loss.inputs, positions}).value();
  std::vector<double> p, q;
  for (std::size_t at = 0; at < positions; ++at) {
    Softmax(&logits[at * n], n, &p);
    Softmax(loss.logits + at * n, n, &q);
    for (std::size_t j = 0; j < n; ++j) {
      loss.loss += p[j] * std::log(p[j] / q[j]) / static_cast<double>(positions);
      loss.gradient[at * n + j] =
          static_cast<float>((q[j] - p[j]) / static_cast<double>(positions));
    }
  }
  return plumb::Next::kGoOn;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: embed_distill MODEL.pbtxt TEXT\n");
    return 2;
  }
  std::ifstream file(argv[2]);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  plumb::Runtime runtime = plumb::Runtime::Create().value();
  plumb::Spec spec = plumb::Spec::FromFile(argv[1]).value();
  const plumb::Tokenizer tokenizer = plumb::Tokenizer::Characters(text).value();
  const std::vector<std::int32_t> ids = tokenizer.Encode(text).value();
  spec.Set("vocab_size", tokenizer.Info().vocab_size).value();
  plumb::Model teacher = Make(runtime, spec, 2), student = Make(runtime, spec, 1);
  Train(teacher, ids, {});
  plumb::EvaluatorOptions wanted;
  wanted.rows = kRows;
  wanted.logits = true;
  plumb::Evaluator evaluator = plumb::Evaluator::Create(teacher, wanted).value();
  plumb::TrainerOptions options;
  options.loss = [&](plumb::LossInfo& loss) { return Distill(evaluator, loss); };
  Train(student, ids, options);
  return 0;
} catch (const plumb::Error& error) {
  std::fprintf(stderr, "embed_distill: %s\n", error.what());
  return 1;
}
