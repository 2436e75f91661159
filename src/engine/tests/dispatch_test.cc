// Rows sent to experts and back as int8, and experts placed by a file: several ranks must give each
// request the same bits as one rank.
#include <unistd.h>

#include <fstream>
#include <functional>
#include <thread>

#include "base/log.h"
#include "engine/tests/forms.h"

namespace hocket {
namespace {

using namespace testing;
using std::chrono::milliseconds;

class DispatchForms : public ::testing::Test {
 protected:
  void SetUp() override { log::set_level(log::Level::error); }
  void TearDown() override { log::set_level(log::Level::info); }
};

ServerSettings settings_of(const Form& form, int num_ranks, const char* dispatch_dtype) {
  ServerSettings settings = base_settings(form);
  settings.parallel.ep_size = num_ranks;
  settings.parallel.dp_routing = "round-robin";
  settings.parallel.dispatch_dtype = dispatch_dtype;
  settings.compute.num_threads = 1;
  settings.scheduler.chunked_prefill_size = 64;
  return settings;
}

std::vector<RequestInput> dispatched_requests() {
  std::vector<RequestInput> inputs;
  for (int i = 0; i < 6; ++i) {
    inputs.push_back(greedy_input(random_tokens(i, 1 + 31 * i), 8));
    inputs.back().sampling.ignore_eos = true;
    inputs.back().sampling.num_top_logprobs = 2;
    inputs.back().sampling.prompt_logprobs_from = 0;
  }
  return inputs;
}

// Runs the requests on a started engine, whose ranks step on their own threads.
std::vector<Answer> run_started(const ServerSettings& settings) {
  const auto engine = make_engine(settings);
  if (!engine) return {};
  Outbox outbox(65536);
  engine->start(outbox);
  std::vector<RequestId> ids;
  std::map<RequestId, Answer> answers;
  for (RequestInput& input : dispatched_requests()) {
    input.id = Engine::next_request_id();
    ids.push_back(input.id);
    const auto submitted = engine->submit(std::move(input));
    EXPECT_TRUE(submitted) << describe(submitted.error());
  }
  const TimePoint deadline = RealClock().now() + std::chrono::seconds(60);
  const auto done = [&](RequestId id) { return answers[id].done; };
  while (!std::ranges::all_of(ids, done) && RealClock().now() < deadline) {
    collect(outbox, answers);
    std::this_thread::sleep_for(milliseconds(1));
  }
  engine->stop();
  std::vector<Answer> result;
  for (const RequestId id : ids) {
    EXPECT_TRUE(answers[id].done);
    EXPECT_EQ(answers[id].summary.error.message, "");
    result.push_back(std::move(answers[id]));
  }
  return result;
}

void expect_same_answers(const ServerSettings& settings, const std::vector<Answer>& want) {
  const std::vector<Answer> got = run_started(settings);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(fmt::format("{} ranks, request {}", settings.parallel.ep_size, i));
    ASSERT_NO_FATAL_FAILURE(expect_same(got[i], want[i]));
  }
}

bool any_bit_differs(const std::vector<Answer>& a, const std::vector<Answer>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t t = 1; t < a[i].prompt_logprobs.size(); ++t)
      if (bits(a[i].prompt_logprobs[t].logprob) != bits(b[i].prompt_logprobs[t].logprob))
        return true;
  return false;
}

TEST_F(DispatchForms, Int8SumsAreAlikeOnAnyNumberOfRanks) {
  for (const Form& form : {kBundled, kMla, kAwq})
    for (const char* const dispatch : {"auto", "int8"}) {
      SCOPED_TRACE(form.name);
      const auto settings = [&](int num_ranks) {
        ServerSettings s = settings_of(form, num_ranks, dispatch);
        s.parallel.combine_dtype = "int8";
        return s;
      };
      const std::vector<Answer> want = alone(settings(1), dispatched_requests());
      for (const int num_ranks : {2, 3, 4, 8}) expect_same_answers(settings(num_ranks), want);
      EXPECT_TRUE(
          any_bit_differs(want, alone(settings_of(form, 1, dispatch), dispatched_requests())));
    }
}

