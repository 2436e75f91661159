#include "gguf/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "gguf/config.h"
#include "gguf/testing.h"
#include "gguf/tokenizer_json.h"

namespace hocket {
namespace {

using ::testing::HasSubstr;

class GgufFileTest : public ::testing::Test {
 protected:
  GgufFileTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("gguf_file_test_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~GgufFileTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const GgufText& file) const {
    std::ofstream(folder_ / name, std::ios::binary) << file.bytes_as_text();
    return folder_ / name;
  }
  static GgufText part(uint32_t number, uint32_t count, const std::string& tensor) {
    return GgufText()
        .counts(1, 3)
        .u32_value("split.no", number)
        .u32_value("split.count", count)
        .u32_value("split.tensors.count", 2)
        .tensor(tensor, {8}, 0, 0)
        .data(32);
  }
  static std::string message_of(const std::filesystem::path& path) {
    const auto file = GgufFile::open(path);
    return file ? "opened" : file.error().message;
  }

  std::filesystem::path folder_;
};

TEST_F(GgufFileTest, PartsAreOneModel) {
  const auto first = write("m-00001-of-00002.gguf", part(0, 2, "a"));
  const auto second = write("m-00002-of-00002.gguf", part(1, 2, "b"));
  for (const auto& path : {first, second}) {
    const auto file = GgufFile::open(path);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    EXPECT_EQ((*file)->parts().size(), 2);
    EXPECT_NE((*file)->find("a").tensor, nullptr);
    EXPECT_NE((*file)->find("b").tensor, nullptr);
    EXPECT_EQ((*file)->find("c").tensor, nullptr);
  }
  EXPECT_EQ(gguf_file_of(folder_), first);
}

TEST_F(GgufFileTest, PartsThatDoNotBelongTogetherAreRefused) {
  const auto first = write("m-00001-of-00002.gguf", part(0, 2, "a"));
  EXPECT_THAT(message_of(first), HasSubstr("there is no file"));
  write("m-00002-of-00002.gguf", part(0, 2, "b"));
  EXPECT_THAT(message_of(first), HasSubstr("is not part 2 of 2"));
  write("m-00002-of-00002.gguf", part(1, 2, "a"));
  EXPECT_THAT(message_of(first), HasSubstr("is in two parts"));
  EXPECT_THAT(message_of(write("renamed.gguf", part(0, 2, "a"))),
              HasSubstr("does not end in -00001-of-00002.gguf"));
}

TEST_F(GgufFileTest, AFolderWithAConfigurationOrTwoModelsIsNoGgufFile) {
  const auto file = write("one.gguf", part(0, 1, "a"));
  EXPECT_EQ(gguf_file_of(folder_), file);
  EXPECT_EQ(gguf_file_of(file), file);
  write("mmproj-F16.gguf", part(0, 1, "a"));
  write("mtp-one.gguf", part(0, 1, "a"));
  EXPECT_EQ(gguf_file_of(folder_), file);
  write("two.gguf", part(0, 1, "a"));
  EXPECT_TRUE(gguf_file_of(folder_).empty());
  EXPECT_EQ(gguf_models_in(folder_).size(), 2U);
  std::filesystem::remove(folder_ / "two.gguf");
  std::ofstream(folder_ / "config.json") << "{}";
  EXPECT_TRUE(gguf_file_of(folder_).empty());
}

TEST_F(GgufFileTest, FilesBesideAModelThatSaySoAreNoModels) {
  const auto model = write("one.gguf", part(0, 1, "a"));
  for (const char* type : {"imatrix", "mmproj", "adapter"})
    write(std::string("one-") + type + ".gguf",
          GgufText().counts(0, 1).text_value("general.type", type));
  EXPECT_EQ(gguf_file_of(folder_), model);
  write("two.gguf", GgufText().counts(0, 1).text_value("general.type", "model"));
  EXPECT_EQ(gguf_models_in(folder_).size(), 2U);
}

TEST_F(GgufFileTest, AFileNeedsNoSuffixIfItBeginsAsGguf) {
  const auto file = write("sha256-abc", part(0, 1, "a"));
  EXPECT_EQ(gguf_file_of(file), file);
  std::filesystem::create_symlink(file, folder_ / "link");
  EXPECT_EQ(gguf_file_of(folder_ / "link"), folder_ / "link");
  std::ofstream(folder_ / "text") << "GG";
  EXPECT_TRUE(gguf_file_of(folder_ / "text").empty());
}

TEST_F(GgufFileTest, WhatIsNotKnownIsRefusedByName) {
  const auto file = GgufFile::open(write("new.gguf", GgufText()
                                                         .counts(0, 3)
                                                         .text_value("general.architecture", "newt")
                                                         .text_value("tokenizer.ggml.model", "gpt2")
                                                         .text_value("tokenizer.ggml.pre", "odd")));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto config = gguf_config_json(**file);
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().code, ErrorCode::unsupported_model);
  EXPECT_THAT(config.error().message, HasSubstr("\"newt\" is not supported in GGUF; supported are "
                                                "llama"));
  const auto tokenizer = gguf_tokenizer_json(**file);
  ASSERT_FALSE(tokenizer.has_value());
  EXPECT_THAT(tokenizer.error().message, HasSubstr("\"odd\" is not known; known are llama-bpe"));
}

// Three layers of mimo2, of which the lists speak.
GgufText mimo(const std::vector<int32_t>& sliding, const std::vector<int32_t>& kv_heads) {
  GgufText file;
  file.counts(1, 13).text_value("general.architecture", "mimo2");
  for (const char* key :
       {"embedding_length", "attention.head_count", "context_length", "attention.key_length",
        "attention.value_length", "attention.sliding_window", "rope.dimension_count",
        "expert_count", "expert_used_count"})
    file.u32_value(std::string("mimo2.") + key, 8);
  file.u32_value("mimo2.block_count", 3)
      .i32s_value("mimo2.attention.sliding_window_pattern", sliding)
      .i32s_value("mimo2.attention.head_count_kv", kv_heads);
  return file.tensor("token_embd.weight", {8, 4}, 0, 0).data(128);
}

TEST_F(GgufFileTest, ListsOfLayersMustFitThem) {
  const auto answer = [&](const std::vector<int32_t>& sliding,
                          const std::vector<int32_t>& kv_heads) {
    const auto file = GgufFile::open(write("m.gguf", mimo(sliding, kv_heads)));
    EXPECT_TRUE(file.has_value()) << file.error().message;
    const auto config = gguf_config_json(**file);
    return config ? *config : config.error().message;
  };
  EXPECT_THAT(answer({0, 1}, {2, 4, 4}), HasSubstr("hold 2 numbers "
                                                   "mimo2.attention.sliding_window_pattern for 3"));
  EXPECT_THAT(answer({0, 1, 1}, {2, 4, 2}), HasSubstr("differs among layers of one kind"));
  // All lists fit; the next value is missing.
  EXPECT_THAT(answer({0, 1, 1}, {2, 4, 4}), HasSubstr("mimo2.expert_feed_forward_length"));
}

TEST_F(GgufFileTest, DivisorsOfFrequenciesAreBounded) {
  const auto answer = [&](int64_t count) {
    GgufText text;
    text.counts(2, 5).text_value("general.architecture", "llama");
    for (const char* key :
         {"embedding_length", "block_count", "attention.head_count", "context_length"})
      text.u32_value(std::string("llama.") + key, 1);
    text.tensor("token_embd.weight", {8, 4}, 0, 0).tensor("rope_freqs.weight", {count}, 0, 128);
    const auto file = GgufFile::open(write("d.gguf", text.data(128 + count * 4)));
    EXPECT_TRUE(file.has_value()) << file.error().message;
    const auto config = gguf_config_json(**file);
    return config ? *config : config.error().message;
  };
  EXPECT_THAT(answer(32769), HasSubstr("rope_freqs.weight holds 32769 numbers; at most 32768"));
  EXPECT_THAT(answer(8), HasSubstr("rope_freqs.weight holds 0, not a number above 0"));
}

TEST_F(GgufFileTest, ATokenizerThatContradictsItselfIsRefused) {
  const auto open = [&](const std::vector<std::string_view>& tokens,
                        const std::vector<int32_t>& kinds) {
    const auto file =
        GgufFile::open(write("t.gguf", GgufText()
                                           .counts(0, 5)
                                           .text_value("tokenizer.ggml.model", "gpt2")
                                           .text_value("tokenizer.ggml.pre", "qwen2")
                                           .texts_value("tokenizer.ggml.tokens", tokens)
                                           .i32s_value("tokenizer.ggml.token_type", kinds)
                                           .texts_value("tokenizer.ggml.merges", {})));
    const auto json = gguf_tokenizer_json(**file);
    return json ? "read" : json.error().message;
  };
  EXPECT_EQ(open({"a", "b"}, {1, 1}), "read");
  EXPECT_THAT(open({"a", "b"}, {1}), HasSubstr("2 tokens, but the kinds of 1"));
  EXPECT_THAT(open({"a", "\xff"}, {1, 1}), HasSubstr("not UTF-8"));
  const std::string long_token(20'000, 'a');
  EXPECT_THAT(open({"a", long_token}, {1, 1}), HasSubstr("larger than 1048576 tokens of 16384"));
}

TEST_F(GgufFileTest, TokenizersWithoutMergesNeedScoresOrAnOrder) {
  const auto json_of = [&](std::string_view model, std::string_view pre,
                           const std::vector<int32_t>& scores) {
    GgufText text;
    text.counts(0, 4)
        .text_value("tokenizer.ggml.model", model)
        .text_value("tokenizer.ggml.pre", pre)
        .texts_value("tokenizer.ggml.tokens", {"a", "b", "ab"})
        .i32s_value("tokenizer.ggml.scores", scores);
    return gguf_tokenizer_json(**GgufFile::open(write("m.gguf", text)));
  };
  const auto merges_of = [](const Result<std::string>& json) {
    return nlohmann::json::parse(json.value())["model"]["merges"].dump();
  };
  EXPECT_EQ(merges_of(json_of("llama", "default", {0, 0, -1})), R"([["a","b"]])");
  EXPECT_EQ(merges_of(json_of("gpt2", "kimi-k2", {})), R"([["a","b"]])");
  EXPECT_THAT(json_of("llama", "default", {0, 0}).error().message,
              HasSubstr("no list of a score for each token"));
  for (const auto& [model, pre] : {std::pair("gpt2", "qwen2"), std::pair("gemma4", "gemma4")})
    EXPECT_THAT(json_of(model, pre, {0, 0, -1}).error().message, HasSubstr("no list of merges"));
  EXPECT_THAT(json_of("t5", "default", {}).error().message,
              HasSubstr("of the kind \"t5\"; supported are \"gpt2\", \"llama\" and \"gemma4\""));
}

TEST_F(GgufFileTest, Llama3AndTekkenBeginTextsWithBos) {
  const auto processor = [&](std::string_view pre, std::initializer_list<bool> asked) {
    GgufText text;
    text.counts(0, 6 + asked.size())
        .text_value("tokenizer.ggml.model", "gpt2")
        .text_value("tokenizer.ggml.pre", pre)
        .texts_value("tokenizer.ggml.tokens", {"a", "<bos>", "<eos>"})
        .texts_value("tokenizer.ggml.merges", {})
        .u32_value("tokenizer.ggml.bos_token_id", 1)
        .u32_value("tokenizer.ggml.eos_token_id", 2);
    const char* key = "tokenizer.ggml.add_bos_token";
    for (const bool value : asked) {
      text.flag_value(key, value);
      key = "tokenizer.ggml.add_eos_token";
    }
    const auto file = GgufFile::open(write("b.gguf", text));
    const auto json = nlohmann::json::parse(gguf_tokenizer_json(**file).value());
    std::string parts;
    if (!json["post_processor"].is_null())
      for (const auto& part : json["post_processor"]["single"])
        parts += part.contains("Sequence") ? "A" : part["SpecialToken"]["id"].get<std::string>();
    return parts;
  };
  for (const char* pre : {"llama-bpe", "llama3", "llama-v3", "tekken"})
    EXPECT_EQ(processor(pre, {}), "<bos>A") << pre;
  EXPECT_EQ(processor("qwen2", {}), "");
  EXPECT_EQ(processor("llama-bpe", {false}), "");
  EXPECT_EQ(processor("qwen2", {false, true}), "A<eos>");
  EXPECT_EQ(processor("qwen2", {true, true}), "<bos>A<eos>");
}

TEST_F(GgufFileTest, ChatTemplatesAreThoseOfTheFolder) {
  const auto template_of = [&](std::vector<std::string_view> variants, bool listed) {
    GgufText text;
    text.counts(0, 3 + variants.size() + (listed ? 1 : 0))
        .texts_value("tokenizer.ggml.tokens", {"a"})
        .texts_value("tokenizer.ggml.merges", {})
        .text_value("tokenizer.chat_template", "usual");
    for (const std::string_view name : variants)
      text.text_value("tokenizer.chat_template." + std::string(name), name);
    if (listed) text.texts_value("tokenizer.chat_templates", variants);
    const auto file = GgufFile::open(write("c.gguf", text));
    const auto json = nlohmann::json::parse(gguf_tokenizer_config_json(**file).value());
    if (json["chat_template"].is_string()) return json["chat_template"].get<std::string>();
    std::string all;
    for (const auto& one : json["chat_template"])
      all += one["name"].get<std::string>() + "=" + one["template"].get<std::string>() + " ";
    return all;
  };
  EXPECT_EQ(template_of({}, false), "usual");
  EXPECT_EQ(template_of({"tool_use"}, false), "default=usual tool_use=tool_use ");
  EXPECT_EQ(template_of({"rag"}, true), "default=usual rag=rag ");
  EXPECT_EQ(template_of({"rag", "tool_use"}, true), "default=usual rag=rag tool_use=tool_use ");
}

// Files may name one token that ends answers, though the model has several, and have it as a token
// of another kind than control.
TEST_F(GgufFileTest, TokensThatEndMessagesAreFoundByTheirText) {
  const auto ends = [&](const std::vector<std::string_view>& tokens,
                        const std::vector<int32_t>& kinds) {
    GgufText text;
    text.counts(1, 11).text_value("general.architecture", "qwen2");
    for (const char* key :
         {"embedding_length", "block_count", "attention.head_count", "attention.head_count_kv",
          "context_length", "attention.key_length", "attention.value_length"})
      text.u32_value(std::string("qwen2.") + key, 1);
    text.u32_value("tokenizer.ggml.eos_token_id", 0)
        .texts_value("tokenizer.ggml.tokens", tokens)
        .i32s_value("tokenizer.ggml.token_type", kinds)
        .tensor("token_embd.weight", {8, 5}, 0, 0);
    const auto file = GgufFile::open(write("e.gguf", text.data(160)));
    EXPECT_TRUE(file.has_value()) << file.error().message;
    const auto config = gguf_config_json(**file);
    EXPECT_TRUE(config.has_value()) << config.error().message;
    return nlohmann::json::parse(*config)["eos_token_id"].get<std::vector<int>>();
  };
  using Ids = std::vector<int>;
  const std::vector<int32_t> control = {1, 3, 3, 3, 3, 3};
  // The sixth token is beyond the embedding.
  EXPECT_EQ(ends({"a", "<|im_end|>", "<x>", "<turn|>", "[EOS]", "<|eom_id|>"}, control),
            (Ids{0, 1, 3, 4}));
  EXPECT_EQ(ends({"a", "<|end|>", "<|call|>", "<x>", "b", "c"}, control), (Ids{0, 1, 2}));
  EXPECT_EQ(ends({"a", "<|end|>", "<|call|>", "<|return|>", "b", "c"}, control), (Ids{0, 2, 3}));
  EXPECT_EQ(ends({"a", "<|end|>", "<|calls|>", "<|flush|>", "b", "c"}, control), (Ids{0, 2, 3}));
  // User-defined tokens count too; common ones only if no text of a model looks like them.
  EXPECT_EQ(
      ends({"a", "<|tool_response>", "[EOT]", "<|eot_id|>", "<eos>", "c"}, {1, 4, 4, 1, 1, 1}),
      (Ids{0, 1, 2, 3, 4}));
  // In folders an answer of several files goes on behind these.
  EXPECT_EQ(ends({"a", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "b", "c"}, control),
            (Ids{0}));
  EXPECT_EQ(ends({"a", "[EOS]", "_<EOT>", "[e~[", "<x>", "c"}, {1, 1, 1, 1, 1, 1}), (Ids{0}));
}

TEST_F(GgufFileTest, AFolderOrAPipeIsNoModel) {
  std::filesystem::create_directory(folder_ / "folder.gguf");
  EXPECT_THAT(message_of(folder_ / "folder.gguf"), HasSubstr("is not a file"));
  ASSERT_EQ(mkfifo((folder_ / "pipe.gguf").c_str(), 0600), 0);
  EXPECT_THAT(message_of(folder_ / "pipe.gguf"), HasSubstr("is not a file"));  // and does not wait
}

}  // namespace
}  // namespace hocket
