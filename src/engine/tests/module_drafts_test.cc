// Tests drafts of the models' own modules for multi-token prediction: they are those of the
// reference, and change no bit of an answer.
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/clock_testing.h"
#include "base/log.h"
#include "compute/weights/safetensors.h"
#include "engine/check/reference.h"
#include "engine/tests/oracle.h"
#include "engine/tests/service.h"

namespace hocket {
namespace {

using namespace testing;

ServerSettings nextn_settings(const std::filesystem::path& model, int num_drafts) {
  ServerSettings settings = settings_for(model);
  settings.speculation = {.algorithm = num_drafts > 0 ? "NEXTN" : "none", .num_steps = num_drafts};
  return settings;
}

// One prompt of a reference with its trace: how many drafts were accepted in each step.
struct Trace {
  std::vector<int> prompt;
  std::vector<int> greedy, accepted;
};

std::vector<int> ints(const WeightSource& source, const std::string& name) {
  const auto found = source.find(name);
  if (!found || found->type != StoredType::i32) {
    ADD_FAILURE() << name;
    return {};
  }
  std::vector<int32_t> values(static_cast<size_t>(found->bytes) / sizeof(int32_t));
  std::memcpy(values.data(), found->data, found->bytes);
  return {values.begin(), values.end()};
}

std::vector<Trace> traces(const std::string& model, int num_drafts) {
  const auto file = source_dir() / "tests/golden" / model / "reference.safetensors";
  const auto source = SafetensorsFile::open(file);
  std::vector<Trace> found;
  if (!source) {
    ADD_FAILURE() << describe(source.error());
    return found;
  }
  for (const char* name : {"p0", "p1", "p2"})
    found.push_back(
        {.prompt = ints(**source, fmt::format("{}.ids", name)),
         .greedy = ints(**source, fmt::format("{}.spec.greedy_ids", name)),
         .accepted = ints(**source, fmt::format("{}.spec{}.accepted", name, num_drafts))});
  return found;
}

// Runs the prompts together. Returns how many tokens each step with any gave each of them.
std::vector<std::vector<int>> tokens_of_steps(Engine& engine, const std::vector<Trace>& prompts,
                                              std::map<RequestId, Answer>& answers) {
  Outbox outbox(65536);
  std::vector<RequestId> ids;
  for (const Trace& trace : prompts) {
    RequestInput input = greedy_input(trace.prompt, 40);
    input.sampling.ignore_eos = true;
    input.id = Engine::next_request_id();
    ids.push_back(input.id);
    EXPECT_TRUE(engine.submit(std::move(input)).has_value());
  }
  std::vector<std::vector<int>> counts(ids.size());
  std::vector<size_t> before(ids.size());
  while (engine.step(outbox)) {
    collect(outbox, answers);
    for (size_t i = 0; i < ids.size(); ++i)
      if (const size_t now = answers[ids[i]].tokens.size(); now > before[i])
        counts[i].push_back(static_cast<int>(now - std::exchange(before[i], now)));
  }
  return counts;
}

// Writes the config.json of a golden model, changed.
std::filesystem::path changed_config(const char* model, void (*change)(nlohmann::json& config)) {
  std::ifstream in(source_dir() / kGolden / model / "config.json");
  nlohmann::json config = nlohmann::json::parse(in);
  change(config);
  const auto folder =
      std::filesystem::path(::testing::TempDir()) / (std::string("changed_") + model);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << config;
  return folder;
}

// A dense module behind MoE layers alone, and a module with experts behind dense ones, have buffers
// of their own.
TEST(ModuleDraftsForms, AModuleMayBeOfAnotherKindThanAllLayers) {
  const std::filesystem::path folders[] = {
      changed_config("mimo_v2_flash",
                     [](nlohmann::json& config) {
                       for (auto& mark : config["moe_layer_freq"]) mark = 1;
                       for (auto& kind : config["mlp_layer_types"]) kind = "sparse";
                     }),
      changed_config("deepseek_v3_mtp", [](nlohmann::json& config) {
        config["first_k_dense_replace"] = config["num_hidden_layers"];
      })};
  for (const auto& folder : folders) {
    SCOPED_TRACE(folder.string());
    std::vector<int> want;
    for (const int num_drafts : {0, 1, 3}) {
      ServerSettings settings = nextn_settings(folder, num_drafts);
      settings.model.load_format = "dummy";
      const auto engine = make_engine(settings);
      ASSERT_NE(engine, nullptr);
      std::vector<RequestInput> inputs;
      inputs.push_back(greedy_input(random_tokens(1, 40), 20));
      inputs[0].sampling.ignore_eos = true;
      const std::vector<Answer> got = run_all(*engine, std::move(inputs));
      if (num_drafts == 0) want = got[0].tokens;
      EXPECT_EQ(got[0].tokens.size(), 20);
      EXPECT_EQ(got[0].tokens, want);
    }
  }
}

class ModuleDrafts : public ::testing::TestWithParam<const char*> {};

// Greedy answers take as many tokens in each step as in the reference's own speculation. Pages of
// four tokens end within most chains. Where steps overlap, the chunks of the prompts do.
TEST_P(ModuleDrafts, HoldWhereThoseOfTheReferenceDo) {
  log::set_level(log::Level::error);
  for (const auto& [num_drafts, overlaps] :
       {std::pair(1, "off"), std::pair(2, "off"), std::pair(3, "off"), std::pair(2, "on")}) {
    SCOPED_TRACE(fmt::format("{} drafts, overlapped: {}", num_drafts, overlaps));
    ServerSettings settings = nextn_settings(kGolden / GetParam(), num_drafts);
    settings.scheduler.overlap_schedule = overlaps;
    settings.model.dtype = "float32";
    settings.memory.page_size = num_drafts == 1 ? 32 : 4;
    settings.scheduler.chunked_prefill_size = num_drafts == 2 ? 4 : 0;
    const auto engine = make_engine(settings);
    ASSERT_NE(engine, nullptr);
    const std::vector<Trace> want = traces(GetParam(), num_drafts);
    std::map<RequestId, Answer> answers;
    const auto counts = tokens_of_steps(*engine, want, answers);
    int num_accepted = 0;
    auto answer = answers.begin();
    for (size_t i = 0; i < want.size(); ++i, ++answer) {
      std::vector<int> steps = {1};  // the prompt's step has no drafts
      for (const int accepted : want[i].accepted)
        steps.push_back(1 + accepted), num_accepted += accepted;
      ASSERT_GE(counts[i].size(), steps.size());
      EXPECT_EQ(std::vector(counts[i].begin(), counts[i].begin() + std::ssize(steps)), steps) << i;
      EXPECT_TRUE(
          std::equal(want[i].greedy.begin(), want[i].greedy.end(), answer->second.tokens.begin()));
    }
    EXPECT_GT(num_accepted, 5);
    EXPECT_EQ(engine->stats().steps.num_overlapped > 0, overlaps == std::string_view("on"));
  }
  log::set_level(log::Level::info);
}

INSTANTIATE_TEST_SUITE_P(Golden, ModuleDrafts,
                         ::testing::Values("deepseek_v3_mtp", "glm4_moe_mtp", "qwen3_next_mtp",
                                           "qwen3_5_moe_mtp", "mimo_v2_flash_mtp"),
                         [](const auto& param) { return std::string(param.param); });

// Traffic with some long answers, which give the gate time to find that drafts are accepted.
std::vector<RequestInput> traffic_with_long_answers() {
  std::vector<RequestInput> inputs = traffic(14);
  for (int i = 0; i < 4; ++i) {
    inputs.push_back(greedy_input(random_tokens(700 + i, 8), 150));
    inputs.back().sampling.ignore_eos = true;
  }
  return inputs;
}

// A small pool and short chunks, in which requests are retracted.
void limit_memory(ServerSettings& settings, int num_tokens) {
  settings.model.context_length = 192;
  settings.memory.max_total_tokens = num_tokens;
  settings.memory.page_size = 16;
  settings.memory.swa_full_tokens_ratio = 1;
  settings.scheduler.schedule_conservativeness = 0.01;
  settings.scheduler.chunked_prefill_size = 48;
}

void expect_drafts(const Engine& engine, bool drafts, bool gate_chooses) {
  const SchedulerStats stats = engine.stats().scheduler;
  EXPECT_EQ(stats.num_verified_total > 20, drafts) << stats.num_verified_total;
  if (drafts && gate_chooses && !engine.info().model.local_mtp) {
    EXPECT_GE(num_depths(stats), 2);
  }
  EXPECT_EQ(stats.num_private_pages, 0);
}

// Chunks, mixed steps, retractions and shared prefixes, in bf16, greedy and not.
TEST(ModuleDraftsOfTraffic, ChangeNoBit) {
  log::set_level(log::Level::error);
  const std::vector<RequestInput> inputs = traffic_with_long_answers();
  for (const std::filesystem::path& model :
       {kGolden / "deepseek_v3_mtp", kGolden / "glm4_moe_mtp", kGolden / "qwen3_next_mtp",
        kGolden / "qwen3_5_moe_mtp", kGolden / "mimo_v2_flash_mtp", kBundledFolder})
    for (const int num_drafts : {1, 4, 0}) {  // 0: the gate chooses
      SCOPED_TRACE(fmt::format("{}, {} drafts", model.string(), num_drafts));
      std::array<std::vector<Answer>, 2> answers;
      for (const bool drafts : {false, true}) {
        ServerSettings settings = nextn_settings(model, num_drafts);
        settings.speculation.algorithm = drafts ? "NEXTN" : "none";
        if (!drafts) settings.speculation.num_steps = 0;
        limit_memory(settings, num_drafts == 4 ? 256 : 2048);
        settings.scheduler.prefill_policy = num_drafts == 4 ? "mixed" : "prefill-first";
        FakeClock clock;  // by it drafts cost nothing
        const auto engine = make_engine(settings, &clock);
        ASSERT_NE(engine, nullptr);
        answers.at(drafts ? 1 : 0) = run_all(*engine, inputs, &clock);
        expect_drafts(*engine, drafts, num_drafts == 0);
      }
      ASSERT_NO_FATAL_FAILURE(expect_same(answers[1], answers[0]));
    }
  log::set_level(log::Level::info);
}

// The least share of drafts that hold at each position, among those whose drafts before held.
constexpr std::array kMinAccepted = {0.65, 0.7, 0.65, 0.6};

// The questions that the bundled model's file records, all at once, greedy.
std::vector<RequestInput> recorded_questions() {
  std::vector<RequestInput> inputs;
  const auto recorded = read_recorded(source_dir() / kBundledFolder / "expected.json");
  EXPECT_TRUE(recorded.has_value());
  for (const Recorded& one : recorded.value_or(std::vector<Recorded>())) {
    RequestInput input = greedy_input({}, static_cast<int>(one.completion.size()));
    input.prompt = one.prompt;
    input.sampling.num_top_logprobs = 0;
    inputs.push_back(std::move(input));
  }
  return inputs;
}

// Text that the module was trained for: most drafts are accepted, later ones less often, and no bit
// changes.
TEST(ModuleDraftsOfTheBundledModel, HoldInRealAnswers) {
  log::set_level(log::Level::error);
  const auto plain = make_engine(nextn_settings(kBundledFolder, 0));
  ASSERT_NE(plain, nullptr);
  const std::vector<Answer> want = run_all(*plain, recorded_questions());
  for (const int num_drafts : {1, 2, 3, 4}) {
    SCOPED_TRACE(num_drafts);
    const auto engine = make_engine(nextn_settings(kBundledFolder, num_drafts));
    ASSERT_NE(engine, nullptr);
    const std::vector<Answer> answers = run_all(*engine, recorded_questions());
    for (size_t i = 0; i < want.size(); ++i) {
      SCOPED_TRACE(i);
      ASSERT_NO_FATAL_FAILURE(expect_same(answers[i], want[i]));
    }
    const SchedulerStats stats = engine->stats().scheduler;
    for (size_t at = 0; at < static_cast<size_t>(num_drafts); ++at) {
      const auto verified = at == 0 ? stats.drafted_total[0] : stats.accepted_total[at - 1];
      const double accepted =
          static_cast<double>(stats.accepted_total[at]) / static_cast<double>(verified);
      std::printf("%d drafts: at position %zu %.3f of %lu accepted\n", num_drafts, at + 1, accepted,
                  static_cast<unsigned long>(verified));
      EXPECT_GT(accepted, kMinAccepted[at]);
    }
  }
  log::set_level(log::Level::info);
}

// A request of one token has no seat, so the module does not follow its prompt, which the prefix
// cache keeps. A request that begins with it gets no drafts, any other does, and no bit changes.
TEST(ModuleDraftsOfTraffic, ChangeNoBitBehindAPrefixThatWasNotFollowed) {
  log::set_level(log::Level::error);
  for (const std::filesystem::path& model : {kGolden / "deepseek_v3_mtp", kBundledFolder}) {
    SCOPED_TRACE(model.string());
    const std::vector<int> prefix = random_tokens(77, 96);
    const auto input_of = [&](bool begins_with_it, int num_own, int max_new) {
      std::vector<int> prompt = begins_with_it ? prefix : random_tokens(78, 96);
      for (const int token : random_tokens(80 + num_own, num_own)) prompt.push_back(token);
      RequestInput input = greedy_input(prompt, max_new);
      input.sampling.ignore_eos = true;
      return input;
    };
    const std::vector<RequestInput> inputs = {input_of(true, 4, 1), input_of(true, 9, 24),
                                              input_of(false, 9, 24), input_of(false, 20, 24)};
    std::array<std::vector<Answer>, 2> answers;
    std::vector<uint64_t> verified;
    for (const int num_drafts : {0, 2}) {
      ServerSettings settings = nextn_settings(model, num_drafts);
      settings.memory.page_size = 16;
      const auto engine = make_engine(settings);
      ASSERT_NE(engine, nullptr);
      for (const RequestInput& input : inputs) {
        answers.at(num_drafts > 0 ? 1 : 0).push_back(run_all(*engine, {input})[0]);
        const SchedulerStats stats = engine->stats().scheduler;
        if (num_drafts > 0) verified.push_back(stats.num_verified_total);
        EXPECT_EQ(stats.num_private_pages, 0);
      }
      EXPECT_GE(engine->stats().scheduler.cached_tokens_total, 2u * 80);
    }
    ASSERT_NO_FATAL_FAILURE(expect_same(answers[1], answers[0]));
    EXPECT_EQ(verified[1], 0u);
    EXPECT_GT(verified[2], 5u);
    EXPECT_GT(verified[3], verified[2] + 5);
  }
  log::set_level(log::Level::info);
}

// Both drafters at once: each answer has drafts of the one that was right more often.
TEST(ModuleDraftsOfTraffic, BesideDraftsOfTheTextChangeNoBit) {
  log::set_level(log::Level::error);
  const std::vector<RequestInput> inputs = traffic_with_long_answers();
  for (const std::filesystem::path& model :
       {kGolden / "qwen3_next_mtp", kGolden / "mimo_v2_flash_mtp", kBundledFolder})
    for (const int num_drafts : {3, 0}) {  // 0: the gate chooses
      SCOPED_TRACE(fmt::format("{}, {} drafts", model.string(), num_drafts));
      std::array<std::vector<Answer>, 2> answers;
      for (const bool drafts : {false, true}) {
        ServerSettings settings = nextn_settings(model, 0);
        if (drafts) settings.speculation = {.algorithm = "auto", .num_steps = num_drafts};
        limit_memory(settings, 512);
        FakeClock clock;  // by it drafts cost nothing
        const auto engine = make_engine(settings, &clock);
        ASSERT_NE(engine, nullptr);
        EXPECT_EQ(engine->info().speculation.algorithm, drafts ? "auto" : "none");
        answers.at(drafts ? 1 : 0) = run_all(*engine, inputs, &clock);
        expect_drafts(*engine, drafts, num_drafts == 0);
      }
      ASSERT_NO_FATAL_FAILURE(expect_same(answers[1], answers[0]));
    }
  log::set_level(log::Level::info);
}

// One rank has most requests, so others take part in passes of the module without rows.
TEST(ModuleDraftsOfRanks, ChangeNoBit) {
  log::set_level(log::Level::error);
  const std::vector<RequestInput> inputs = traffic_with_long_answers();
  uint64_t num_by_gate = 0;  // a busy machine may keep the gate of one model from drafts
  for (const char* model : {"deepseek_v3_mtp", "qwen3_5_moe_mtp", "mimo_v2_flash_mtp"}) {
    const Form form{model, kGolden / model};
    const std::vector<Answer> want = alone(settings_of(form, 1), inputs);
    const struct {
      int num_ranks, num_drafts;  // 0: the gate chooses
      const char* routing;
      const char* overlap;
    } cases[] = {{1, 2, "round-robin", "auto"}, {2, 1, "round-robin", "two-batch"},
                 {2, 3, "cache-aware", "auto"}, {2, 0, "shortest", "auto"},
                 {4, 2, "round-robin", "none"}, {4, 4, "cache-aware", "single-batch"}};
    for (const auto& one : cases) {
      SCOPED_TRACE(fmt::format("{}, {} ranks, {} drafts", model, one.num_ranks, one.num_drafts));
      ServerSettings settings = settings_of(form, one.num_ranks);
      settings.parallel.dp_routing = one.routing;
      settings.parallel.overlap = one.num_ranks > 1 ? one.overlap : "auto";
      settings.speculation = {.algorithm = "NEXTN", .num_steps = one.num_drafts};
      CallClock clock;
      Service service({.settings = settings, .clock = &clock, .stall_timeout = kPatience});
      ASSERT_TRUE(service.works());
      std::mt19937 random(3);
      std::vector<RequestId> ids;
      for (const RequestInput& input : inputs) {
        ids.push_back(*service.submit(input));
        if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 8));
      }
      ASSERT_TRUE(service.read_all());
      for (size_t i = 0; i < ids.size(); ++i) {
        SCOPED_TRACE(i);
        ASSERT_NO_FATAL_FAILURE(expect_same(service.answer(ids[i]), want[i]));
      }
      const EngineStats stats = service.engine().stats();
      const uint64_t num_verified = stats.scheduler.num_verified_total;
      if (one.num_drafts > 0) {
        EXPECT_GT(num_verified, 20u);
      }
      if (one.num_drafts == 0) num_by_gate += num_verified;
      for (const RankStats& rank : stats.ranks) EXPECT_EQ(rank.scheduler.num_private_pages, 0);
    }
  }
  EXPECT_GT(num_by_gate, 0u);
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
