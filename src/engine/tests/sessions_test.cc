// Tests sessions by name: what is kept comes back after evictions and restarts with the same
// answer, and a session of one client is none of another's.
#include <algorithm>
#include <fstream>
#include <future>
#include <map>
#include <ranges>

#include "engine/tests/stored_pages.h"

namespace hocket {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class SessionCallsTest : public testing::StoredPagesTest {
 protected:
  ServerSettings settings(bool with_files = true, int num_ranks = 1) const {
    ServerSettings s = settings_for("models/hocket-tiny-qwen3-moe");
    s.parallel.ep_size = num_ranks;
    s.memory.max_total_tokens = 3072;  // one session keeps a quarter
    s.model.context_length = 2048;
    s.compute.num_threads = 1;
    if (!with_files) return s;
    s.memory.hicache_storage_prefetch_policy = "wait_complete";
    s.memory.kv_cache_dir = folder_.string();
    return s;
  }
  static RequestInput question(int seed, uint64_t session, int num_tokens = 700) {
    RequestInput input = StoredPagesTest::question(seed, num_tokens);
    input.session = session;
    return input;
  }
  static Result<SessionResult> change(Service& service, SessionAction action, uint64_t session,
                                      uint64_t name) {
    return service.engine().change_session({.action = action, .session = session, .name = name});
  }

  // Returns the one folder of pages; hashes of models are files beside it.
  fs::path pages_folder() const {
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.is_directory()) return entry.path();
    return {};
  }

  // Runs a request that takes all pages of a pool of 1,024 tokens.
  static void evict_all(Service& service) {
    ask(service, greedy_input(random_tokens(99, 1000), 10));
  }
};

TEST_F(SessionCallsTest, ASessionStaysInMemoryWhileOthersPass) {
  Service service(settings(false));
  const Answer first = ask(service, question(1, 7));
  for (int seed = 2; seed < 7; ++seed) ask(service, question(seed, 0));  // more than the pool holds
  const Answer again = ask(service, question(1, 7));
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_EQ(again.logprobs, first.logprobs);
  EXPECT_EQ(again.summary.cached_tokens, 699);
  EXPECT_EQ(service.engine().stats().scheduler.num_sessions, 1);
  ASSERT_TRUE(change(service, SessionAction::end, 7, 7).has_value());
  EXPECT_EQ(change(service, SessionAction::end, 7, 7).error().code, ErrorCode::not_found);
  for (int seed = 2; seed < 7; ++seed) ask(service, question(seed, 0));
  EXPECT_EQ(ask(service, question(1, 0)).summary.cached_tokens, 0);
}

TEST_F(SessionCallsTest, ASavedSessionComesBackAfterARestart) {
  for (const int num_ranks : {1, 2}) {
    fs::remove_all(folder_);
    Answer want;
    {
      Service service(settings(true, num_ranks));
      want = ask(service, question(1, 7));
      const auto saved = change(service, SessionAction::save, 7, 70);
      ASSERT_TRUE(saved.has_value()) << describe(saved.error());
      EXPECT_EQ(saved->tokens, 704);
      EXPECT_EQ(change(service, SessionAction::save, 8, 70).error().code, ErrorCode::not_found);
    }
    Service service(settings(true, num_ranks));
    EXPECT_EQ(change(service, SessionAction::restore, 7, 71).error().code, ErrorCode::not_found);
    const auto restored = change(service, SessionAction::restore, 9, 70);
    ASSERT_TRUE(restored.has_value()) << describe(restored.error());
    EXPECT_EQ(restored->tokens, 704);
    const Answer got = ask(service, question(1, 9));
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.logprobs, want.logprobs);
    EXPECT_EQ(got.summary.cached_tokens, 699);
    ASSERT_TRUE(change(service, SessionAction::end, 9, 70).has_value());
    EXPECT_EQ(change(service, SessionAction::restore, 9, 70).error().code, ErrorCode::not_found);
  }
}

TEST_F(SessionCallsTest, FindingASessionChangesNothing) {
  using enum SessionAction;
  Service service(settings());
  ask(service, question(1, 7));
  EXPECT_EQ(change(service, find, 8, 8).error().code, ErrorCode::not_found);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(change(service, find, 7, 7).value().tokens, 704);
  EXPECT_EQ(change(service, find_saved, 7, 7).error().code, ErrorCode::not_found);
  ASSERT_TRUE(change(service, save, 7, 7).has_value());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(change(service, find_saved, 7, 7).value().tokens, 704);
  ASSERT_TRUE(change(service, end, 7, 7).has_value());
  for (const SessionAction action : {find, find_saved})
    EXPECT_EQ(change(service, action, 7, 7).error().code, ErrorCode::not_found);
}

