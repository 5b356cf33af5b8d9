// SPDX-License-Identifier: Apache-2.0
// Signals while files are written, and files that are truncated while plumb
// reads them.

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kEndless = 1000000;

class InterruptedFilesTest : public PlumbTest {
 protected:
  // Returns the names of the temporary files of `out`: "out.tmp-123", "out.tmp.123000000".
  std::vector<std::string> Unfinished(const std::string& out) const {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(directory(), ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind(out + ".tmp", 0) == 0) names.push_back(name);
    }
    return names;
  }

  // Stops `process` while it writes `out`. Returns false if the process was faster.
  bool StopWhileWriting(const std::string& out, PlumbProcess* process) const {
    while (process->Running() && Unfinished(out).empty()) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    process->Signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return process->Running() && !Unfinished(out).empty();
  }

  void ExpectSignalsLeaveNothing(const std::vector<std::string>& arguments,
                                 const std::string& out) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      bool was_writing = false;
      for (int attempt = 0; attempt < 50 && !was_writing; ++attempt) {
        std::filesystem::remove_all(Path(out));
        PlumbProcess process(directory(), arguments);
        was_writing = StopWhileWriting(out, &process);
        process.Signal(signal);
        process.Signal(SIGCONT);
        const Finished finished = process.Wait();
        EXPECT_THAT(Unfinished(out), IsEmpty());
        if (!was_writing) continue;
        EXPECT_EQ(finished.signal, signal) << finished.err;
        EXPECT_FALSE(Exists(out));
      }
      EXPECT_TRUE(was_writing) << "it is always faster";
    }
  }

  // Writes a text of some megabytes and the byte vocabulary for it.
  void WriteLongText() const {
    std::string text;
    while (text.size() < (8u << 20)) text += "the quick brown fox jumps over the lazy dog\n";
    Write("text", text);
  }

  void TrainVocabulary() {
    const Finished trained = RunPlumb(
        {"tokenize", "train", "names.txt", "--vocab-size", "300", "--out", "bpe.json", "--quiet"});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }

  // Writes another program's checkpoint into the directory `name`: a Llama of one layer with zero
  // weights.
  void WriteLlama(const std::string& name, int64_t vocab_size, int64_t width) const {
    std::filesystem::create_directory(Path(name));
    Write(name + "/config.json", nlohmann::json({{"architectures", {"LlamaForCausalLM"}},
                                                 {"model_type", "llama"},
                                                 {"hidden_act", "silu"},
                                                 {"hidden_size", width},
                                                 {"intermediate_size", width},
                                                 {"max_position_embeddings", 64},
                                                 {"num_attention_heads", 4},
                                                 {"num_hidden_layers", 1},
                                                 {"num_key_value_heads", 4},
                                                 {"rms_norm_eps", 1e-6},
                                                 {"rope_theta", 10000.0},
                                                 {"tie_word_embeddings", false},
                                                 {"vocab_size", vocab_size}})
                                     .dump());
    nlohmann::json header;
    int64_t bytes = 0;
    const auto add = [&](const std::string& tensor, const std::vector<int64_t>& shape) {
      int64_t size = 4;
      for (const int64_t n : shape) size *= n;
      header[tensor] = {
          {"dtype", "F32"}, {"shape", shape}, {"data_offsets", {bytes, bytes + size}}};
      bytes += size;
    };
    add("model.embed_tokens.weight", {vocab_size, width});
    add("lm_head.weight", {vocab_size, width});
    add("model.norm.weight", {width});
    const std::string layer = "model.layers.0.";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      add(layer + norm + ".weight", {width});
    }
    for (const char* matrix :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
          "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
      add(layer + matrix + ".weight", {width, width});
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t length = text.size();
    const std::string file = name + "/model.safetensors";
    Write(file, std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text);
    std::filesystem::resize_file(Path(file), 8 + length + static_cast<uint64_t>(bytes));
  }
};

TEST_F(InterruptedFilesTest, InterruptedImportAndExportLeaveNoFiles) {
  WriteLlama("llama", 32768, 256);
  const std::vector<std::string> import = {"import", "llama", "--copy", "--out", "imported"};
  ExpectSignalsLeaveNothing(import, "imported");
  const Finished imported = RunPlumb(import);
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  ExpectSignalsLeaveNothing({"export", "imported", "--out", "exported"}, "exported");
}

TEST_F(InterruptedFilesTest, InterruptedTokenizeLeavesNoFile) {
  WriteLongText();
  TrainVocabulary();
  ExpectSignalsLeaveNothing({"tokenize", "encode", "bpe.json", "text", "--out", "text.bin"},
                            "text.bin");
}

#ifndef __SANITIZE_ADDRESS__  // it handles SIGBUS itself
TEST_F(InterruptedFilesTest, TruncatedTextEndsPlumb) {
  WriteLongText();
  TrainVocabulary();
  PlumbProcess process(directory(),
                       {"tokenize", "encode", "bpe.json", "text", "--out", "text.bin"});
  ASSERT_TRUE(StopWhileWriting("text.bin", &process));
  std::filesystem::resize_file(Path("text"), 0);
  process.Signal(SIGCONT);
  const Finished finished = process.Wait();
  EXPECT_EQ(finished.signal, SIGBUS) << finished.exit_code;
  EXPECT_THAT(finished.err, HasSubstr("a file was truncated while it was in use"));
  EXPECT_THAT(Unfinished("text.bin"), IsEmpty());
  EXPECT_FALSE(Exists("text.bin"));
}

#endif

TEST_F(InterruptedFilesTest, TruncatedTokenFileEndsTheRunWithACheckpoint) {
  TrainVocabulary();
  const Finished encoded =
      RunPlumb({"tokenize", "encode", "bpe.json", "names.txt", "--out", "names.bin", "--quiet"});
  ASSERT_EQ(encoded.exit_code, 0) << encoded.err;
  const std::string tokens = Read("names.bin");
  const std::vector<std::string> train = {"train",
                                          "pre.pbtxt",
                                          "--data",
                                          "names.bin",
                                          "--out",
                                          "run",
                                          "--resume",
                                          "--set",
                                          "model.vocab_size=300",
                                          "--set",
                                          "train.data.format=TOKENS",
                                          "--set",
                                          "train.data.tokenizer=bpe.json",
                                          "--set",
                                          "train.checkpoint_interval=10",
                                          "--set",
                                          "train.max_steps=" + std::to_string(kEndless),
                                          "--quiet"};
  {
    PlumbProcess process(directory(), train);
    WaitForSteps("run", 15, &process);
    std::filesystem::resize_file(Path("names.bin"), 0);
    const Finished finished = process.Wait();
    EXPECT_EQ(finished.exit_code, 1) << finished.signal;
    EXPECT_THAT(finished.err, HasSubstr("names.bin: was truncated while it was in use"));
  }
  EXPECT_TRUE(Exists("run/latest"));
  Write("names.bin", tokens);
  std::vector<std::string> resume = train;
  resume.insert(resume.end(), {"--stop-at", "40"});
  const Finished resumed = RunPlumb(resume);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
}

}  // namespace
}  // namespace plumb::cli
