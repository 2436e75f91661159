#include "compute/weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "compute/weights/golden_folder_testing.h"

namespace hocket {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string length_bytes(uint64_t n) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &n, 8);
  return bytes;
}
std::string file_of(const std::string& header, size_t data_bytes) {
  return length_bytes(header.size()) + header + std::string(data_bytes, '\1');
}
Result<SafetensorsHeader> parse(const std::string& file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)),
                                  static_cast<int64_t>(file.size()));
}
std::string tensor(const std::string& type, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + type + R"(","shape":[)" + shape + R"(],"data_offsets":[)" + offsets +
         "]}";
}

class TempFolder {
 public:
  TempFolder()
      : path_(std::filesystem::path(testing::TempDir()) /
              ("safetensors_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(SafetensorsHeader, ReadsWhatIsLegal) {
  const auto header = parse(
      file_of(R"({"__metadata__":{"format":"pt"},"b":)" + tensor("F32", "2,3", "4,28") +
                  R"(,"a":)" + tensor("BF16", "2", "0,4") + R"(,"scalar":)" +
                  tensor("F16", "", "28,30") + R"(,"empty":)" + tensor("F32", "5,0", "30,30") +
                  R"(,"größe":)" + tensor("F4", "4", "30,32") + "}   ",
              32));
  ASSERT_TRUE(header.has_value()) << header.error().message;
  EXPECT_EQ(header->tensors.size(), 5u);
  EXPECT_EQ(header->metadata.at("format"), "pt");
  const SafetensorsEntry& b = header->tensors.at("b");
  EXPECT_EQ(b.type, StoredType::f32);
  EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(b.begin, 4);
  EXPECT_EQ(b.end, 28);
  EXPECT_EQ(header->tensors.at("größe").type, StoredType::other);
  EXPECT_EQ(header->tensors.at("größe").type_name, "F4");
  EXPECT_TRUE(parse(file_of("{}", 0)).has_value());
}

TEST(SafetensorsHeader, EveryRuleHasItsSentence) {
  const std::string a = R"({"a":)", two = tensor("F32", "2", "0,8");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "0 bytes"},
      {"1234567", "7 bytes"},
      {length_bytes(~uint64_t{0}) + "{}", "claims 18446744073709551615 bytes"},
      {length_bytes(100'000'001) + "{}", "at most 100000000"},
      {length_bytes(3) + "{}", "holds only 2"},
      {length_bytes(0), "does not begin with {"},
      {file_of(" {}", 0), "does not begin with {"},
      {file_of("[]", 0), "does not begin with {"},
      {file_of("{\"a\":", 0), "not a JSON object"},
      {file_of("{}{}", 0), "not a JSON object"},
      {file_of("{\"\xff\":1}", 0), "not a JSON object"},
      {file_of("{\"a\":" + std::string(5000, '[') + std::string(5000, ']') + "}", 0),
       "not a JSON object"},
      {file_of(R"({"a":1})", 0), "not an object"},
      {file_of(R"({"a":{}})", 0), "lacks dtype"},
      {file_of(R"({"a":{"dtype":1,"shape":[2],"data_offsets":[0,8]}})", 8), "lacks dtype"},
      {file_of(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
       "twice"},
      {file_of(a + tensor("F31", "2", "0,8") + "}", 8), "unknown dtype \"F31\""},
      {file_of(a + tensor("F32", "-2", "0,8") + "}", 8), "whole numbers"},
      {file_of(a + tensor("F32", "2.0", "0,8") + "}", 8), "whole numbers"},
      {file_of(a + tensor("F32", "99999999999999999999", "0,8") + "}", 8), "not a JSON object"},
      {file_of(a + tensor("F32", "18446744073709551615", "0,8") + "}", 8), "whole numbers"},
      {file_of(a + tensor("F32", "4611686018427387904,4", "0,8") + "}", 8), "larger than any file"},
      {file_of(a + tensor("F32", "2", "8") + "}", 8), "two rising numbers"},
      {file_of(a + tensor("F32", "2", "8,0") + "}", 8), "two rising numbers"},
      {file_of(a + tensor("F32", "2", "-8,0") + "}", 8), "two rising numbers"},
      {file_of(a + tensor("F32", "3", "0,8") + "}", 8), "owns 8 bytes"},
      {file_of(a + tensor("F4", "3", "0,1") + "}", 1), "owns 1 bytes"},
      {file_of(a + two + "}", 4), "holds only 4"},
      {file_of(a + two + "}", 12), "end at byte 8"},
      {file_of(a + tensor("F32", "1", "4,8") + "}", 8), "begins at byte 4"},
      {file_of(a + two + R"(,"b":)" + tensor("F32", "1", "4,8") + "}", 8), "overlapping"},
      {file_of(a + two + R"(,"a":)" + tensor("F32", "1", "8,12") + "}", 12), "\"a\" twice"},
      {file_of(R"({"__metadata__":3})", 0), "__metadata__ is not"},
      {file_of(R"({"__metadata__":{"a":3}})", 0), "else than strings"},
      {file_of(R"({"__metadata__":{"a":"","a":""}})", 0), "twice"},
      {file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "__metadata__ twice"},
      {file_of("{\"\\u001b[2J\":1}", 0), "\"?[2J\""},
  };
  for (const auto& [file, sentence] : cases) {
    const auto header = parse(file);
    ASSERT_FALSE(header.has_value()) << sentence;
    EXPECT_EQ(header.error().code, ErrorCode::bad_safetensors);
    EXPECT_THAT(header.error().message, HasSubstr(sentence));
    EXPECT_FALSE(header.error().fix.empty());
  }
}

TEST(SafetensorsHeader, EveryCutOfAFileIsRefused) {
  const std::string file = file_of(R"({"a":)" + tensor("F32", "2", "0,8") + "}", 8);
  ASSERT_TRUE(parse(file).has_value());
  for (size_t bytes = 0; bytes < file.size(); ++bytes)
    EXPECT_FALSE(parse(file.substr(0, bytes)).has_value()) << bytes;
}

TEST(SafetensorsFile, GivesTheBytesOfATensor) {
  const TempFolder folder;
  folder.write("x.safetensors", length_bytes(62) +
                                    R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})" +
                                    std::string(62 - 54, ' ') + std::string("\0\0\x80?\0\0\0@", 8));
  const auto file = SafetensorsFile::open(folder.path() / "x.safetensors");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto a = (*file)->find("a");
  ASSERT_TRUE(a.has_value());
  float values[2];
  std::memcpy(values, a->data, 8);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], 2.0f);
  (*file)->done_with(*a);  // the bytes come back when they are read
  std::memcpy(values, a->data, 8);
  EXPECT_EQ(values[1], 2.0f);
}

