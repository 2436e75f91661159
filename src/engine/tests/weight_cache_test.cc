// Tests --weight-cache: the first engine packs and keeps the weights, the next ones map them, and
// answers are the same.
#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

#include "base/log.h"
#include "engine/tests/service.h"

namespace hocket {
namespace {

using namespace testing;
namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CacheFolder {
 public:
  CacheFolder() { fs::remove_all(path_); }
  ~CacheFolder() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(path_)) all.push_back(entry.path());
    std::ranges::sort(all);
    return all;
  }

 private:
  fs::path path_ = fs::path(::testing::TempDir()) / fmt::format("hocket-kept-{}", getpid());
};

// Counts the mappings of this process that belong to files below `folder`.
int num_mapped(const std::string& folder) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(folder) != line.npos ? 1 : 0;
  return count;
}

std::vector<RequestInput> greedy_requests() {
  std::vector<RequestInput> inputs;
  for (int i = 0; i < 5; ++i) {
    inputs.push_back(greedy_input(random_tokens(i, 1 + 29 * i), 8));
    inputs.back().sampling.ignore_eos = true;
    inputs.back().sampling.num_top_logprobs = kMaxTopLogprobs;
    inputs.back().sampling.prompt_logprobs_from = 0;
  }
  return inputs;
}

std::vector<std::string> split_words(const EngineInfo& info) {
  std::vector<std::string> all;
  for (const SettingChange& c : info.changes)
    all.push_back(fmt::format("{} {} -> {}: {}", c.flag, c.from, c.to, c.why));
  return all;
}

struct Kept {
  Form form;
  const char* dtype = "auto";
};
const Kept kKept[] = {{kBundled}, {kBundled, "float32"},
                      {kInt8},    {kInt4},
                      {kFp8},     {kMla},
                      {kAwq},     {{"f32_files", kGolden / "qwen3_moe"}}};

class WeightCache : public ::testing::TestWithParam<Kept> {
 protected:
  void SetUp() override { log::set_level(log::Level::error); }
  void TearDown() override { log::set_level(log::Level::info); }
  ServerSettings settings() const {
    ServerSettings s = base_settings(GetParam().form);
    s.model.dtype = GetParam().dtype;
    return s;
  }
  CacheFolder folder_;
};

TEST_P(WeightCache, MappedWeightsGiveTheBitsOfPackedOnes) {
  const auto plain = make_engine(settings());
  const std::vector<Answer> want = run_all(*plain, greedy_requests());
  ServerSettings keeping = settings();
  keeping.model.weight_cache = folder_.path();
  for (const int mapped : {0, 1, 1}) {
    const auto engine = make_engine(keeping);
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(num_mapped(folder_.path()), mapped);
    EXPECT_EQ(split_words(engine->info()), split_words(plain->info()));
    EXPECT_EQ(engine->info().weight_bytes, plain->info().weight_bytes);
    EXPECT_EQ(engine->info().num_pages, plain->info().num_pages);
    expect_same(run_all(*engine, greedy_requests()), want);
    EXPECT_EQ(folder_.files().size(), 1u);
  }
  EXPECT_EQ(num_mapped(folder_.path()), 0);
}

INSTANTIATE_TEST_SUITE_P(Forms, WeightCache, ::testing::ValuesIn(kKept), [](const auto& one) {
  return std::string(one.param.form.name) + (*one.param.dtype == 'f' ? "_in_f32" : "");
});

class WeightCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    log::set_level(log::Level::error);
    settings_.model.weight_cache = folder_.path();
  }
  void TearDown() override { log::set_level(log::Level::info); }
  CacheFolder folder_;
  ServerSettings settings_ = base_settings(kBundled);
};

TEST_F(WeightCacheTest, EveryRankKeepsItsShare) {
  const std::vector<Answer> want = alone(settings_of(kBundled, 1), greedy_requests());
  ServerSettings ranks = settings_of(kBundled, 2);
  ranks.parallel.dp_routing = "round-robin";
  ranks.model.weight_cache = folder_.path();
  for (const int mapped : {0, 2}) {
    Service service(ranks);
    ASSERT_TRUE(service.works());
    EXPECT_EQ(num_mapped(folder_.path()), mapped);
    std::vector<RequestId> ids;
    for (RequestInput& input : greedy_requests()) ids.push_back(*service.submit(std::move(input)));
    ASSERT_TRUE(service.read_all());
    std::vector<Answer> got;
    for (const RequestId id : ids) got.push_back(service.answer(id));
    expect_same(got, want);
    EXPECT_EQ(folder_.files().size(), 2u);
  }
}

TEST_F(WeightCacheTest, FormsStandSideBySide) {
  for (const char* quantization : {"none", "int8", "none", "int8"}) {
    settings_.model.quantization = quantization;
    ASSERT_NE(make_engine(settings_), nullptr);
  }
  EXPECT_EQ(folder_.files().size(), 2u);
}

TEST_F(WeightCacheTest, ADamagedFileIsPackedAnew) {
  const std::vector<Answer> want = run_all(*make_engine(settings_), greedy_requests());
  const fs::path file = folder_.files().at(0);
  const auto size = fs::file_size(file);
  fs::resize_file(file, size / 2);
  EXPECT_EQ(num_mapped(folder_.path()), 0);
  {
    const auto engine = make_engine(settings_);
    EXPECT_EQ(num_mapped(folder_.path()), 0);
    expect_same(run_all(*engine, greedy_requests()), want);
  }
  EXPECT_EQ(fs::file_size(file), size);
  const auto engine = make_engine(settings_);
  EXPECT_EQ(num_mapped(folder_.path()), 1);
  expect_same(run_all(*engine, greedy_requests()), want);
}

TEST_F(WeightCacheTest, WhereItCannotKeepItServesAndSaysSo) {
  std::ofstream(folder_.path()) << "a file, no folder";
  const auto engine = make_engine(settings_);
  ASSERT_NE(engine, nullptr);
  EXPECT_THAT(split_words(engine->info()),
              ::testing::ElementsAre(::testing::AllOf(
                  HasSubstr("--weight-cache " + folder_.path() + " -> none: cannot"),
                  HasSubstr("name another folder"))));
}

TEST_F(WeightCacheTest, RandomWeightsAreNotKept) {
  settings_.model.load_format = "dummy";
  const auto engine = make_engine(settings_);
  ASSERT_NE(engine, nullptr);
  EXPECT_FALSE(fs::exists(folder_.path()));
  EXPECT_THAT(split_words(engine->info()), ::testing::Contains(HasSubstr("random weights")));
}

}  // namespace
}  // namespace hocket
