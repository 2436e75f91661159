#include "engine/lockstep/identity.h"
#include "compute/overlap/order_yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "compute/overlap/order_table.h"
#include "core/version.h"
#include "engine/tests/folder_copy.h"
#include "engine/tests/forms.h"

namespace hocket {
namespace {

using ::testing::HasSubstr;
using testing::kBundledFolder;
namespace fs = std::filesystem;

// A copy of the bundled model that the test may change.
class OtherModel {
 public:
  OtherModel()
      : path_(fs::path(::testing::TempDir()) / fmt::format("identity_{}_{}", getpid(), next_++)) {
    fs::copy(source_dir() / kBundledFolder, path_);
  }
  ~OtherModel() { fs::remove_all(path_); }
  fs::path operator/(const char* name) const { return path_ / name; }
  const fs::path& path() const { return path_; }
  void append(const char* name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::app) << text;
  }
  // Changes every byte from `first` on.
  void change(const char* name, std::streamoff first) const {
    std::fstream file(path_ / name, std::ios::in | std::ios::out | std::ios::binary);
    std::string bytes(fs::file_size(path_ / name) - static_cast<size_t>(first), '\0');
    file.seekg(first).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    for (char& byte : bytes) byte ^= 1;
    file.seekp(first).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  static inline int next_ = 0;
  fs::path path_;
};

ServerSettings settings_of(const fs::path& model, int num_ranks = 2) {
  ServerSettings settings = testing::settings_for(model);
  settings.parallel.ep_size = num_ranks;
  return settings;
}

Launch launch_of(int rank, int num_ranks = 2) {
  return {.num_ranks = num_ranks, .rank = rank};
}

Identity identity_of(const ServerSettings& settings, const Launch& launch) {
  const auto made = make_identity(settings, launch);
  EXPECT_TRUE(made) << made.error().message;
  return made ? *made : Identity{};
}

// Compares rank 0, which has the bundled model, with rank 1, whose settings or files `change`
// altered.
std::optional<Error> refusal(
    const std::function<void(ServerSettings&, const OtherModel&)>& change) {
  const OtherModel other;
  ServerSettings theirs = settings_of(other.path());
  change(theirs, other);
  return disagreement(identity_of(settings_of(kBundledFolder), launch_of(0)),
                      identity_of(theirs, launch_of(1)));
}

TEST(Identity, OfRanksThatFitAgrees) {
  EXPECT_FALSE(refusal([](ServerSettings& s, const OtherModel& folder) {
    s.scheduler.schedule_policy = "lpm";
    s.parallel.dp_routing = "shortest";
    s.memory.max_total_tokens = 4096;
    s.model.dtype = "bfloat16";  // the same as auto for this model
    s.parallel.dispatch_dtype = "bfloat16";
    folder.append("README.md", "of no weight");
  }));
}

// A fine-tune may change one small tensor and keep all sizes.
TEST(Identity, DiffersIfAnyTensorDoes) {
  for (const char* model : {"qwen3_5_moe", "gpt_oss_mxfp4"}) {
    const testing::FolderCopy copy(testing::kGolden / model);
    const auto hash = [&] {
      return identity_of(settings_of(copy.path, 1), launch_of(0, 1)).model_hash;
    };
    const std::string before = hash();
    std::fstream file(copy.path / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    uint64_t header_bytes = 0;
    file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
    std::string header(header_bytes, '\0');
    file.read(header.data(), static_cast<std::streamsize>(header_bytes));
    const auto flip = [&](uint64_t at) {
      const auto place = static_cast<std::streamoff>(sizeof header_bytes + header_bytes + at);
      const char byte = static_cast<char>(file.seekg(place).get() ^ 1);
      file.seekp(place).put(byte).flush();
    };
    const auto tensors = nlohmann::json::parse(header);
    for (const auto& [name, entry] : tensors.items()) {
      if (name == "__metadata__") continue;
      SCOPED_TRACE(name);
      const auto offsets = entry.at("data_offsets").get<std::vector<uint64_t>>();
      flip((offsets[0] + offsets[1]) / 2);
      EXPECT_NE(hash(), before);
      flip((offsets[0] + offsets[1]) / 2);
    }
    EXPECT_EQ(hash(), before);
  }
}

TEST(Identity, SaysWhoThisIs) {
  const Identity self = identity_of(settings_of(kBundledFolder, 4), {.num_ranks = 4, .rank = 3});
  EXPECT_EQ(self.rank, 3);
  EXPECT_EQ(self.num_ranks, 4);
  EXPECT_EQ(self.version, kVersion);
  EXPECT_EQ(self.host, this_environment().host_name);
  EXPECT_THAT(self.arithmetic, HasSubstr("bfloat16-groups-16"));
  EXPECT_TRUE(check(self));
}

struct Difference {
  std::function<void(ServerSettings&, const OtherModel&)> change;
  std::string field, ours, theirs, remedy;
};

TEST(Identity, EachDifferenceIsRefusedWithBothValuesAndTheRemedy) {
  const std::vector<Difference> differences = {
      {[](ServerSettings& s, const OtherModel&) { s.model.dtype = "float32"; }, "arithmetic level",
       "bfloat16", "float32", "--dtype"},
      {[](ServerSettings& s, const OtherModel&) { s.model.quantization = "int8"; },
       "arithmetic level", "bfloat16", "int8", "--quantization"},
      {[](ServerSettings& s, const OtherModel&) { s.memory.kv_cache_dtype = "int8"; },
       "arithmetic level", "bfloat16-groups", "bfloat16-kv-int8-groups", "--kv-cache-dtype"},
      {[](ServerSettings& s, const OtherModel&) { s.compute.combine_groups = 4; },
       "arithmetic level", "groups-16", "groups-4", "--combine-groups"},
      {[](ServerSettings& s, const OtherModel&) { s.parallel.dispatch_dtype = "int8"; },
       "arithmetic level", "groups-16", "groups-16-dispatch-int8", "--dispatch-dtype"},
      {[](ServerSettings& s, const OtherModel&) { s.parallel.combine_dtype = "int8"; },
       "arithmetic level", "groups-16", "groups-16-combine-int8", "--combine-dtype"},
      {[](ServerSettings& s, const OtherModel&) { s.model.context_length = 512; }, "plan set",
       "context 0", "context 512", "--context-length"},
      {[](ServerSettings& s, const OtherModel& folder) {
         const OrderTable& known = OrderTable::builtin();
         Order mine = known.at(known.find("four-phase"));
         mine.name = "mine";
         folder.append("mine.yaml", to_yaml(mine));
         s.parallel.overlap_plan = (folder.path() / "mine.yaml").string();
       },
       "plan set", fmt::format("{} orders", OrderTable::builtin().size()),
       fmt::format("{} orders", OrderTable::builtin().size() + 1), "--overlap-plan"},
      {[](ServerSettings& s, const OtherModel&) { s.scheduler.chunked_prefill_size = 64; },
       "plan set", "chunk 0", "chunk 64", "--chunked-prefill-size"},
      {[](ServerSettings& s, const OtherModel&) { s.memory.max_running_requests = 8; }, "plan set",
       "running 32", "running 8", "--max-running-requests"},
      {[](ServerSettings& s, const OtherModel&) { s.parallel.enable_prefill_delayer = true; },
       "plan set", "delayer 0", "delayer 30", "--enable-prefill-delayer"},
      {[](ServerSettings& s, const OtherModel&) { s.speculation.algorithm = "NEXTN"; }, "plan set",
       "0 modules that guess", "1 modules that guess", "--speculative-algorithm"},
      {[](ServerSettings& s, const OtherModel& folder) {
         s.parallel.init_expert_location = folder / "vocab.json";
       },
       "plan set", "experts trivial", "experts ", "--init-expert-location"},
      {[](ServerSettings& s, const OtherModel&) { s.peers.disaggregation_mode = "decode"; },
       "disaggregation mode", "has null", "has decode", "start two services"},
  };
  for (const Difference& d : differences) {
    const auto why = refusal(d.change);
    ASSERT_TRUE(why) << d.theirs;
    EXPECT_EQ(exit_status(why->code), 5);
    EXPECT_THAT(why->message, HasSubstr("the " + d.field + " differs: rank 0"));
    EXPECT_THAT(why->message, HasSubstr(d.ours));
    EXPECT_THAT(why->message, HasSubstr(d.theirs));
    EXPECT_THAT(why->fix, HasSubstr(d.remedy));
  }
}

TEST(Identity, OtherModelFilesAreNoticed) {
  const std::vector<std::function<void(ServerSettings&, const OtherModel&)>> changes = {
      [](ServerSettings&, const OtherModel& folder) { folder.append("config.json", " "); },
      [](ServerSettings&, const OtherModel& folder) { folder.append("tokenizer.json", " "); },
      [](ServerSettings&, const OtherModel& folder) { folder.append("chat_template.jinja", " "); },
      // The same tensors with other numbers, as in a later checkpoint.
      [](ServerSettings&, const OtherModel& folder) { folder.change("model.safetensors", 65'536); },
      [](ServerSettings& s, const OtherModel& folder) {
        s.model.chat_template = folder / "chat_template.jinja";
      },
      [](ServerSettings& s, const OtherModel&) { s.model.load_format = "dummy"; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    const auto why = refusal(changes[i]);
    ASSERT_TRUE(why) << i;
    EXPECT_THAT(why->message, HasSubstr("the model hash differs")) << i;
    EXPECT_EQ(why->fix, "give all ranks the same model files") << i;
  }
}

TEST(Identity, DummyWeightsAreTheirSeed) {
  const OtherModel folder;
  fs::remove(folder / "model.safetensors");
  const auto dummy = [&](uint64_t seed, const fs::path& path) {
    ServerSettings settings = settings_of(path);
    settings.model.load_format = "dummy";
    settings.model.dummy_seed = seed;
    return identity_of(settings, launch_of(0)).model_hash;
  };
  EXPECT_EQ(dummy(1, folder.path()), dummy(1, kBundledFolder));
  EXPECT_NE(dummy(1, kBundledFolder), dummy(2, kBundledFolder));
}

TEST(Identity, WhatCannotBeReadIsNamed) {
  EXPECT_EQ(make_identity(settings_of("no/such/model"), launch_of(0)).error().code,
            ErrorCode::model_not_found);
  const OtherModel folder;
  fs::rename(folder / "model.safetensors", folder / "other.safetensors");
  EXPECT_THAT(make_identity(settings_of(folder.path()), launch_of(0)).error().message,
              HasSubstr("holds neither model.safetensors"));
  ServerSettings settings = settings_of(kBundledFolder);
  settings.parallel.init_expert_location = "/no/such/file";
  EXPECT_THAT(make_identity(settings, launch_of(0)).error().message, HasSubstr("/no/such/file"));
}

}  // namespace
}  // namespace hocket
