#include "compute/weights/packed_file.h"
#include "compute/weights/packed_file_testing.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "compute/weights/fingerprint.h"
#include "compute/weights/loader.h"
#include "compute/weights/safetensors.h"
#include "compute/weights/weight_folder_testing.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using QuantLayout = QuantConfig::Layout;

constexpr PackedKey kKey{.packing = 17, .source = 4, .bytes = (int64_t{8} << 20) + 777};
constexpr int64_t kHeaderBytes = 56, kDataBegin = int64_t{2} << 20;

std::vector<std::byte> bytes_of(const PackedKey& key) {
  std::vector<std::byte> bytes(key.bytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(mix64(i));
  return bytes;
}

std::string why_not(const fs::path& path, const PackedKey& key = kKey) {
  const auto opened = PackedFile::open(path, key);
  return opened ? "" : opened.error().message;
}

// A file of kKey in its own folder.
struct KeptFile {
  TestFolder folder;
  fs::path path = PackedFile::path_in(folder.path() / "a/b", "model", kKey);
  std::vector<std::byte> bytes = bytes_of(kKey);
  KeptFile() { EXPECT_TRUE(write_packed(path, kKey, bytes).value()); }

  void overwrite(int64_t at, char with) const {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put(with);
  }
  char read(int64_t at) const {
    std::ifstream file(path, std::ios::binary);
    file.seekg(at);
    return static_cast<char>(file.get());
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(path.parent_path()))
      all.push_back(entry.path().filename().string());
    return all;
  }
};

TEST(PackedFile, GivesBackWhatWasWritten) {
  const KeptFile kept;
  EXPECT_EQ(kept.names(), std::vector<std::string>{"model-0000000000000011.weights"});
  auto opened = PackedFile::open(kept.path, kKey);
  ASSERT_TRUE(opened.has_value()) << describe(opened.error());
  const PackedFile moved = *std::move(opened);
  ASSERT_EQ(moved.bytes(), kKey.bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(moved.data()) % kDataBegin, 0u);
  EXPECT_EQ(std::memcmp(moved.data(), kept.bytes.data(), kKey.bytes), 0);
  // A process that has the file mapped keeps its contents when the file is replaced.
  PackedKey other = kKey;
  other.source = 5;
  ASSERT_TRUE(write_packed(kept.path, other, std::vector<std::byte>(kKey.bytes)).value_or(false));
  EXPECT_EQ(std::memcmp(moved.data(), kept.bytes.data(), kKey.bytes), 0);
  EXPECT_THAT(why_not(kept.path), HasSubstr("files have changed"));
  EXPECT_EQ(why_not(kept.path, other), "");
}

TEST(PackedFile, SaysWhatIsNotAsAsked) {
  const KeptFile kept;
  const auto why = [&](const std::function<void(PackedKey&)>& change) {
    PackedKey key = kKey;
    change(key);
    return why_not(kept.path, key);
  };
  EXPECT_THAT(why([](PackedKey& k) { k.packing = 18; }), HasSubstr("another form"));
  EXPECT_THAT(why([](PackedKey& k) { k.bytes += 64; }), HasSubstr("another form"));
  EXPECT_THAT(why([](PackedKey& k) { k.source = 3; }), HasSubstr("files have changed"));
  EXPECT_THAT(why_not(kept.folder.path() / "absent"), HasSubstr("no such file yet"));
  EXPECT_THAT(why_not(kept.folder.path()), HasSubstr("not a file"));
}

TEST(PackedFile, EveryBitOfTheHeaderCounts) {
  const KeptFile kept;
  for (int64_t at = 0; at < kHeaderBytes; ++at) {
    const char was = kept.read(at);
    for (int bit = 0; bit < 8; ++bit) {
      kept.overwrite(at, static_cast<char>(was ^ (1 << bit)));
      EXPECT_NE(why_not(kept.path), "") << "bit " << bit << " of byte " << at;
    }
    kept.overwrite(at, was);
  }
  EXPECT_EQ(why_not(kept.path), "");
}