// kAwq rounds rows once more, by the groups of its integer weights.
TEST_F(DispatchForms, Int8IsAlikeOnAnyNumberOfRanks) {
  for (const Form& form : {kBundled, kMla, kAwq}) {
    SCOPED_TRACE(form.name);
    const std::vector<Answer> want = alone(settings_of(form, 1, "int8"), dispatched_requests());
    for (const int num_ranks : {2, 3, 4})
      expect_same_answers(settings_of(form, num_ranks, "int8"), want);
    EXPECT_TRUE(any_bit_differs(want, alone(settings_of(form, 1, "auto"), dispatched_requests())));
  }
}

TEST_F(DispatchForms, Int8IsPartOfTheName) {
  EXPECT_EQ(form_of(make_engine(settings_of(kBundled, 1, "int8"))->info()),
            "bfloat16-groups-16-dispatch-int8");
  ServerSettings both = settings_of(kBundled, 1, "int8");
  both.parallel.combine_dtype = "int8";
  EXPECT_EQ(form_of(make_engine(both)->info()), "bfloat16-groups-16-dispatch-int8-combine-int8");
  EXPECT_EQ(form_of(make_engine(settings_of(kBundled, 1, "bfloat16"))->info()),
            "bfloat16-groups-16");
  ServerSettings settings = settings_of(kMoe, 2, "int8");
  settings.model.dtype = "float32";
  EXPECT_EQ(form_of(make_engine(settings)->info()), "float32-groups-8-dispatch-int8");
  settings.parallel.dispatch_dtype = "auto";
  EXPECT_EQ(form_of(make_engine(settings)->info()), "float32-groups-8");
}

// A file with the experts of the ranks, one rank after the other.
struct PlacesFile {
  explicit PlacesFile(const std::vector<int>& experts) {
    std::string list;
    for (const int expert : experts) list += fmt::format("{}{}", list.empty() ? "" : ", ", expert);
    std::ofstream(path) << R"({"physical_to_logical_map": [[)" << list << "]]}";
  }
  ~PlacesFile() { std::filesystem::remove(path); }
  std::string path = fmt::format("{}/hocket-experts-{}.json", ::testing::TempDir(), getpid());
};

TEST_F(DispatchForms, ExpertsArePlacedByAFile) {
  ServerSettings settings = settings_of(kBundled, 1, "auto");
  const int num_experts = make_engine(settings)->info().model.moe.num_experts;
  const std::vector<Answer> want = alone(settings, dispatched_requests());
  settings.parallel.ep_size = 2;
  // The odd experts come first.
  std::vector<int> places;
  for (int i = 0; i < num_experts; ++i) places.push_back((2 * i + 1) % (num_experts + 1));
  const PlacesFile file(places);
  settings.parallel.init_expert_location = file.path;
  expect_same_answers(settings, want);
  const auto engine = make_engine(settings);
  for (const int expert : engine->info().ranks[0].experts) EXPECT_EQ(expert % 2, 1);
  EXPECT_EQ(std::ssize(engine->info().ranks[0].experts), num_experts / 2);
}

TEST_F(DispatchForms, ReplicasChangeNoBit) {
  for (const Form& form : {kBundled, kMla, kAwq}) {
    SCOPED_TRACE(form.name);
    ServerSettings settings = settings_of(form, 1, "auto");
    const std::vector<Answer> want = alone(settings, dispatched_requests());
    for (const int num_ranks : {2, 4})
      for (const int each : {1, 2}) {
        settings.parallel.ep_size = num_ranks;
        settings.parallel.ep_num_redundant_experts = std::to_string(each * num_ranks);
        expect_same_answers(settings, want);
      }
  }
}

// Counts of a record place experts by any algorithm, in each layer by its own.
TEST_F(DispatchForms, RecordedCountsPlaceExperts) {
  ServerSettings settings = settings_of(kBundled, 1, "auto");
  settings.parallel.expert_distribution_recorder_mode = "stat";
  settings.scheduler.disable_radix_cache = true;
  const auto recording = make_engine(settings);
  const std::vector<Answer> want = run_all(*recording, dispatched_requests());
  const ExpertRecord record = *recording->parts().expert_stats->take();
  ASSERT_GT(record.num_tokens, 0u);
  const std::string path = fmt::format("{}/hocket-counts-{}.json", ::testing::TempDir(), getpid());
  std::ofstream out(path);
  for (int layer = 0; layer < record.num_layers; ++layer) {
    out << (layer == 0 ? R"({"logical_count": [[)" : ", [");
    for (int e = 0; e < record.num_experts; ++e)
      out << (e == 0 ? "" : ", ") << record.counts[layer * record.num_experts + e];
    out << "]";
  }
  out << "]}";
  out.close();
  settings.parallel.ep_size = 4;
  settings.parallel.init_expert_location = path;
  settings.parallel.ep_num_redundant_experts = "4";
  for (const char* const algorithm : {"auto", "global", "hierarchical"}) {
    SCOPED_TRACE(algorithm);
    settings.parallel.eplb_algorithm = algorithm;
    expect_same_answers(settings, want);
  }
  std::filesystem::remove(path);
}