// Pages that were not written when they were computed are written by the save.
TEST_F(SessionCallsTest, ASaveWritesWhatASelectiveFolderLeftOut) {
  for (const Form& form : {kMoe, kDelta, kMimo}) {
    SCOPED_TRACE(form.name);
    fs::remove_all(folder_);
    const ServerSettings s = selective(form);
    const RequestInput input = question(3, 7, 450);
    Answer want;
    {
      Service service(s);
      want = ask(service, input);
      const auto saved = change(service, SessionAction::save, 7, 7);
      ASSERT_TRUE(saved.has_value()) << describe(saved.error());
      EXPECT_GE(saved->tokens, 384);
    }
    Service service(s);
    ASSERT_TRUE(change(service, SessionAction::restore, 7, 7).has_value());
    const Answer got = ask(service, input);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.logprobs, want.logprobs);
    EXPECT_GE(got.summary.cached_tokens, 384);
  }
}

// A pool in which another request evicts the end of a session, which no file has.
TEST_F(SessionCallsTest, ASaveTakesTheFirstPagesThatAreLeft) {
  ServerSettings s = settings();
  s.memory.hicache_write_policy = "write_through_selective";
  s.memory.max_total_tokens = s.model.context_length = 1024;
  Answer want;
  int64_t num_saved = 0;
  {
    Service service(s);
    ask(service, question(1, 7));
    evict_all(service);
    const auto nothing = change(service, SessionAction::save, 7, 7);
    ASSERT_FALSE(nothing.has_value());
    EXPECT_EQ(nothing.error().code, ErrorCode::not_found) << describe(nothing.error());
    want = ask(service, question(1, 7));
    ask(service, question(2, 0));
    const auto saved = change(service, SessionAction::save, 7, 7);
    ASSERT_TRUE(saved.has_value()) << describe(saved.error());
    num_saved = saved->tokens;
    EXPECT_GE(num_saved, 256) << "a session keeps a quarter of the pool";
    EXPECT_LT(num_saved, 704);
  }
  Service service(s);
  const auto restored = change(service, SessionAction::restore, 7, 7);
  ASSERT_TRUE(restored.has_value()) << describe(restored.error());
  EXPECT_EQ(restored->tokens, num_saved);
  const Answer got = ask(service, question(1, 7));
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.logprobs, want.logprobs);
  EXPECT_EQ(got.summary.cached_tokens, num_saved);
}

// Files have all pages of the session, and its states until they are deleted.
TEST_F(SessionCallsTest, AModelWithStatesSavesUpToTheLastOne) {
  ServerSettings s = settings_of(kDelta, 1);
  s.memory.kv_cache_dir = folder_.string();
  s.memory.hicache_storage_prefetch_policy = "wait_complete";
  s.memory.max_total_tokens = s.model.context_length = 1024;
  RequestInput input = greedy_input(random_tokens(3, 450), 70);
  input.sampling.ignore_eos = true;
  input.session = 7;
  Service service(s);
  const Answer want = ask(service, input);
  evict_all(service);
  const auto saved = change(service, SessionAction::save, 7, 7);
  ASSERT_TRUE(saved.has_value()) << describe(saved.error());
  ASSERT_TRUE(service.engine().flush_cache());
  const auto restored = change(service, SessionAction::restore, 7, 7);
  ASSERT_TRUE(restored.has_value()) << describe(restored.error());
  EXPECT_EQ(restored->tokens, saved->tokens);
  RequestInput next = input;
  for (const int token : want.tokens) next.prompt.push_back(TokenId{token});
  const Answer got = ask(service, next);
  EXPECT_EQ(got.summary.cached_tokens, saved->tokens);

  evict_all(service);
  std::map<uintmax_t, std::vector<fs::path>> by_size;
  for (const auto& entry : fs::recursive_directory_iterator(folder_))
    if (is_page(entry) && entry.path().parent_path().parent_path().filename() != "sessions")
      by_size[entry.file_size()].push_back(entry.path());
  ASSERT_EQ(by_size.size(), 2u) << "pages and states";
  const auto& states =
      std::ranges::min(by_size | std::views::values, {}, &std::vector<fs::path>::size);
  for (const fs::path& state : states) fs::remove(state);
  const auto failed = change(service, SessionAction::save, 7, 7);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, ErrorCode::not_found) << describe(failed.error());
}

