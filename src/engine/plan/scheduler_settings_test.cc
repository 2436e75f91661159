// Tests that flags that contradict each other, or would change nothing, are refused by name.
#include "engine/plan/scheduler_settings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>

namespace hocket {
namespace {

bool is_refused(const auto& result, std::initializer_list<std::string_view> names) {
  if (result || result.error().code != ErrorCode::bad_value) return false;
  const std::string text = describe(result.error());
  for (const std::string_view name : names)
    if (text.find(name) == std::string::npos) return false;
  return true;
}

ServerSettings with(SchedulerSettings scheduler) {
  return {.scheduler = std::move(scheduler)};
}

TEST(ChoosePrefill, FromItsNameOrTheOldFlag) {
  const auto policy = [](SchedulerSettings s) { return choose_prefill(with(s)).value().policy; };
  EXPECT_EQ(policy({.prefill_policy = "prefill-first"}), PrefillPolicy::prefill_first);
  EXPECT_EQ(policy({.enable_mixed_chunk = true}), PrefillPolicy::mixed);
  EXPECT_EQ(policy({.prefill_policy = "mixed", .enable_mixed_chunk = true}), PrefillPolicy::mixed);
  EXPECT_EQ(policy({.prefill_policy = "latency", .itl_slo_ms = 0.5}), PrefillPolicy::latency);
}

TEST(ChoosePrefill, AutoIsLatencyWithHalfForPrompts) {
  EXPECT_EQ(choose_prefill({}).value().policy, PrefillPolicy::latency);
  EXPECT_EQ(choose_prefill({}).value().prompt_share, 0.5);
  EXPECT_EQ(choose_prefill(with({.itl_slo_ms = 20})).value().policy, PrefillPolicy::latency);
  EXPECT_EQ(choose_prefill(with({.prefill_policy = "latency"})).value().prompt_share, 0);
}

TEST(ChoosePrefill, AutoIsPrefillFirstForWholePromptsAndSeveralRanks) {
  EXPECT_EQ(choose_prefill(with({.chunked_prefill_size = -1})).value().policy,
            PrefillPolicy::prefill_first);
  ServerSettings ranks;
  ranks.parallel.ep_size = 2;
  EXPECT_EQ(choose_prefill(ranks).value().policy, PrefillPolicy::prefill_first);
  ranks.scheduler.itl_slo_ms = 20;
  EXPECT_TRUE(is_refused(choose_prefill(ranks), {"--itl-slo-ms", "prefill-first"}));
}

TEST(ChoosePrefill, RefusesNonsense) {
  EXPECT_TRUE(is_refused(choose_prefill(with({.prefill_policy = "fast"})),
                         {"prefill-first", "mixed", "latency"}));
  EXPECT_TRUE(
      is_refused(choose_prefill(with({.prefill_policy = "latency", .enable_mixed_chunk = true})),
                 {"--prefill-policy latency", "--enable-mixed-chunk"}));
  for (const double goal : {0.0, -3.0, std::nan("")})
    EXPECT_TRUE(is_refused(choose_prefill(with({.prefill_policy = "latency", .itl_slo_ms = goal})),
                           {"--itl-slo-ms"}));
  EXPECT_TRUE(is_refused(choose_prefill(with({.prefill_policy = "mixed", .itl_slo_ms = 50})),
                         {"--itl-slo-ms", "latency"}));
}

TEST(ChooseOverlapSchedule, IsMeasuredUnlessAskedFor) {
  const auto chosen = [](const SchedulerSettings& s) { return choose_overlap_schedule(s).value(); };
  EXPECT_EQ(chosen({}), OverlapSchedule::measured);
  EXPECT_EQ(chosen({.overlap_schedule = "on"}), OverlapSchedule::on);
  EXPECT_EQ(chosen({.overlap_schedule = "off"}), OverlapSchedule::off);
  EXPECT_EQ(chosen({.disable_overlap_schedule = true}), OverlapSchedule::off);
  EXPECT_EQ(chosen({.overlap_schedule = "off", .disable_overlap_schedule = true}),
            OverlapSchedule::off);
}

TEST(ChooseOverlapSchedule, RefusesNonsense) {
  EXPECT_TRUE(is_refused(choose_overlap_schedule({.overlap_schedule = "yes"}),
                         {"--overlap-schedule", "auto, on, off"}));
  EXPECT_TRUE(is_refused(
      choose_overlap_schedule({.overlap_schedule = "on", .disable_overlap_schedule = true}),
      {"--overlap-schedule on", "--disable-overlap-schedule"}));
}

ServerSettings speculating(SpeculationSettings speculation) {
  return {.speculation = std::move(speculation)};
}

TEST(ChooseSpeculation, ByNameAndByEitherCount) {
  EXPECT_EQ(choose_speculation(speculating({.algorithm = "none"}), {})->max_drafts, 0);
  for (const char* algorithm : {"auto", "NGRAM"}) {
    const auto open = choose_speculation(speculating({.algorithm = algorithm}), {});
    ASSERT_TRUE(open.has_value());
    EXPECT_EQ(open->max_drafts, kMaxDrafts);
    EXPECT_EQ(open->fixed, std::nullopt);
    for (const SpeculationSettings& three :
         {SpeculationSettings{.algorithm = algorithm, .num_steps = 3},
          SpeculationSettings{.algorithm = algorithm, .num_draft_tokens = 4},
          SpeculationSettings{.algorithm = algorithm, .num_steps = 3, .num_draft_tokens = 4}}) {
      const auto fixed = choose_speculation(speculating(three), {});
      ASSERT_TRUE(fixed.has_value());
      EXPECT_EQ(fixed->max_drafts, 3);
      EXPECT_EQ(fixed->fixed, 3);
    }
  }
}

TEST(ChooseSpeculation, ByTheModelsOwnModule) {
  ServerSettings settings = speculating({.algorithm = "NEXTN"});
  settings.parallel.ep_size = 2;
  EXPECT_EQ(choose_speculation(settings, {})->fixed, std::nullopt);
  EXPECT_EQ(choose_speculation(settings, {})->max_drafts, kMaxDrafts);
  EXPECT_TRUE(choose_speculation(settings, {})->by_module);
  settings.speculation.num_steps = 3;
  EXPECT_EQ(choose_speculation(settings, {})->fixed, 3);
  const auto local = choose_speculation(settings, {.local_mtp = true});  // it cannot be chained
  EXPECT_EQ(local->fixed, 1);
  EXPECT_EQ(local->max_drafts, 1);
  ModelConfig three{.num_mtp_layers = 3};
  three.local_mtp = true;
  EXPECT_EQ(choose_speculation(settings, three)->fixed, 3);
  settings.speculation.num_steps = 0;
  EXPECT_EQ(choose_speculation(settings, three)->max_drafts, 3);
}

TEST(ChooseSpeculation, AutomaticallyByTheModuleIfTheFilesHaveOne) {
  const ServerSettings settings = speculating({.algorithm = "auto"});
  const ModelConfig without{.architecture = "DeepseekV3ForCausalLM"};
  EXPECT_EQ(choose_speculation(settings, without)->algorithm, "NGRAM");
  ModelConfig with = without;
  with.num_mtp_layers = 1;
  const auto both = choose_speculation(settings, with);
  EXPECT_EQ(both->algorithm, "auto");
  EXPECT_TRUE(both->by_module && both->by_text);
  with.local_mtp = true;  // text gives more drafts than such a module
  EXPECT_EQ(choose_speculation(settings, with)->max_drafts, kMaxDrafts);
  ServerSettings overlapped = settings;
  overlapped.scheduler.overlap_schedule = "on";
  EXPECT_EQ(choose_speculation(overlapped, with)->algorithm, "auto");
  ServerSettings tolerant = settings;
  tolerant.parallel.tolerate_ranks = 1;
  EXPECT_EQ(choose_speculation(tolerant, with)->algorithm, "auto");
  with.architecture = "Qwen3ForCausalLM";  // a family without names for them
  EXPECT_FALSE(choose_speculation(settings, with)->by_module);
}

TEST(ChooseSpeculation, KnowsSglangsWordsInAnyCase) {
  ModelConfig with{.architecture = "DeepseekV3ForCausalLM"};
  with.num_mtp_layers = 1;
  const struct {
    const char *asked, *meant;
    size_t num_notes = 0;
  } kNames[] = {{"EAGLE", "NEXTN", 1}, {"eagle", "NEXTN", 1}, {"NextN", "NEXTN"},
                {"ngram", "NGRAM"},    {"Auto", "auto"},      {"NONE", "none"}};
  for (const auto& [asked, meant, num_notes] : kNames) {
    SCOPED_TRACE(asked);
    const SpeculationSettings s{.algorithm = asked};
    const auto choice = choose_speculation(speculating(s), with);
    ASSERT_TRUE(choice.has_value()) << describe(choice.error());
    EXPECT_EQ(choice->algorithm, meant);
    EXPECT_EQ(choice->by_module, choice->algorithm != "none" && choice->algorithm != "NGRAM");
    EXPECT_EQ(speculation_notes(s).size(), num_notes);
  }
  const SpeculationSettings s{.algorithm = "EAGLE", .num_steps = 3, .eagle_topk = 1};
  EXPECT_EQ(choose_speculation(speculating(s), with)->fixed, 3);
  EXPECT_EQ(speculation_notes(s).size(), 2u);
}

TEST(ChooseSpeculation, IsTheSameWhereStepsOverlap) {
  for (const char* algorithm : {"NGRAM", "NEXTN"}) {
    ServerSettings settings = speculating({.algorithm = algorithm, .num_steps = 3});
    settings.scheduler.overlap_schedule = "on";
    const auto choice = choose_speculation(settings, {});
    ASSERT_TRUE(choice.has_value());
    EXPECT_EQ(choice->algorithm, algorithm);
    EXPECT_EQ(choice->fixed, 3);
  }
}

TEST(ChooseSpeculation, RefusesNonsense) {
  const auto refused = [](SpeculationSettings s, std::initializer_list<std::string_view> names) {
    return is_refused(choose_speculation(speculating(std::move(s)), {}), names);
  };
  EXPECT_TRUE(refused({.algorithm = "EAGLE3"}, {"--speculative-algorithm EAGLE3", "NGRAM"}));
  EXPECT_TRUE(refused({.algorithm = "EAGLE"}, {"--speculative-algorithm EAGLE", "draft models"}));
  EXPECT_TRUE(refused({.algorithm = "NGRAM", .eagle_topk = 4},
                      {"--speculative-eagle-topk 4", "one chain"}));
  EXPECT_TRUE(refused({.algorithm = "none", .eagle_topk = 1}, {"--speculative-eagle-topk"}));
  EXPECT_TRUE(refused({.algorithm = "none", .num_steps = 2}, {"--speculative-num-steps", "none"}));
  for (const int steps : {-1, kMaxDrafts + 1})
    EXPECT_TRUE(
        refused({.algorithm = "NGRAM", .num_steps = steps}, {"--speculative-num-steps", "0 to 8"}));
  for (const int tokens : {-1, 1, kMaxDrafts + 2})
    EXPECT_TRUE(refused({.algorithm = "NGRAM", .num_draft_tokens = tokens},
                        {"--speculative-num-draft-tokens", "2 to 9"}));
  EXPECT_TRUE(refused({.algorithm = "NGRAM", .num_steps = 3, .num_draft_tokens = 3},
                      {"--speculative-num-draft-tokens 3", "--speculative-num-steps 3"}));
}

TEST(SchedulerOptionsOf, TheFlags) {
  ServerSettings settings;
  SchedulerSettings& s = settings.scheduler;
  s.prefill_policy = "latency";
  s.itl_slo_ms = 25;
  s.max_chunked_requests = 4;
  s.max_overtaken = 17;
  const MemoryPlan plan{.context_length = 1024,
                        .max_running_requests = 9,
                        .max_decode_rows = 12,
                        .chunk_tokens = 64,
                        .max_prefill_tokens = 256,
                        .num_pages = 77};
  EngineInfo info;
  info.page_tokens = 32;
  const auto options = scheduler_options(settings, plan, info);
  ASSERT_TRUE(options.has_value()) << describe(options.error());
  EXPECT_EQ(options->prefill_policy, PrefillPolicy::latency);
  EXPECT_EQ(options->itl_goal, std::chrono::milliseconds(25));
  EXPECT_EQ(options->max_chunked_requests, 4);
  EXPECT_EQ(options->max_overtaken, 17);
  EXPECT_EQ(options->num_pages, 77);
  EXPECT_EQ(options->max_decode_rows, 12);

  s.chunked_prefill_size = -1;
  EXPECT_TRUE(is_refused(scheduler_options(settings, plan, info),
                         {"--max-chunked-requests 4", "--chunked-prefill-size"}));
  s.max_chunked_requests = 0;
  EXPECT_TRUE(is_refused(scheduler_options(settings, plan, info), {"--max-chunked-requests"}));
}

// States of a full KV cache take half of the slots that running requests leave.
TEST(SchedulerOptionsOf, TheIntervalOfKeptStates) {
  const auto interval = [](int num_pages, int num_states) {
    const MemoryPlan plan{.max_running_requests = 10,
                          .chunk_tokens = 2048,
                          .max_prefill_tokens = 4096,
                          .num_pages = num_pages,
                          .num_states = num_states,
                          .num_blocks = 10};
    EngineInfo info;
    info.page_tokens = 32;
    return scheduler_options({}, plan, info).value().cached_state_interval;
  };
  EXPECT_EQ(interval(4000, 20 + 100), 2560);
  EXPECT_EQ(interval(4000, 20 + 99), 2624) << "a multiple of 64";
  EXPECT_EQ(interval(4000, 20 + 1000), 512) << "at least";
  EXPECT_EQ(interval(4000, 20 + 2), 8192) << "at most";
  EXPECT_EQ(interval(4000, 20), 8192) << "running requests may need all slots";
}

}  // namespace
}  // namespace hocket
