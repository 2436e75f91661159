// Tests the second tier of the prefix cache: an answer is the same whether its prefix was computed,
// or came back from files after an eviction or a restart, and faults of the files cost nothing but
// time.
#include <fstream>

#include "engine/tests/folder_copy.h"
#include "engine/tests/forced_isa.h"
#include "engine/tests/stored_pages.h"

namespace hocket {
namespace {

using namespace testing;
namespace fs = std::filesystem;

constexpr int kTierPageTokens = 32;

class CacheTierTest : public testing::StoredPagesTest {
 protected:
  ServerSettings settings(bool with_files = true, int num_ranks = 1) const {
    ServerSettings settings = settings_for("models/hocket-tiny-qwen3-moe");
    settings.parallel.ep_size = num_ranks;
    settings.memory.max_total_tokens = 2048;
    settings.model.context_length = 2048;
    settings.compute.num_threads = 1;
    if (!with_files) return settings;
    settings.memory.kv_cache_dir = folder_.string();
    // Nothing of a test may depend on the speed of the disk.
    settings.memory.hicache_storage_prefetch_policy = "wait_complete";
    return settings;
  }
  static CacheTierStats tier_of(Service& service) { return service.engine().stats().tier.value(); }
  static void wait_until_written(Service& service, uint64_t num_pages) {
    EXPECT_TRUE(
        service.read_until([&] { return tier_of(service).pages_written_total >= num_pages; }));
  }
  Answer computed(int seed) {
    Service service(settings(false));
    return ask(service, question(seed));
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      if (is_page(entry)) found.push_back(entry.path());
    std::ranges::sort(found);
    return found;
  }
};

TEST_F(CacheTierTest, APrefixOutlivesARestart) {
  const Answer want = computed(1);
  {
    Service service(settings());
    expect_same(ask(service, question(1)), want);
  }  // all shared pages are written before the engine ends
  EXPECT_EQ(std::ssize(files()), 709 / kTierPageTokens);
  Service again(settings());
  const Answer got = ask(again, question(1));
  expect_same(got, want);
  EXPECT_EQ(got.summary.cached_tokens, 699 / kTierPageTokens * kTierPageTokens);
  EXPECT_EQ(tier_of(again).pages_read_total, uint64_t{699 / kTierPageTokens});
}

TEST_F(CacheTierTest, AnEvictedPrefixComesBack) {
  const Answer want = computed(1);
  Service service(settings());
  ask(service, question(1));
  wait_until_written(service, 700 / kTierPageTokens);
  for (int seed = 2; seed < 6; ++seed) ask(service, question(seed));  // more than the pool holds
  EXPECT_GT(service.engine().stats().scheduler.num_evicted_pages_total, 20u);
  const Answer got = ask(service, question(1));
  expect_same(got, want);
  EXPECT_GT(got.summary.cached_tokens, 600);
  EXPECT_GT(service.engine().stats().scheduler.restored_tokens_total, 0u);
  EXPECT_GT(tier_of(service).tiers[0].saved_seconds_total, 0);
}

TEST_F(CacheTierTest, APoolThatIsFlushedIsReadAgain) {
  Service service(settings());
  const Answer want = ask(service, question(1));
  EXPECT_TRUE(service.engine().flush_cache());
  expect_same(ask(service, question(1)), want);
}

TEST_F(CacheTierTest, NamespacesDoNotShareFiles) {
  Service service(settings());
  ask(service, question(1));
  RequestInput foreign = question(1);
  foreign.cache_namespace = CacheNamespace(7);
  EXPECT_EQ(ask(service, std::move(foreign)).summary.cached_tokens, 0);
  EXPECT_EQ(tier_of(service).pages_read_total, 0u);
}

TEST_F(CacheTierTest, AnotherFormReadsNoFile) {
  {
    Service service(settings());
    ask(service, question(1));
  }
  ServerSettings other = settings();
  other.memory.kv_cache_dtype = "int8";
  Service service(other);
  EXPECT_EQ(ask(service, question(1)).summary.cached_tokens, 0);
  wait_until_written(service, 709 / kTierPageTokens);
  EXPECT_EQ(tier_of(service).files, 709 / kTierPageTokens);  // those that it wrote itself
}

TEST_F(CacheTierTest, EveryDamagedFileIsFoundAndComputedAnew) {
  const Answer want = computed(1);
  {
    Service service(settings());
    ask(service, question(1));
  }
  for (const fs::path& path : files()) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(1000);
    const int byte = file.get();
    file.seekp(1000);
    file.put(static_cast<char>(byte ^ 1));
  }
  Service service(settings());
  const Answer got = ask(service, question(1));
  expect_same(got, want);
  EXPECT_EQ(got.summary.cached_tokens, 0);
  // Pages behind a lost one are not read, but for the one that is read at the same time.
  EXPECT_GE(tier_of(service).damaged_total, 1u);
  EXPECT_LE(tier_of(service).damaged_total, 2u);
}

TEST_F(CacheTierTest, AFolderThatGoesAwayCostsNoAnswer) {
  const Answer want = computed(1);
  Service service(settings());
  fs::remove_all(folder_);
  std::ofstream(folder_) << "a file in its place";
  expect_same(ask(service, question(1)), want);
  EXPECT_TRUE(service.read_until([&] { return tier_of(service).num_left_out() > 0; }));
  EXPECT_EQ(tier_of(service).left_out(UnwrittenReason::write_failed), 1u)
      << "then it is left alone";
  EXPECT_TRUE(service.engine().flush_cache());
  const uint64_t away = tier_of(service).left_out(UnwrittenReason::store_away);
  expect_same(ask(service, question(2)), computed(2));
  EXPECT_EQ(tier_of(service).left_out(UnwrittenReason::write_failed), 1u);
  EXPECT_EQ(tier_of(service).left_out(UnwrittenReason::store_away), away + 709 / kTierPageTokens);
  EXPECT_EQ(tier_of(service).left_out(UnwrittenReason::no_buffer), 0u);
  EXPECT_TRUE(service.engine().flush_cache());
  expect_same(ask(service, question(1)), want);
}

TEST_F(CacheTierTest, RanksShareTheFiles) {
  const Answer want = computed(1);
  for (const auto& [num_writers, num_readers] :
       {std::pair(2, 1), std::pair(4, 1), std::pair(1, 4)}) {
    SCOPED_TRACE(fmt::format("{} ranks, then {}", num_writers, num_readers));
    fs::remove_all(folder_);
    {
      Service service(settings(true, num_writers));
      expect_same(ask(service, question(1)), want);
    }
    // Another number of ranks computes the same bits, so it reads what they wrote.
    Service again(settings(true, num_readers));
    const Answer got = ask(again, question(1));
    expect_same(got, want);
    EXPECT_GT(got.summary.cached_tokens, 600);
  }
}

// Whatever computed a page or a state, its bits are those that another instruction set would
// compute. `ref` computes a prompt in plain loops, and `amx_emulated` each row behind the files, so
// the prompt is short, but long enough for stores, and ends a few rows behind its last border.
TEST_F(CacheTierTest, EveryInstructionSetReadsTheFilesOfTheFirst) {
  for (const Form& form :
       {kBundled, kDelta, kMimo, kKimiLinear, kMla, kInt8Kv, kMlaInt8Kv, kGptOss}) {
    fs::remove_all(folder_);
    ServerSettings s = plain(&form);
    s.memory.kv_cache_dir = folder_.string();
    s.memory.hicache_storage_prefetch_policy = "wait_complete";
    const RequestInput input = question(1, 330);
    Answer want;
    {
      const ForcedIsa forced("ref");
      Service service(s);
      want = ask(service, input);
    }
    for (const Isa isa : kAllIsas) {
      if (!runs_here(isa)) continue;
      const std::string name(isa_name(isa));
      SCOPED_TRACE(fmt::format("{} {}", form.name, name));
      const ForcedIsa forced(name.c_str());
      Service service(s);
      const Answer got = ask(service, input);
      expect_same(got, want);
      EXPECT_GE(got.summary.cached_tokens, 256);
    }
  }
}

TEST_F(CacheTierTest, ManyAtOnceOverASmallPoolGetTheirOwnAnswers) {
  std::vector<Answer> want;
  for (int seed = 1; seed <= 6; ++seed) want.push_back(computed(seed));
  Service service(settings());
  for (int round = 0; round < 3; ++round) {
    std::vector<RequestId> ids;
    for (int seed = 1; seed <= 6; ++seed) {
      const auto id = service.submit(question(seed));
      ASSERT_TRUE(id.has_value());
      ids.push_back(*id);
    }
    ASSERT_TRUE(service.read_all());
    for (size_t i = 0; i < ids.size(); ++i) expect_same(service.answer(ids[i]), want[i]);
    wait_until_written(service, 6 * 700 / kTierPageTokens);
    EXPECT_TRUE(service.engine().flush_cache());  // so that the next round has to read
  }
  EXPECT_GT(service.engine().stats().scheduler.restored_tokens_total, 0u);
}

TEST_F(CacheTierTest, AnAbortedRequestWaitsForNothing) {
  {
    Service service(settings());
    ask(service, question(1));
  }
  Service service(settings());
  const auto id = service.submit(question(1));
  ASSERT_TRUE(id.has_value());
  service.engine().abort(*id);
  EXPECT_TRUE(service.read_all());
  expect_same(ask(service, question(2)), computed(2));
}

// Delta nets with states, latents, keys and values in eight bits, sliding windows; chunks, whose
// tokens are all kept beside a store alone.
TEST_F(CacheTierTest, EveryKindOfCacheComesBackWithTheSameBits) {
  for (const Form& form :
       {kDelta, kKimiLinearInt8, kMla, kInt8Kv, kMimo, kMimoInt8Kv, kGptOss, kGemma4, kLlama4}) {
    SCOPED_TRACE(form.name);
    fs::remove_all(folder_);
    ServerSettings plain = settings_of(form, 1);
    plain.memory.max_total_tokens = plain.model.context_length = 1024;
    ServerSettings s = plain;
    s.memory.kv_cache_dir = folder_.string();
    s.memory.hicache_storage_prefetch_policy = "wait_complete";
    RequestInput input = greedy_input(random_tokens(3, 600), 20);
    input.sampling.ignore_eos = true;
    Answer want;
    {
      Service service(plain);
      ASSERT_TRUE(service.works());
      want = ask(service, input);
    }
    {
      Service service(s);
      expect_same(ask(service, input), want);
    }
    Service again(s);
    const Answer got = ask(again, input);
    expect_same(got, want);
    EXPECT_GE(got.summary.cached_tokens, 500);
    // The answer's next turn continues behind it.
    for (const int token : want.tokens) input.prompt.push_back(TokenId{token});
    for (const int token : random_tokens(4, 30)) input.prompt.push_back(TokenId{token});
    const Answer next = ask(again, input);
    EXPECT_GE(next.summary.cached_tokens, 500);
    Service without(plain);
    expect_same(next, ask(without, input));
  }
}

// A prompt of whole pages, computed at once. The same prompt again goes on one page before its end,
// or one border of 64 tokens with delta nets, because its last token is computed.
TEST_F(CacheTierTest, APromptOfWholePagesComesBackToItsLastPage) {
  const std::pair<Form, int> cases[] = {{kMimo, 928}, {kDelta, 896}, {kKimiLinear, 896}};
  for (const auto& [form, num_cached] : cases) {
    SCOPED_TRACE(form.name);
    fs::remove_all(folder_);
    ServerSettings plain = settings_for(form.model);
    plain.memory.max_total_tokens = plain.model.context_length = 1024;
    plain.scheduler.chunked_prefill_size = -1;
    ServerSettings s = plain;
    s.memory.kv_cache_dir = folder_.string();
    s.memory.hicache_storage_prefetch_policy = "wait_complete";
    const RequestInput input = question(3, 960);
    const Answer want = StoredPagesTest::computed(plain, input);
    {
      Service service(s);
      expect_same(ask(service, input), want);
    }
    Service again(s);
    const Answer got = ask(again, input);
    expect_same(got, want);
    EXPECT_EQ(got.summary.cached_tokens, num_cached);
  }
}

// Pages and states are written when a second request begins with them.
TEST_F(CacheTierTest, ASelectiveFolderHoldsWhatWasUsedTwice) {
  for (const Form& form : {kMoe, kDelta, kMimo}) {
    SCOPED_TRACE(form.name);
    fs::remove_all(folder_);
    const ServerSettings s = selective(form);
    const RequestInput input = question(3, 600);
    Answer want;
    {
      Service service(s);
      want = ask(service, input);
    }
    EXPECT_EQ(files().size(), 0u);
    {
      Service service(s);
      ask(service, input);
      expect_same(ask(service, input), want);
    }
    EXPECT_GE(files().size(), 500u / kTierPageTokens);
    Service again(s);
    const Answer got = ask(again, input);
    expect_same(got, want);
    EXPECT_GE(got.summary.cached_tokens, 500);
  }
}

// Only some borders of a long prompt have a window. A prompt that branches off between two of them
// begins at the one before, from files and from the tree whose windows were evicted.
TEST_F(CacheTierTest, ABranchOfAWindowedPromptBeginsAtAWindowThatIsKept) {
  constexpr int kInterval = 1024;
  const FolderCopy copy(kMimo.model);
  copy.set("max_position_embeddings", 4096);
  ServerSettings plain = settings_for(copy.path);
  plain.memory.max_total_tokens = plain.model.context_length = 4096;
  ServerSettings s = plain;
  s.memory.kv_cache_dir = folder_.string();
  s.memory.hicache_storage_prefetch_policy = "wait_complete";
  const RequestInput whole = question(3, 2400);
  RequestInput branch = whole;
  branch.prompt.resize(1500);
  for (const int token : random_tokens(4, 300)) branch.prompt.push_back(TokenId{token});
  const Answer want = StoredPagesTest::computed(plain, branch);
  {
    Service service(s);
    ask(service, whole);
  }
  Service again(s);
  const Answer got = ask(again, branch);
  expect_same(got, want);
  EXPECT_EQ(got.summary.cached_tokens, kInterval);
  const Answer second = ask(again, branch);
  expect_same(second, want);
  EXPECT_GE(second.summary.cached_tokens, 1790);
  // The pages of the branch that the whole prompt does not have, and the window behind them.
  wait_until_written(again, 1800 / kTierPageTokens - 1500 / kTierPageTokens + 1);
  ASSERT_TRUE(again.engine().flush_cache());
  EXPECT_GE(ask(again, branch).summary.cached_tokens, 1760) << "its own end has a window, too";
}

TEST_F(CacheTierTest, FlagsThatMeanNothingAreRefused) {
  ServerSettings s = settings(false);
  s.memory.kv_cache_dir_gb = 5;
  EXPECT_EQ(Engine::create({.settings = s}).error().param, "kv-cache-dir-gb");
  s = settings();
  s.memory.kv_cache_dir_gb = 1e-30;
  EXPECT_EQ(Engine::create({.settings = s}).error().param, "kv-cache-dir-gb");
  s = settings();
  s.memory.kv_cache_dir = "/dev/null";
  EXPECT_EQ(Engine::create({.settings = s}).error().param, "kv-cache-dir");
  s = settings();
  s.scheduler.disable_radix_cache = true;
  EXPECT_EQ(Engine::create({.settings = s}).error().param, "kv-cache-dir");
  s = settings();
  s.memory.hicache_storage_prefetch_policy = "later";
  EXPECT_EQ(Engine::create({.settings = s}).error().param, "hicache-storage-prefetch-policy");
  s = settings();
  s.memory.hicache_write_policy = "write_back";
  EXPECT_EQ(Engine::create({.settings = s}).error().param, "hicache-write-policy");
}

// There is no model to load, so an error that names the flag came before.
TEST_F(CacheTierTest, FlagsAreRefusedBeforeAModelIsLoaded) {
  ServerSettings none = settings(false);
  none.model.model_path = (folder_ / "absent").string();
  const auto param = [](const ServerSettings& s) {
    return Engine::create({.settings = s}).error().param;
  };
  ServerSettings s = none;
  s.memory.hicache_write_policy = "write_through_selective";
  EXPECT_EQ(param(s), "hicache-write-policy") << "there is no folder";
  s.peers.kv_cache_peers = "127.0.0.1:1";
  EXPECT_EQ(param(s), "hicache-write-policy") << "peers take no pages that are written";
  s = none;
  s.memory.hicache_storage_prefetch_policy = "best_effort";
  EXPECT_EQ(param(s), "hicache-storage-prefetch-policy") << "there is nothing to wait for";
  s.peers.kv_cache_peers = "127.0.0.1:1";
  EXPECT_NE(param(s), "hicache-storage-prefetch-policy");
  s = none;
  s.memory.kv_cache_dir = folder_.string();
  s.memory.hicache_write_policy = "write_sometimes";
  EXPECT_EQ(param(s), "hicache-write-policy");
  s.memory.hicache_write_policy = "write_through_selective";
  EXPECT_NE(param(s), "hicache-write-policy");
}

}  // namespace
}  // namespace hocket
