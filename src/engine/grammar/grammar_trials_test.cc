#include "engine/grammar/grammar_trials.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <latch>
#include <thread>

#include "base/log.h"
#include "engine/grammar/grammar_compiler.h"
#include "engine/grammar/testing.h"

namespace hocket {
namespace {

using namespace testing;
using std::chrono::milliseconds;

// The main function of this program if it is started to serve trials.
TEST(GrammarTrialsProcess, DISABLED_Serves) {
  _exit(serve_grammar_trials());
}
const std::vector<std::string> kCommand = {"/proc/self/exe",
                                           "--gtest_filter=GrammarTrialsProcess.DISABLED_Serves",
                                           "--gtest_also_run_disabled_tests"};

// This schema has some 100,000 states and takes a third of a second or more.
constexpr const char* kSlowSchema = R"({"type":"integer","multipleOf":99991})";

GrammarSpec spec(GrammarKind kind, std::string text) {
  return {.kind = kind, .text = std::move(text), .field = "response_format"};
}

// Makes a small text with a large tree: each schema occurs twice in the next one.
std::string doubling(int levels) {
  std::string defs;
  for (int i = 0; i < levels; ++i) {
    const std::string next =
        fmt::format(R"({{"type":"object","minProperties":1,"$ref":"#/$defs/a{}"}})", i + 1);
    defs +=
        fmt::format(R"("a{}":{{"type":"object","properties":{{"l":{},"r":{}}}}},)", i, next, next);
  }
  return fmt::format(R"({{"$ref":"#/$defs/a0","$defs":{{{}"a{}":{{"type":"object"}}}}}})", defs,
                     levels);
}

class Trials : public ::testing::Test {
 protected:
  void SetUp() override {
    log::set_level(log::Level::error);
    // Else the process of trials would take itself for a piece of this program, and skip its test.
    unsetenv("GTEST_TOTAL_SHARDS");
    unsetenv("GTEST_SHARD_INDEX");
  }
  void TearDown() override { log::set_level(log::Level::info); }

  GrammarTrials::Options options() const {
    return {.command = kCommand,
            .folder = folder_,
            .num_logits = tokenizer_.vocab_size(),
            .end_ids = {*tokenizer_.eos_id()}};
  }
  GrammarCompiler::Options compiler_options() const {
    return {.source = {tokenizer_.handle(), folder_},
            .num_logits = tokenizer_.vocab_size(),
            .end_ids = {*tokenizer_.eos_id()},
            .trials = kCommand};
  }

  const std::filesystem::path folder_ = source_dir() / kBundledFolder;
  const Tokenizer tokenizer_ = *Tokenizer::load(folder_);
};

TEST_F(Trials, EndWhatTakesTooMuch) {
  GrammarTrials trials(options());
  const TrialLimits limits{.time = milliseconds(100), .bytes = 256 << 20};
  const auto tried = [&](const GrammarSpec& grammar, TrialLimits given) {
    const auto verdict = trials.attempt(0, grammar, given);
    EXPECT_TRUE(verdict.has_value()) << describe(verdict.error());
    return verdict.value_or(TrialVerdict::crashed);
  };
  EXPECT_EQ(tried(spec(GrammarKind::regex, "yes|no"), limits), TrialVerdict::fits);
  EXPECT_EQ(tried(spec(GrammarKind::regex, "(a"), limits), TrialVerdict::fits);
  EXPECT_EQ(tried(spec(GrammarKind::json_schema, kSlowSchema), limits), TrialVerdict::too_slow);
  const TrialLimits little{.time = std::chrono::seconds(10), .bytes = 8 << 20};
  EXPECT_EQ(tried(spec(GrammarKind::json_schema, kSlowSchema), little), TrialVerdict::too_large);
  EXPECT_NE(tried(spec(GrammarKind::json_schema, doubling(40)), limits), TrialVerdict::crashed);
  // The next grammar is tried as before.
  EXPECT_EQ(tried(spec(GrammarKind::regex, "yes|no"), limits), TrialVerdict::fits);
}

TEST_F(Trials, OfBothLanesAreTheSame) {
  GrammarTrials trials(options());
  const TrialLimits limits{.time = milliseconds(500), .bytes = 256 << 20};
  for (const int lane : {1, 0, 1})
    EXPECT_EQ(*trials.attempt(lane, spec(GrammarKind::regex, "a+"), limits), TrialVerdict::fits);
}

TEST_F(Trials, SayWhereThereIsNoProcess) {
  GrammarTrials::Options none = options();
  none.command = {"/nowhere/at/all"};
  GrammarTrials trials(none);
  const auto verdict = trials.attempt(0, spec(GrammarKind::regex, "a"), {});
  ASSERT_FALSE(verdict.has_value());
  EXPECT_EQ(verdict.error().code, ErrorCode::internal);
  GrammarTrials::Options leaves = options();
  leaves.command = {"/bin/true"};
  GrammarTrials gone(leaves);
  EXPECT_FALSE(gone.attempt(0, spec(GrammarKind::regex, "a"), {}).has_value());
}

TEST_F(Trials, EndAtOnceWhenTheyAreStopped) {
  GrammarTrials trials(options());
  std::latch begun(1);
  std::jthread asking([&] {
    begun.count_down();
    EXPECT_FALSE(trials
                     .attempt(0, spec(GrammarKind::json_schema, kSlowSchema),
                              {.time = std::chrono::seconds(60), .bytes = size_t{4} << 30})
                     .has_value());
  });
  begun.wait();
  trials.stop();
  EXPECT_FALSE(trials.attempt(1, spec(GrammarKind::regex, "a"), {}).has_value());
}

std::shared_ptr<const GrammarSpec> shared(GrammarKind kind, std::string text) {
  return std::make_shared<const GrammarSpec>(spec(kind, std::move(text)));
}

// A grammar that takes very long does not delay those of other clients, and is refused in the end.
TEST_F(Trials, KeepSlowGrammarsOutOfTheWay) {
  GrammarCompiler::Options options = compiler_options();
  options.quick.time = milliseconds(20);
  options.slow.time = milliseconds(100);
  GrammarCompiler compiler(options);
  const auto refused = shared(GrammarKind::json_schema, kSlowSchema);
  for (int i = 0; i < 2; ++i) {
    std::latch slow_done(1), quick_done(1);
    const auto slow = compiler.enqueue(refused, [&] { slow_done.count_down(); });
    const auto quick =
        compiler.enqueue(shared(GrammarKind::regex, "a+"), [&] { quick_done.count_down(); });
    quick_done.wait();
    EXPECT_TRUE(quick->answer().has_value());
    slow_done.wait();
    const auto answer = slow->answer();
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code, ErrorCode::invalid_request);
    EXPECT_EQ(answer.error().param, "response_format");
    EXPECT_NE(answer.error().message.find("0.1 s of computing"), std::string::npos)
        << answer.error().message;
  }
  EXPECT_EQ(compiler.stats().num_too_slow, 1u);  // the error is cached the second time
  EXPECT_EQ(compiler.stats().num_cache_hits, 2u);
}

TEST_F(Trials, FewMayBeSlowAtATime) {
  GrammarCompiler::Options options = compiler_options();
  options.quick.time = milliseconds(50);
  options.max_slow = 0;
  GrammarCompiler compiler(options);
  std::latch done(1);
  const auto slow =
      compiler.enqueue(shared(GrammarKind::json_schema, kSlowSchema), [&] { done.count_down(); });
  done.wait();
  ASSERT_FALSE(slow->answer().has_value());
  EXPECT_EQ(slow->answer().error().code, ErrorCode::queue_full);
}

TEST_F(Trials, EndWithTheirCompiler) {
  GrammarCompiler::Options options = compiler_options();
  options.quick = {.time = std::chrono::seconds(60), .bytes = size_t{4} << 30};
  std::shared_ptr<GrammarTicket> ticket;
  const TimePoint begin = RealClock().now();
  {
    GrammarCompiler compiler(options);
    // 30,000 optional names take minutes.
    std::string names;
    for (int i = 0; i < 30'000; ++i) names += fmt::format("{}\"p{}\":{{}}", i > 0 ? "," : "", i);
    ticket = compiler.enqueue(
        shared(GrammarKind::json_schema, fmt::format(R"({{"properties":{{{}}}}})", names)), [] {});
  }
  EXPECT_LT(RealClock().now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace hocket
