// SPDX-License-Identifier: Apache-2.0
// A host program in C++17: reads a model's description, trains it on a text in memory, and samples
// four names at once.
//
//   embed_cpp MODEL.pbtxt
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "plumb.hpp"

namespace {

constexpr char kNames[] =
    "\nada\nadele\nagnes\nalan\nalbert\nalice\nalma\namanda\nanna\nanton\naugust\nbella\nbertha\n"
    "bruno\ncamilla\ncarl\ncarla\nclara\ndaniel\ndora\nedgar\nelena\nella\nelsa\nemil\nemma\nerik\n"
    "eva\nfelix\nfrida\ngreta\nhanna\nhelena\nhugo\nida\nirma\njonas\njulia\nkarin\nlara\nlena\n"
    "leo\nlina\nlinda\nmagda\nmarie\nmarta\nmax\nmia\nnina\nnora\noskar\notto\npaula\nrosa\nsara\n"
    "selma\nsofia\nstella\ntheo\nvera\nviktor\nwanda\n";

// Fills the rows of a step with pieces of the text; the target of each token is the next one.
void Fill(const std::vector<std::int32_t>& text, std::size_t seq, std::int64_t step,
          plumb::Span<std::int32_t> inputs, plumb::Span<std::int32_t> targets) {
  for (std::size_t at = 0; at < inputs.size(); ++at) {
    const std::size_t row = at / seq + static_cast<std::size_t>(step) * 31;
    const std::size_t from = row * 97 % (text.size() - seq) + at % seq;
    inputs[at] = text[from];
    targets[at] = text[from + 1];
  }
}

void Train(plumb::Model& model, const std::vector<std::int32_t>& text) {
  plumb::TrainerOptions options;
  options.recipe = "max_steps: 400 batch_size: 8 learning_rate: 0.01 schedule: COSINE";
  plumb::Trainer trainer = plumb::Trainer::Create(model, options).value();
  const auto seq = static_cast<std::size_t>(model.Info().context_length);
  trainer
      .Run([&](auto step, auto inputs, auto targets) { Fill(text, seq, step, inputs, targets); },
           [](const plumb::StepInfo& info) {
             if (info.step % 100 != 0) return;
             std::printf("step %d loss %.2f\n", static_cast<int>(info.step), info.loss);
           })
      .value();
}

// Samples four sequences together: each pass over the weights yields a token for all of them.
std::vector<std::string> Sample(plumb::Model& model, const plumb::Tokenizer& tokenizer) {
  constexpr std::size_t kSequences = 4;
  plumb::Session session = plumb::Session::Create(model, {kSequences}).value();
  std::vector<std::string> names(kSequences);
  const std::vector<std::int32_t> prompt = tokenizer.Encode("\n").value();
  std::vector<std::int32_t> next(kSequences, prompt[0]);
  std::vector<plumb::Decoder> decoders;
  for (std::size_t i = 0; i < kSequences; ++i) {
    decoders.push_back(plumb::Decoder::Create(tokenizer, prompt).value());
  }
  plumb::SampleOptions draw;
  draw.max_tokens = 1;
  draw.temperature = 0.7;
  draw.seed = 7;
  for (const auto length = model.Info().context_length; draw.drawn < length; ++draw.drawn) {
    session.FeedBatch(next).value();
    for (draw.index = 0; draw.index < kSequences; ++draw.index) {
      const auto sequence = static_cast<std::int32_t>(draw.index);
      session.Generate(sequence, draw, [&](auto token) { next[draw.index] = token; }).value();
      names[draw.index] += decoders[draw.index].Next(next[draw.index]).value();
    }
  }
  // A line break ends the name.
  for (std::string& name : names) name.resize(name.find('\n') < 16 ? name.find('\n') : 16);
  return names;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: embed_cpp MODEL.pbtxt\n");
    return 2;
  }
  plumb::Runtime runtime = plumb::Runtime::Create().value();
  plumb::Spec spec = plumb::Spec::FromFile(argv[1]).value();
  const plumb::Tokenizer tokenizer = plumb::Tokenizer::Characters(kNames).value();
  spec.Set("vocab_size", tokenizer.Info().vocab_size).value();
  plumb::Model model = plumb::Model::Create(runtime, spec).value();
  model.Init(1).value();
  Train(model, tokenizer.Encode(kNames).value());
  for (const std::string& name : Sample(model, tokenizer)) std::printf("%s\n", name.c_str());
  return 0;
} catch (const plumb::Error& error) {
  // "model.pbtxt:3:1: ...", a location that editors can open.
  std::fprintf(stderr, "embed_cpp: %s\n", error.what());
  return 1;
}
