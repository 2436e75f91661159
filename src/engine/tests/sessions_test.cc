// Tests sessions by name: what is kept comes back after evictions and restarts with the same
// answer, and a session of one client is none of another's.
#include <fstream>

#include "engine/tests/service.h"

namespace hocket {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class SessionCallsTest : public ::testing::Test {
 protected:
  SessionCallsTest() : folder_(fs::path(::testing::TempDir()) / "sessions_test") {
    fs::remove_all(folder_);
  }
  ~SessionCallsTest() override { fs::remove_all(folder_); }

  ServerSettings settings(bool with_files = true, int num_ranks = 1) const {
    ServerSettings s = settings_for("models/hocket-tiny-qwen3-moe");
    s.parallel.ep_size = num_ranks;
    s.memory.max_total_tokens = s.model.context_length = 2048;
    s.compute.num_threads = 1;
    s.memory.hicache_storage_prefetch_policy = "wait_complete";
    if (with_files) s.memory.kv_cache_dir = folder_.string();
    return s;
  }
  static RequestInput question(int seed, uint64_t session) {
    RequestInput input = greedy_input(random_tokens(seed, 700), 10);
    input.sampling.ignore_eos = true;
    input.sampling.num_top_logprobs = 2;
    input.session = session;
    return input;
  }
  static Answer ask(Service& service, RequestInput input) {
    const auto id = service.submit(std::move(input));
    EXPECT_TRUE(id.has_value());
    EXPECT_TRUE(service.read_all());
    return service.answer(*id);
  }
  static Result<SessionDone> change(Service& service, SessionAction action, uint64_t session,
                                    uint64_t name) {
    return service.engine().change_session({.action = action, .session = session, .name = name});
  }

  const fs::path folder_;
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

// Pages that were not written when they were computed are written by the save.
TEST_F(SessionCallsTest, ASaveWritesWhatASelectiveFolderLeftOut) {
  for (const Form& form : {kMoe, kDelta}) {
    SCOPED_TRACE(form.name);
    fs::remove_all(folder_);
    ServerSettings s = settings_of(form, 1);
    s.memory.kv_cache_dir = folder_.string();
    s.memory.hicache_write_policy = "write_through_selective";
    s.memory.hicache_storage_prefetch_policy = "wait_complete";
    s.memory.max_total_tokens = s.model.context_length = 1024;
    RequestInput input = greedy_input(random_tokens(3, 450), 10);
    input.sampling.ignore_eos = true;
    input.sampling.num_top_logprobs = 2;
    input.session = 7;
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

TEST_F(SessionCallsTest, ADamagedListIsNotFoundAndWithoutAFolderNothingIsSaved) {
  {
    Service service(settings());
    ask(service, question(1, 7));
    ASSERT_TRUE(change(service, SessionAction::save, 7, 7).has_value());
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.path().parent_path().filename() != "sessions") continue;
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