TEST_F(DispatchForms, WhereHierarchicalIsGlobalTheServerSaysSo) {
  ServerSettings settings = settings_of(kBundled, 2, "auto");
  settings.parallel.eplb_algorithm = "hierarchical";
  for (const auto& [nnodes, why] :
       {std::pair{0, "all ranks are on one host"}, {2, "this model has no expert groups"}}) {
    settings.parallel.nnodes = nnodes;
    const std::vector<SettingChange> changes = make_engine(settings)->info().changes;
    const auto found = std::ranges::find(changes, "--eplb-algorithm", &SettingChange::flag);
    ASSERT_NE(found, changes.end());
    EXPECT_EQ(found->to, "global");
    EXPECT_EQ(found->why, why);
  }
}

// auto takes what fits in an eighth of the memory that is left, and says so.
TEST_F(DispatchForms, ReplicasTakeTheMemoryThatIsLeft) {
  ServerSettings settings = settings_of(kBundled, 2, "auto");
  settings.parallel.ep_num_redundant_experts = "auto";
  settings.memory.max_total_tokens = 4096;
  const auto engine = make_engine(settings);
  EXPECT_EQ(std::ssize(engine->info().ranks[0].experts), engine->info().model.moe.num_experts);
  EXPECT_TRUE(std::ranges::any_of(engine->info().changes, [](const SettingChange& change) {
    return change.flag == "--ep-num-redundant-experts" && change.to == "16";
  }));
}

TEST_F(DispatchForms, ClearErrors) {
  const auto expect = [](const Form& form, const std::function<void(ServerSettings&)>& change,
                         const char* part) {
    ServerSettings settings = settings_of(form, 2, "auto");
    change(settings);
    const auto made = Engine::create({.settings = settings});
    ASSERT_FALSE(made.has_value()) << part;
    EXPECT_NE(describe(made.error()).find(part), std::string::npos) << describe(made.error());
  };
  const auto dispatch = [](const char* dtype) {
    return [dtype](ServerSettings& s) { s.parallel.dispatch_dtype = dtype; };
  };
  expect(kBundled, dispatch("fp8"), "--dispatch-dtype fp8 is not one of auto, bfloat16, int8");
  expect(
      kBundled, [](ServerSettings& s) { s.parallel.combine_dtype = "fp8"; },
      "--combine-dtype fp8 is not one of auto, bfloat16, int8");
  expect(kBundled, dispatch("float32"), "--dispatch-dtype float32 is not one of");
  expect(
      kDense,
      [](ServerSettings& s) {
        s.parallel.ep_size = s.compute.combine_groups = 1;
        s.parallel.dispatch_dtype = "int8";
      },
      "but Qwen3ForCausalLM has none");
  const PlacesFile file({0, 2, 1, 3, 4, 4});
  const auto places = [&](ServerSettings& s) { s.parallel.init_expert_location = file.path; };
  expect(kBundled, places, "expert 5 is nowhere");
  const auto redundant = [](const char* number) {
    return [number](ServerSettings& s) { s.parallel.ep_num_redundant_experts = number; };
  };
  expect(kBundled, redundant("3"), "a multiple of 2, up to 16");
  expect(kBundled, redundant("18"), "a multiple of 2, up to 16");
  expect(kBundled, redundant("some"), "some is no number");
  expect(
      kBundled,
      [](ServerSettings& s) {
        s.parallel.ep_num_redundant_experts = "2";
        s.compute.combine_groups = 8;
      },
      "some experts are on several");
  expect(
      kBundled,
      [&](ServerSettings& s) {
        places(s);
        s.parallel.ep_size = 1;
      },
      "places experts on ranks, but there is one");
  expect(
      kBundled, [](ServerSettings& s) { s.parallel.init_expert_location = "/nowhere.json"; },
      "cannot read /nowhere.json");
}

}  // namespace
}  // namespace hocket
