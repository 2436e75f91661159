#include "engine/grammar/grammar_compiler.h"

#include <gtest/gtest.h>

#include <latch>

#include "base/log.h"
#include "engine/grammar/testing.h"

namespace hocket {
namespace {

using namespace testing;

std::shared_ptr<const GrammarSpec> shared_spec(GrammarKind kind, std::string text) {
  return std::make_shared<const GrammarSpec>(
      GrammarSpec{.kind = kind, .text = std::move(text), .field = "regex"});
}

class Compiler : public ::testing::Test {
 protected:
  void SetUp() override { log::set_level(log::Level::error); }
  void TearDown() override { log::set_level(log::Level::info); }

  GrammarCompiler::Options options() const {
    const auto folder = source_dir() / kBundledFolder;
    return {.source = {tokenizer_.handle(), folder},
            .num_logits = tokenizer_.vocab_size(),
            .end_ids = {*tokenizer_.eos_id()}};
  }
  Result<std::shared_ptr<AnswerGrammar>> settled(GrammarCompiler& compiler, GrammarKind kind,
                                                 std::string text, uint64_t client = 0) {
    std::latch done(1);
    const auto ticket =
        compiler.enqueue(shared_spec(kind, std::move(text)), [&] { done.count_down(); }, client);
    done.wait();
    return ticket->answer();
  }