TEST(PackedFile, AnotherLengthIsRefused) {
  const KeptFile kept;
  const auto whole = static_cast<int64_t>(fs::file_size(kept.path));
  EXPECT_EQ(whole, kDataBegin + kKey.bytes);
  for (const int64_t bytes :
       {whole + 1, whole + kDataBegin, whole - 1, whole - 4096, kDataBegin + 1, kDataBegin,
        kHeaderBytes, kHeaderBytes - 1, int64_t{8}, int64_t{0}}) {
    fs::resize_file(kept.path, bytes);
    EXPECT_NE(why_not(kept.path), "") << bytes;
  }
  // A file of the wrong length can be written again.
  EXPECT_TRUE(write_packed(kept.path, kKey, kept.bytes).value_or(false));
  EXPECT_EQ(why_not(kept.path), "");
}

TEST(PackedFile, TwoAtOnceAreNoHarm) {
  const KeptFile kept;
  const fs::path fresh = kept.path.string() + ".new";
  const int other = open(fresh.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  EXPECT_FALSE(write_packed(kept.path, kKey, kept.bytes).value_or(true));
  EXPECT_EQ(fs::file_size(fresh), 0u);
  close(other);  // its process was killed; the file it left is reused
  EXPECT_TRUE(write_packed(kept.path, kKey, kept.bytes).value_or(false));
  EXPECT_EQ(kept.names().size(), 1u);
  EXPECT_EQ(why_not(kept.path), "");
}

// They could change the weights after they were checked, too.
TEST(PackedFile, AFileThatOthersCanWriteIsRefused) {
  const KeptFile kept;
  const auto mode_of = [](const fs::path& path, unsigned mode) {
    fs::permissions(path, static_cast<fs::perms>(mode));
  };
  for (const unsigned mode : {0666U, 0646U}) {
    mode_of(kept.path, mode);
    EXPECT_THAT(why_not(kept.path), HasSubstr("can be written by other users")) << mode;
    EXPECT_THAT(PackedFile::open(kept.path, kKey).error().fix, HasSubstr("chmod go-w"));
  }
  const fs::path fresh = kept.path.string() + ".new";
  std::ofstream(fresh) << "x";
  mode_of(fresh, 0666);
  const auto begun = UnfinishedPackedFile::begin(kept.path, kKey);
  ASSERT_FALSE(begun.has_value());
  EXPECT_THAT(begun.error().fix, HasSubstr("chmod go-w " + fresh.string()));
  fs::remove(fresh);
  EXPECT_TRUE(write_packed(kept.path, kKey, kept.bytes).value()) << "it is replaced";
  EXPECT_EQ(why_not(kept.path), "");
  if (geteuid() != 0) return;  // only root gives files away
  ASSERT_EQ(chown(kept.path.c_str(), 1, 1), 0);
  EXPECT_THAT(why_not(kept.path), HasSubstr("belongs to the user 1"));
}

TEST(PackedFile, WhereNothingCanBeWrittenItSaysWhatToChange) {
  const KeptFile kept;
  const auto below_a_file = write_packed(kept.path / "below" / "x.weights", kKey, kept.bytes);
  ASSERT_FALSE(below_a_file.has_value());
  EXPECT_EQ(below_a_file.error().code, ErrorCode::io);
  EXPECT_THAT(below_a_file.error().fix, HasSubstr("another folder"));

  // A limit on file sizes simulates a full disk, for this process only.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  auto* const handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto full = write_packed(kept.path, kKey, kept.bytes);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  ASSERT_FALSE(full.has_value());
  EXPECT_THAT(full.error().message, HasSubstr(kept.path.string()));
  EXPECT_THAT(full.error().fix, HasSubstr("ulimit -f"));
  EXPECT_EQ(kept.names().size(), 1u);  // no other file is left beside it
  EXPECT_EQ(why_not(kept.path), "");   // the old file is intact
}

// One combination of formats that a model can ask for.
struct FormatCase {
  std::string name;
  DType dtype = DType::bf16;
  QuantConfig stored;
  WeightFormat quantize = WeightFormat::bf16;
};
const FormatCase kAsked[] = {
    {"bf16"},
    {"f32", DType::f32},
    {"int8", DType::bf16, {}, WeightFormat::int8},
    {"int4", DType::bf16, {}, WeightFormat::int4},
    {"fp8_block", DType::bf16, {.layout = QuantLayout::fp8_block, .group = 128}},
    {"fp8_channel", DType::bf16, {.layout = QuantLayout::fp8_channel}},
    {"w8a8", DType::bf16, {.layout = QuantLayout::int8_channel}},
    {"awq", DType::bf16, {.layout = QuantLayout::awq, .group = 32}},
    {"gptq", DType::bf16, {.layout = QuantLayout::gptq, .group = 32}},
    {"packed", DType::bf16, {.layout = QuantLayout::packed, .group = 32}},
    {"mxfp4", DType::bf16, {.layout = QuantLayout::mxfp4}},
    {"mxfp8", DType::bf16, {.layout = QuantLayout::mxfp8}},
    {"nvfp4", DType::bf16, {.layout = QuantLayout::nvfp4}},
};
constexpr int kN = 64, kK = 128, kHeads = 2, kNope = 16, kValue = 16, kRank = 32;

std::vector<float> drawn(int count, uint64_t seed) {
  std::vector<float> values(count);
  for (int i = 0; i < count; ++i)
    values[i] = static_cast<float>(mix64(seed * 7919 + i) % 2001) * 0x1p-10f - 1;
  return values;
}

void write_model(TestFolder& folder, const FormatCase& asked) {
  for (const char* module : {"q", "k", "gate", "up", "down"}) {
    const TestMatrix matrix{.module = module, .n = kN, .k = kK, .quant = asked.stored};
    if (asked.stored.layout != QuantLayout::none) {
      add_quantized(folder, matrix);
    } else {
      folder.add(std::string(module) + ".weight", "F32", {kN, kK}, drawn(kN * kK, module[0]));
    }
  }
  folder.add("embed.weight", "F32", {kN, kK}, drawn(kN * kK, 1));
  folder.add("q.bias", "F32", {kN}, drawn(kN, 2));
  folder.add("k.bias", "F32", {kN}, drawn(kN, 3));
  folder.add("norm", "F32", {kN}, drawn(kN, 4));
  folder.add("kv_b.weight", "F32", {kHeads * (kNope + kValue), kRank},
             drawn(kHeads * (kNope + kValue) * kRank, 5));
  folder.write_file();
}

struct Views {
  PackedWeight qkv, embed, head;
  ExpertWeights experts;
  LatentHeadWeights heads;
  std::span<const float> norm;
};

Views ask(WeightLoader& l) {
  Views v;
  const WeightLoader::Part parts[] = {{"q.weight", kN}, {"k.weight", kN}};
  v.qkv = l.stacked(parts, kK, Bias::present);
  v.embed = l.plain_matrix("embed.weight", kN, kK);
  v.head = l.head("embed.weight", kN, kK);
  v.experts.gate_up = l.matrix("gate.weight", kN, kK);
  v.experts.down = l.matrix("down.weight", kN, kK);
  v.heads = l.latent_heads("kv_b.weight", kHeads, kNope, kValue, kRank);
  v.norm = l.vector("norm", kN);
  return v;
}

class PackedWeights : public ::testing::TestWithParam<FormatCase> {
 protected:
  PackedWeights() {
    write_model(folder_, GetParam());
    source_ = *open_model_weights(folder_.path());
    options_ = {.source = source_.get(),
                .dtype = GetParam().dtype,
                .stored = GetParam().stored,
                .quantize = GetParam().quantize};
  }
  uint64_t measure(const WeightLoader::Options& options) {
    WeightLoader plan = WeightLoader::measuring(options);
    ask(plan);
    EXPECT_TRUE(plan.status().has_value());
    options_.bytes = plan.bytes();
    return plan.fingerprint();
  }
  TestFolder folder_;
  std::unique_ptr<WeightSource> source_;
  WeightLoader::Options options_;
};

TEST_P(PackedWeights, AreTheSameMapped) {
  const uint64_t measured = measure(options_);
  WeightLoader packing = *WeightLoader::loading(options_);
  ask(packing);
  ASSERT_TRUE(packing.status().has_value()) << describe(packing.status().error());
  EXPECT_EQ(packing.fingerprint(), measured);
  const Buffer packed = packing.take_memory();
  const PackedKey key{measured, *source_->identity(), packed.bytes()};
  const fs::path path = PackedFile::path_in(folder_.path(), "m", key);
  ASSERT_TRUE(
      write_packed(path, key, {packed.data(), static_cast<size_t>(packed.bytes())}).value());

  const PackedFile file = *PackedFile::open(path, key);
  ASSERT_EQ(file.bytes(), packed.bytes());
  EXPECT_EQ(std::memcmp(file.data(), packed.data(), packed.bytes()), 0);
  options_.packed = file.data();
  WeightLoader mapped = *WeightLoader::loading(options_);
  const Views views = ask(mapped);
  ASSERT_TRUE(mapped.status().has_value());
  EXPECT_EQ(mapped.bytes(), packing.bytes());
  EXPECT_EQ(mapped.narrowed_from(), packing.narrowed_from());
  EXPECT_EQ(mapped.format_changes().widened.stored_bytes,
            packing.format_changes().widened.stored_bytes);
  EXPECT_EQ(mapped.take_memory().bytes(), 0);
  EXPECT_EQ(views.qkv.data, file.data());
  const auto inside = [&](const void* p) {
    const auto* byte = static_cast<const std::byte*>(p);
    return byte >= file.data() && byte < file.data() + file.bytes();
  };
  for (const void* p :
       {views.embed.data, views.head.data, views.experts.down.data, views.heads.key_absorb[1].data,
        static_cast<const void*>(views.qkv.bias), static_cast<const void*>(views.norm.data())})
    EXPECT_TRUE(inside(p));
  EXPECT_EQ(views.norm[7], drawn(kN, 4)[7]);
  if (GetParam().dtype == DType::bf16) {
    EXPECT_THAT(mapped.narrowed_from(), Not(IsEmpty()));
  }
}

// A change of the packed bytes requires a higher kPackingLevel and other sums here.
TEST_P(PackedWeights, AreTheBytesOfThisLevel) {
  static const std::map<std::string, uint64_t> kSums = {
      {"bf16", 0x598249e62502a1b9},      {"f32", 0x1aabc2b2b3c6cacf},
      {"int8", 0xb006c50efc3b1a3f},      {"int4", 0x19241428409649ca},
      {"fp8_block", 0xfc74787650ad39ad}, {"fp8_channel", 0xd3ab096f7b24685f},
      {"w8a8", 0x2ede6e77cf3b0b59},      {"awq", 0x600f4f2a80bcfcfd},
      {"gptq", 0xbfbc24e58bbf0f62},      {"packed", 0x48988e6bd8bdaac3},
      {"mxfp4", 0x7d7ee1a7ac76a806},     {"mxfp8", 0x726f6a0fe443ee5b},
      {"nvfp4", 0xc39f27031000193f},
  };
  measure(options_);
  WeightLoader loader = *WeightLoader::loading(options_);
  ask(loader);
  const Buffer packed = loader.take_memory();
  Fingerprint sum;
  sum.add({reinterpret_cast<const char*>(packed.data()), static_cast<size_t>(packed.bytes())});
  ASSERT_TRUE(kSums.contains(GetParam().name));
  EXPECT_EQ(sum.value(), kSums.at(GetParam().name))
      << fmt::format("{:#x}", sum.value())
      << ": if other bytes are meant, raise kPackingLevel of packed_file.cc";
}

INSTANTIATE_TEST_SUITE_P(All, PackedWeights, ::testing::ValuesIn(kAsked),
                         [](const auto& one) { return one.param.name; });

TEST(PackedWeightsKey, KnowsAllThatDecidesTheBytes) {
  std::set<uint64_t> seen;
  const auto is_new = [&](WeightLoader::Options options,
                          const std::function<void(WeightLoader&)>& calls) {
    options.seed = 1;
    WeightLoader plan = WeightLoader::measuring(std::move(options));
    calls(plan);
    return seen.insert(plan.fingerprint()).second;
  };
  const auto plain = [](WeightLoader& l) { l.matrix("a.weight", 32, 64); };
  EXPECT_TRUE(is_new({}, plain));
  EXPECT_FALSE(is_new({}, plain));
  EXPECT_TRUE(is_new({.dtype = DType::f32}, plain));
  EXPECT_TRUE(is_new({.quantize = WeightFormat::int8}, plain));
  EXPECT_TRUE(is_new({.quantize = WeightFormat::int4}, plain));
  EXPECT_TRUE(is_new({.stored = {.layout = QuantLayout::gptq, .group = 32}}, plain));
  EXPECT_TRUE(is_new({.stored = {.layout = QuantLayout::awq, .group = 32}}, plain));
  EXPECT_TRUE(is_new({.stored = {.layout = QuantLayout::awq, .group = 64}}, plain));
  EXPECT_TRUE(is_new(
      {.stored = {.layout = QuantLayout::gptq, .group = 32, .gptq_zeros_less_1 = false}}, plain));
  EXPECT_TRUE(
      is_new({.stored = {.layout = QuantLayout::awq, .group = 32, .skipped = {"b"}}}, plain));
  EXPECT_TRUE(is_new({}, [](WeightLoader& l) { l.matrix("b.weight", 32, 64); }));
  EXPECT_TRUE(is_new({}, [](WeightLoader& l) { l.matrix("a.weight", 31, 64); }));
  EXPECT_TRUE(is_new({}, [](WeightLoader& l) { l.matrix("a.weight", 32, 63); }));
  EXPECT_TRUE(is_new({}, [](WeightLoader& l) { l.matrix("a.weight", 32, 64, Bias::present); }));
  EXPECT_TRUE(is_new({}, [](WeightLoader& l) { l.plain_matrix("a.weight", 32, 64); }));
  EXPECT_TRUE(is_new({}, [](WeightLoader& l) { l.vector("a.weight", 32); }));
  EXPECT_TRUE(
      is_new({}, [](WeightLoader& l) { l.swiglu({"g.weight", "u.weight", "d.weight"}, 64, 32); }));
  EXPECT_TRUE(
      is_new({}, [](WeightLoader& l) { l.swiglu({"u.weight", "g.weight", "d.weight"}, 64, 32); }));
  EXPECT_TRUE(is_new({}, [](WeightLoader& l) { l.latent_heads("a.weight", 2, 8, 8, 16); }));
  EXPECT_TRUE(is_new({}, [](WeightLoader& l) { l.latent_heads("a.weight", 2, 4, 12, 16); }));
  EXPECT_TRUE(is_new({}, [](WeightLoader& l) {
    l.vector("a", 32);
    l.vector("b", 32);
  }));
  EXPECT_TRUE(is_new({}, [](WeightLoader& l) {
    l.vector("b", 32);
    l.vector("a", 32);
  }));
}

}  // namespace
}  // namespace hocket