TEST(SafetensorsFile, AMissingTensorComesWithTheNearestName) {
  const auto weights = open_model_weights(kGolden / "qwen3_moe_bf16");
  ASSERT_TRUE(weights.has_value()) << weights.error().message;
  const auto found = (*weights)->find("model.layers.0.self_attn.q_prj.weight");
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code, ErrorCode::missing_tensor);
  EXPECT_THAT(found.error().message,
              AllOf(HasSubstr("qwen3_moe_bf16"), HasSubstr("q_prj"),
                    HasSubstr("\"model.layers.0.self_attn.q_proj.weight\"")));
}

TEST(SafetensorsFile, WhatCannotBeReadIsNamed) {
  const TempFolder folder;
  const auto missing = SafetensorsFile::open(folder.path() / "none.safetensors");
  EXPECT_EQ(missing.error().code, ErrorCode::model_not_found);
  EXPECT_EQ(SafetensorsFile::open(folder.path()).error().code, ErrorCode::io);
  folder.write("model.safetensors", "");
  const auto empty = open_model_weights(folder.path());
  EXPECT_EQ(empty.error().code, ErrorCode::bad_safetensors);
  EXPECT_THAT(empty.error().message, HasSubstr((folder.path() / "model.safetensors").string()));
}

TEST(ModelWeights, ShardsHoldTheSameTensorsAsOneFile) {
  const auto shards = open_model_weights(kGolden / "qwen3_moe");
  const auto single = open_model_weights(kGolden / "qwen3_moe_bf16");
  ASSERT_TRUE(shards.has_value()) << shards.error().message;
  ASSERT_TRUE(single.has_value()) << single.error().message;
  EXPECT_EQ((*shards)->names(), (*single)->names());
  for (const std::string& name : (*shards)->names()) {
    EXPECT_EQ((*shards)->find(name)->type, StoredType::f32);
    EXPECT_EQ((*shards)->find(name)->shape, (*single)->find(name)->shape);
  }
}

TEST(ModelWeights, ABrokenIndexIsNamed) {
  const TempFolder folder;
  EXPECT_EQ(open_model_weights(folder.path()).error().code, ErrorCode::model_not_found);
  folder.write("s1.safetensors", file_of(R"({"a":)" + tensor("F32", "2", "0,8") + "}", 8));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{", "not a JSON object"},
      {"{}", "no weight_map"},
      {R"({"weight_map":{"a":3}})", "names no file"},
      {R"({"weight_map":{"a":"../s1.safetensors"}})", "no file of this folder"},
      {R"({"weight_map":{"a":"s2.safetensors"}})", "s2.safetensors"},
      {R"({"weight_map":{"b":"s1.safetensors"}})", "does not hold it"},
      {R"({"weight_map":{"a":"s1.safetensors","a":"s1.safetensors"}})", "\"a\" twice"}};
  for (const auto& [json, sentence] : cases) {
    folder.write("model.safetensors.index.json", json);
    const auto weights = open_model_weights(folder.path());
    ASSERT_FALSE(weights.has_value()) << json;
    EXPECT_THAT(weights.error().message, HasSubstr(sentence));
  }
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"s1.safetensors"}})");
  EXPECT_TRUE(open_model_weights(folder.path()).has_value());
}

}  // namespace
}  // namespace hocket