// A disk that takes no page: files stand where folders of pages would be made.
TEST_F(SessionCallsTest, ASaveThatCannotBeWholeFailsAndLeavesTheOldOne) {
  ServerSettings s = settings();
  s.memory.hicache_write_policy = "write_through_selective";
  {
    Service service(s);
    ask(service, question(1, 7));
    ASSERT_TRUE(change(service, SessionAction::save, 7, 7).has_value());
    RequestInput longer = question(1, 7);
    for (const int token : random_tokens(5, 200)) longer.prompt.push_back(TokenId{token});
    ask(service, longer);
    const fs::path pages = pages_folder();
    for (int i = 0; i < 256; ++i)
      if (const fs::path place = pages / fmt::format("{:02x}", i); !fs::exists(place))
        std::ofstream(place) << "no folder";
    const auto failed = change(service, SessionAction::save, 7, 7);
    ASSERT_FALSE(failed.has_value());
    EXPECT_EQ(failed.error().code, ErrorCode::io);
    EXPECT_NE(failed.error().message.find("not saved"), std::string::npos);
    for (const std::string& text : {failed.error().message, failed.error().fix})
      EXPECT_EQ(text.find(folder_.filename().string()), std::string::npos) << text;
  }
  Service service(s);
  const auto restored = change(service, SessionAction::restore, 7, 7);
  ASSERT_TRUE(restored.has_value()) << describe(restored.error());
  EXPECT_EQ(restored->tokens, 704);
}

// An operator, or another process at its limit, has deleted pages that memory has still.
TEST_F(SessionCallsTest, PagesWhoseFilesWereDeletedAreWrittenByTheNextSave) {
  Service service(settings());
  ask(service, question(1, 7));
  ASSERT_TRUE(change(service, SessionAction::save, 7, 7).has_value());
  std::vector<fs::path> pages;
  for (const auto& entry : fs::recursive_directory_iterator(folder_))
    if (is_page(entry) && entry.path().parent_path().parent_path().filename() != "sessions")
      pages.push_back(entry.path());
  EXPECT_EQ(pages.size(), 22u);
  for (const fs::path& page : pages) fs::remove(page);
  const auto failed = change(service, SessionAction::save, 7, 7);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, ErrorCode::io) << describe(failed.error());
  const auto again = change(service, SessionAction::save, 7, 7);
  ASSERT_TRUE(again.has_value()) << describe(again.error());
  EXPECT_EQ(again->tokens, 704);
}

TEST_F(SessionCallsTest, ARestoreOfNothingSaysSoAndLeavesTheSession) {
  Service service(settings());
  ask(service, question(1, 7));
  ASSERT_TRUE(change(service, SessionAction::save, 7, 70).has_value());
  ASSERT_TRUE(service.engine().flush_cache());
  const fs::path pages = pages_folder();
  for (const auto& entry : fs::directory_iterator(pages))
    if (entry.path().filename() != "sessions") fs::remove_all(entry.path());
  ask(service, question(2, 7));
  const auto nothing = change(service, SessionAction::restore, 7, 70);
  ASSERT_FALSE(nothing.has_value());
  EXPECT_EQ(nothing.error().code, ErrorCode::not_found);
  EXPECT_NE(nothing.error().message.find("nothing was restored"), std::string::npos);
  EXPECT_EQ(service.engine().stats().scheduler.num_sessions, 1);
  const auto ended = change(service, SessionAction::end, 7, 7);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->tokens, 704);
}

// Whichever is the first: no save that ends behind an end brings the file back.
TEST_F(SessionCallsTest, AnEndAndASaveWaitForEachOther) {
  Service service(settings());
  for (int seed = 1; seed <= 5; ++seed) {
    ask(service, question(seed, 7));
    std::vector<std::future<Result<SessionResult>>> asked;
    for (const SessionAction action : {SessionAction::save, SessionAction::end})
      asked.push_back(std::async(std::launch::async, [&service, action] {
        return service.engine().change_session({.action = action, .session = 7, .name = 7});
      }));
    const auto saved = asked[0].get(), ended = asked[1].get();
    if (!saved) {
      EXPECT_EQ(saved.error().code, ErrorCode::not_found) << describe(saved.error());
    }
    EXPECT_TRUE(ended.has_value()) << describe(ended.error());
    EXPECT_EQ(change(service, SessionAction::restore, 7, 7).error().code, ErrorCode::not_found);
  }
}

TEST_F(SessionCallsTest, ADamagedListIsNotFoundAndWithoutAFolderNothingIsSaved) {
  {
    Service service(settings());
    ask(service, question(1, 7));
    ASSERT_TRUE(change(service, SessionAction::save, 7, 7).has_value());
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.path().parent_path().parent_path().filename() != "sessions") continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(200);
      file.put('x');
    }
    EXPECT_EQ(change(service, SessionAction::restore, 7, 7).error().code, ErrorCode::not_found);
  }
  Service service(settings(false));
  ask(service, question(1, 7));
  EXPECT_EQ(change(service, SessionAction::save, 7, 7).error().code, ErrorCode::invalid_request);
}

}  // namespace
}  // namespace hocket
