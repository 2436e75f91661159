// Tests the hash that names stored pages: it follows from every byte of the weights, is the same
// for a copy of the files, and is read from a file as long as nothing changed.
#include "engine/kept_model_hash.h"

#include <fcntl.h>
#include <sys/file.h>

#include <fstream>
#include <future>

#include "base/folder_testing.h"
#include "engine/lockstep/model_hash.h"
#include "engine/tests/folder_copy.h"
#include "engine/tests/stored_pages.h"
#include "engine/tests/tensor_file.h"

namespace hocket {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class KeptModelHashTest : public FolderTest {
 protected:
  static ModelSettings model_at(const fs::path& path) { return settings_for(path).model; }
  static std::string hash(const fs::path& path, HashedWeights bytes) {
    const auto made = hash_weights(model_at(path), bytes);
    EXPECT_TRUE(made) << made.error().message;
    return made.value_or("");
  }
  std::string kept(const fs::path& path, std::chrono::seconds settled = {}) const {
    const auto found = KeptModelHash(folder_, settled).find_or_compute(model_at(path));
    EXPECT_TRUE(found) << found.error().message;
    return found.value_or("");
  }
  fs::path record() const { return folder_ / KeptModelHash::kFile; }
  std::string text() const {
    std::ifstream in(record());
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

TEST_F(KeptModelHashTest, FollowsFromEveryByteOfTheWeights) {
  const FolderCopy copy(source_dir() / kBundledFolder);
  const fs::path file = copy.path / "model.safetensors";
  const std::string samples = hash(copy.path, HashedWeights::samples);
  const std::string all = hash(copy.path, HashedWeights::all);
  EXPECT_EQ(all, hash(source_dir() / kBundledFolder, HashedWeights::all));
  TensorFile tensors(file);
  const auto offsets =
      tensors.header.at("lm_head.weight").at("data_offsets").get<std::vector<size_t>>();
  ASSERT_GT(offsets[1] - offsets[0], size_t{128} << 10) << "a part of it is in no sample";
  const auto data_begin = static_cast<size_t>(fs::file_size(file)) - tensors.data.size();
  for (const size_t at : {offsets[0], offsets[1] - 1}) {
    const auto place = static_cast<std::streamoff>(data_begin + at);
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    const char old = static_cast<char>(bytes.seekg(place).get());
    bytes.seekp(place).put(static_cast<char>(old ^ 1)).flush();
    EXPECT_EQ(hash(copy.path, HashedWeights::samples), samples);
    EXPECT_NE(hash(copy.path, HashedWeights::all), all);
    bytes.seekp(place).put(old).flush();
  }
  EXPECT_EQ(hash(copy.path, HashedWeights::all), all);
}

TEST_F(KeptModelHashTest, IsReadAgainAsLongAsNoFileChanges) {
  const FolderCopy copy(kGolden / "llama_bf16");
  const fs::path file = copy.path / "model.safetensors";
  const std::string computed = kept(copy.path);
  EXPECT_EQ(computed, hash(copy.path, HashedWeights::all));
  std::string line = text();
  ASSERT_EQ(line.substr(line.size() - computed.size() - 1), computed + "\n");
  // Another hash in its place shows that the weights are not read.
  const std::string other(computed.size(), '7');
  std::ofstream(record()) << line.replace(line.size() - other.size() - 1, other.size(), other);
  EXPECT_EQ(kept(copy.path), other);
  // A byte changes, and the time of modification does not.
  const auto when = fs::last_write_time(file);
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    const char old = static_cast<char>(bytes.seekg(-1, std::ios::end).get());
    bytes.seekp(-1, std::ios::end).put(static_cast<char>(old ^ 1));
  }
  fs::last_write_time(file, when);
  const std::string changed = kept(copy.path);
  EXPECT_NE(changed, computed);
  EXPECT_EQ(changed, hash(copy.path, HashedWeights::all));
}

TEST_F(KeptModelHashTest, IsNotKeptOfFilesThatHaveJustChanged) {
  const FolderCopy copy(kGolden / "llama_bf16");
  EXPECT_EQ(kept(copy.path, std::chrono::hours(1)), hash(copy.path, HashedWeights::all));
  EXPECT_FALSE(fs::exists(record()));
}

TEST_F(KeptModelHashTest, AFileOfOthersOrOfOtherTextIsNotBelieved) {
  const FolderCopy copy(kGolden / "llama_bf16");
  const std::string computed = kept(copy.path);
  for (const char* bad : {"", "no hash", "\n\n"}) {
    std::ofstream(record()) << bad;
    EXPECT_EQ(kept(copy.path), computed);
  }
  std::string line = text();
  const std::string other(computed.size(), '7');
  std::ofstream(record()) << line.replace(line.size() - other.size() - 1, other.size(), other);
  fs::permissions(record(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(kept(copy.path), computed);
}

// A line that lost its end would shift the words behind it.
TEST_F(KeptModelHashTest, ADamagedLineDoesNotSpoilTheOthers) {
  const FolderCopy copy(kGolden / "llama_bf16");
  const std::string computed = kept(copy.path);
  const std::string line = text(), state = line.substr(0, 32), other(32, '7');
  const std::string half(16, 'a');
  std::ofstream(record()) << half << "\n" << state << " " << other << "\n";
  EXPECT_EQ(kept(copy.path), other);
  for (const std::string& bad : {state + " " + half, state + " " + std::string(32, 'x'),
                                 state + "  " + other, state + " " + other + "0"}) {
    std::ofstream(record()) << bad << "\n";
    EXPECT_EQ(kept(copy.path), computed) << bad;
  }
}

TEST_F(KeptModelHashTest, AHashThatIsUsedMovesToTheEnd) {
  const FolderCopy copy(kGolden / "llama_bf16");
  kept(copy.path);
  const std::string line = text();
  kept(source_dir() / kGolden / "llama_bf16");
  EXPECT_TRUE(text().starts_with(line));
  kept(copy.path);
  EXPECT_TRUE(text().ends_with(line));
  EXPECT_EQ(text().size(), 2 * line.size());
}

TEST_F(KeptModelHashTest, WhoStartsBesideAProcessThatHashesWaitsForItsHash) {
  const FolderCopy copy(kGolden / "llama_bf16");
  const std::string computed = kept(copy.path);
  const std::string line = text(), other(32, '7');
  fs::remove(record());
  const Fd lock(::open((folder_ / KeptModelHash::kLockFile).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  auto waits = std::async(std::launch::async, [&] { return kept(copy.path); });
  EXPECT_EQ(waits.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  std::ofstream(folder_ / "new") << line.substr(0, 33) << other << "\n";
  fs::rename(folder_ / "new", record());
  EXPECT_EQ(waits.get(), other) << "it was not hashed again";
}

TEST_F(KeptModelHashTest, FilesThatChangeBehindTheHashAreFound) {
  const FolderCopy copy(kGolden / "llama_bf16");
  ServerSettings settings = settings_for(copy.path);
  EXPECT_TRUE(check_unchanged(settings.model, hash_for_pages(settings).value()))
      << "nothing is hashed without pages";
  settings.memory.kv_cache_dir = folder_.string();
  for (const char* name : {"model.safetensors", "config.json"}) {
    const HashedModel hashed = hash_for_pages(settings).value();
    EXPECT_EQ(hashed.weights, hash(copy.path, HashedWeights::all));
    EXPECT_TRUE(check_unchanged(settings.model, hashed));
    std::ofstream(copy.path / name, std::ios::app) << " ";
    const auto changed = check_unchanged(settings.model, hashed);
    ASSERT_FALSE(changed) << name;
    EXPECT_EQ(changed.error().code, ErrorCode::io);
    fs::resize_file(copy.path / name, fs::file_size(copy.path / name) - 1);
  }
}

TEST_F(KeptModelHashTest, TheOldestOfManyModelsIsForgotten) {
  const FolderCopy copy(kGolden / "llama_bf16");
  const fs::path file = copy.path / "model.safetensors";
  const auto when = fs::last_write_time(file);
  for (size_t i = 0; i < KeptModelHash::kMaxModels + 3; ++i) {
    fs::last_write_time(file, when + std::chrono::seconds(i));
    kept(copy.path);
  }
  const std::string lines = text();
  EXPECT_EQ(std::ranges::count(lines, '\n'), std::ssize(lines) / (32 + 1 + 32 + 1));
  EXPECT_EQ(std::ranges::count(lines, '\n'), static_cast<long>(KeptModelHash::kMaxModels));
}

TEST_F(KeptModelHashTest, AFolderThatCannotBeWrittenOnlyCostsTime) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "file") << "in its place";
  const KeptModelHash nowhere(folder_ / "file" / "below", {});
  const fs::path model = source_dir() / kGolden / "llama_bf16";
  EXPECT_EQ(nowhere.find_or_compute(model_at(model)).value(), hash(model, HashedWeights::all));
  EXPECT_EQ(KeptModelHash("", {}).find_or_compute(model_at(model)).value(),
            hash(model, HashedWeights::all));
}

class HashedPagesTest : public StoredPagesTest {};

// One byte of the weights is another, in no sample that ranks compare, and no time tells.
TEST_F(HashedPagesTest, AnotherByteOfTheWeightsReadsNoPageAndACopyReadsAll) {
  const FolderCopy copy(source_dir() / kBundledFolder);
  ServerSettings bundled = plain();
  bundled.memory.kv_cache_dir = folder_.string();
  bundled.memory.hicache_storage_prefetch_policy = "wait_complete";
  ServerSettings copied = bundled;
  copied.model.model_path = copy.path.string();
  {
    Service service(bundled);
    ask(service, question(1));
  }
  {
    Service service(copied);
    EXPECT_EQ(ask(service, question(1)).summary.cached_tokens, 699 / 32 * 32);
  }
  const fs::path file = copy.path / "model.safetensors";
  const auto when = fs::last_write_time(file);
  TensorFile tensors(file);
  *tensors.bytes_of("lm_head.weight") ^= 1;
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(-static_cast<std::streamoff>(tensors.data.size()), std::ios::end) << tensors.data;
  }
  fs::last_write_time(file, when);
  ServerSettings alone = copied;
  alone.memory = plain().memory;
  const Answer want = computed(alone, question(1));
  Service service(copied);
  const Answer got = ask(service, question(1));
  expect_same(got, want);
  EXPECT_EQ(got.summary.cached_tokens, 0);
}

}  // namespace
}  // namespace hocket