  const Tokenizer tokenizer_ = *Tokenizer::load(source_dir() / kBundledFolder);
};

TEST_F(Compiler, MakesGrammarsAndRemembersThem) {
  GrammarCompiler compiler(options());
  for (int i = 0; i < 3; ++i) {
    const auto made = settled(compiler, GrammarKind::regex, "a|b");
    ASSERT_TRUE(made.has_value()) << made.error().message;
    EXPECT_FALSE((*made)->mask().empty());
  }
  // The same text is another grammar in each language.
  EXPECT_FALSE(settled(compiler, GrammarKind::json_schema, "a|b").has_value());
  const GrammarStats stats = compiler.stats();
  EXPECT_EQ(stats.num_compiled, 1u);
  EXPECT_EQ(stats.num_failed, 1u);
  EXPECT_EQ(stats.num_cache_hits, 2u);
  EXPECT_EQ(stats.num_cached, 2);
  EXPECT_GT(stats.vocabulary_seconds, 0);
  EXPECT_GT(stats.compile_seconds_total, 0);
  EXPECT_EQ(stats.num_masks_ahead, 3u);
  EXPECT_EQ(stats.num_masks_late, 0u);
}

TEST_F(Compiler, RemembersFailuresToo) {
  GrammarCompiler compiler(options());
  for (int i = 0; i < 2; ++i) {
    const auto made = settled(compiler, GrammarKind::regex, "(a");
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code, ErrorCode::invalid_request);
    EXPECT_EQ(made.error().param, "regex");
  }
  EXPECT_EQ(compiler.stats().num_failed, 1u);
  EXPECT_EQ(compiler.stats().num_cache_hits, 1u);
}

TEST_F(Compiler, ForgetsWhatWasUsedLongestAgo) {
  GrammarCompiler::Options few = options();
  few.max_cached = 2;
  GrammarCompiler compiler(few);
  for (const char* text : {"a", "b", "a", "c", "a", "b"})
    ASSERT_TRUE(settled(compiler, GrammarKind::regex, text).has_value());
  EXPECT_EQ(compiler.stats().num_cache_hits, 2u);  // a, twice; b had to go for c
  EXPECT_EQ(compiler.stats().num_cached, 2);
  GrammarCompiler::Options small = options();
  small.max_cached_bytes = 10;
  GrammarCompiler tight(small);
  for (const char* text : {"abcdefghijkl", "abcdefghijkl", "b", "abcdefghijkl"})
    ASSERT_TRUE(settled(tight, GrammarKind::regex, text).has_value());
  EXPECT_EQ(tight.stats().num_cache_hits, 1u);
}

TEST_F(Compiler, OneClientsAnswersHoldNoMoreThanItsShare) {
  GrammarCompiler::Options shared = options();
  shared.max_client_bytes = 1 << 20;
  GrammarCompiler compiler(shared);
  const auto begun = [&](uint64_t client) {
    return settled(compiler, GrammarKind::regex, "a|b", client);
  };
  std::vector<std::shared_ptr<AnswerGrammar>> held;
  auto last = begun(1);
  for (; last && held.size() < 10'000; last = begun(1)) held.push_back(*last);
  ASSERT_FALSE(last.has_value()) << held.size();
  EXPECT_FALSE(held.empty());
  EXPECT_EQ(last.error().code, ErrorCode::out_of_memory);
  EXPECT_TRUE(last.error().message.contains("of this client's answers"));
  EXPECT_TRUE(begun(2).has_value());
  held.clear();
  EXPECT_TRUE(begun(1).has_value());
}

// A ticket that its holder drops costs nothing, and one that stays waits for a bounded time in a
// bounded queue.
TEST_F(Compiler, BoundsWhatWaits) {
  GrammarCompiler::Options tight = options();
  tight.max_waiting = 2;
  tight.patience = Duration(0);
  GrammarCompiler compiler(tight);
  std::latch begun(1), go_on(1);
  const auto first = compiler.enqueue(shared_spec(GrammarKind::regex, "a"), [&] {
    begun.count_down();
    go_on.wait();
  });
  begun.wait();  // its thread is delayed
  EXPECT_TRUE(first->answer().has_value());
  auto second = compiler.enqueue(shared_spec(GrammarKind::regex, "b"), [] {}, 1);
  const auto late = second->answer();
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, ErrorCode::timed_out);
  const auto third = compiler.enqueue(shared_spec(GrammarKind::regex, "c"), [] {}, 2);
  const auto fourth = compiler.enqueue(shared_spec(GrammarKind::regex, "d"), [] {}, 3);
  ASSERT_FALSE(fourth->answer().has_value());
  EXPECT_EQ(fourth->answer().error().code, ErrorCode::queue_full);
  EXPECT_EQ(fourth->answer().error().message, "2 grammars wait to be compiled already");
  second.reset();
  std::latch done(2);
  const auto mine = compiler.enqueue(shared_spec(GrammarKind::regex, "f"), [] {}, 2);
  ASSERT_FALSE(mine->answer().has_value()) << "there is room, but not for more of one client";
  EXPECT_EQ(mine->answer().error().code, ErrorCode::queue_full);
  EXPECT_EQ(mine->answer().error().message,
            "1 grammars of this client wait to be compiled already");
  const auto fifth =
      compiler.enqueue(shared_spec(GrammarKind::regex, "e"), [&] { done.count_down(); }, 3);
  // Its request was taken by a rank that was lost.
  const auto taken_over = compiler.enqueue(
      shared_spec(GrammarKind::regex, "g"), [&] { done.count_down(); }, 2,
      GrammarCompiler::Admission::unlimited);
  go_on.count_down();
  done.wait();
  EXPECT_TRUE(third->answer().has_value());
  EXPECT_TRUE(fifth->answer().has_value());
  EXPECT_TRUE(taken_over->answer().has_value());
  EXPECT_EQ(compiler.stats().num_compiled, 4u);  // a, c, e, g
}

TEST_F(Compiler, ClientsTakeTurns) {
  GrammarCompiler compiler(options());
  std::latch begun(1), go_on(1), done(6);
  const auto first = compiler.enqueue(shared_spec(GrammarKind::regex, "first"), [&] {
    begun.count_down();
    go_on.wait();
  });
  begun.wait();  // its thread is delayed
  std::string order;
  std::vector<std::shared_ptr<GrammarTicket>> tickets;
  for (const auto& [client, name] :
       {std::pair{1, 'a'}, {1, 'b'}, {1, 'c'}, {2, 'd'}, {3, 'e'}, {2, 'f'}})
    tickets.push_back(compiler.enqueue(
        shared_spec(GrammarKind::regex, std::string(1, name)),
        [&order, &done, name] {
          order += name;
          done.count_down();
        },
        static_cast<uint64_t>(client)));
  go_on.count_down();
  done.wait();
  EXPECT_EQ(order, "adebfc");
}

TEST_F(Compiler, CountsThoseWhoLeft) {
  GrammarCompiler compiler(options());
  std::latch begun(1), go_on(1), done(1);
  const auto first = compiler.enqueue(shared_spec(GrammarKind::regex, "a"), [&] {
    begun.count_down();
    go_on.wait();
  });
  begun.wait();
  (void)compiler.enqueue(shared_spec(GrammarKind::regex, "b"), [] {});
  const auto last =
      compiler.enqueue(shared_spec(GrammarKind::regex, "c"), [&] { done.count_down(); });
  go_on.count_down();
  done.wait();
  EXPECT_EQ(compiler.stats().num_cancelled, 1u);
  EXPECT_EQ(compiler.stats().num_compiled, 2u);
}

TEST_F(Compiler, SaysWhyThereIsNoVocabulary) {
  GrammarCompiler::Options none = options();
  none.source.folder = "/nowhere";
  GrammarCompiler compiler(none);
  const auto made = settled(compiler, GrammarKind::regex, "a");
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, ErrorCode::invalid_request);
  EXPECT_FALSE(made.error().message.contains("nowhere")) << made.error().message;
}

}  // namespace
}  // namespace hocket
