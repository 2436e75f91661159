#include "compute/weights/read_ahead.h"

#include <gtest/gtest.h>

#include "compute/weights/loader.h"

namespace hocket {
namespace {

// One matrix of bf16 "here.weight" [32, 64], whose pages it is asked for.
class AskedSource final : public WeightSource {
 public:
  Result<StoredTensor> find(std::string_view name) const override {
    if (!has(name)) return fail(ErrorCode::missing_tensor, "no {}", name);
    StoredTensor tensor{.type = StoredType::bf16, .shape = {32, 64}};
    tensor.data = bytes.data();
    tensor.bytes = std::ssize(bytes);
    return tensor;
  }
  bool has(std::string_view name) const override { return name == "here.weight"; }
  std::vector<std::string> names() const override { return {"here.weight"}; }
  void will_read(const StoredTensor& tensor) const override {
    EXPECT_EQ(tensor.data, bytes.data());
    asked_for = tensor.bytes;
  }

  std::vector<std::byte> bytes = std::vector<std::byte>(32 * 64 * 2);
  mutable int64_t asked_for = 0;
};

TEST(ReadAhead, AMeasuringRunAsksForTheBytesOfItsTensors) {
  const AskedSource files;
  const ReadAhead ahead(files);
  WeightLoader::Options options;
  options.source = &ahead;
  WeightLoader measuring = WeightLoader::measuring(options);
  measuring.matrix("here.weight", 32, 64);
  EXPECT_TRUE(measuring.status().has_value());
  EXPECT_EQ(files.asked_for, std::ssize(files.bytes));
}

TEST(ReadAhead, WhatIsMissingIsAskedForByNobody) {
  const AskedSource files;
  const ReadAhead ahead(files);
  EXPECT_FALSE(ahead.find("there.weight").has_value());
  EXPECT_EQ(files.asked_for, 0);
  EXPECT_TRUE(ahead.has("here.weight"));
  EXPECT_FALSE(ahead.has("there.weight"));
  EXPECT_EQ(ahead.names(), files.names());
}

}  // namespace
}  // namespace hocket
