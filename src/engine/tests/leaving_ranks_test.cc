// Tests ranks that leave a running service of which ranks may be missing.
#include <numeric>

#include "engine/tests/cluster_ranks.h"

namespace hocket {
namespace {

using namespace testing;

class LeavingClusterRanks : public ClusterRanks {
  double drain_s() const override { return to_seconds(kPatience); }
  void change(ServerSettings& settings) const override {
    settings.parallel.tolerate_ranks = 1;
    settings.speculation = {.algorithm = "auto", .num_steps = 2};
  }
};

// A rank without requests goes while the others compute: they have its experts by then, so they
// load none when it has gone, and their answers have the bits of one rank alone.
TEST_P(LeavingClusterRanks, TheOthersTakeItsExpertsOverBeforeItGoes) {
  ASSERT_TRUE(all_met());
  const auto endless = [](int of) {
    RequestInput input = long_one(of);
    input.sampling.max_new_tokens = 1500;
    input.sampling.ignore_eos = true;
    return input;
  };
  std::vector<RequestInput> inputs;
  inputs.push_back(endless(1));
  ServerSettings one = settings_of(kBundled, 1);
  one.model.context_length = 2048;
  const std::vector<Answer> want = alone(one, std::move(inputs));
  const auto id = service(0).submit(endless(1));
  ASSERT_TRUE(id.has_value());
  const Answer& answer = service(0).answer(*id);
  ASSERT_TRUE(service(0).read_until([&] { return !answer.tokens.empty(); }));
  const auto moves = [&] { return service(0).engine().stats().moves->moves_total; };
  EXPECT_EQ(moves(), 0u);
  std::jthread ender([&] { services_[1].reset(); });
  ASSERT_TRUE(service(0).read_until(
      [&] { return answer.done || !service(0).engine().stats().missing_ranks.empty(); }));
  EXPECT_FALSE(answer.done);
  ender.join();
  EXPECT_GT(moves(), 0u);
  ASSERT_TRUE(service(0).read_all());
  // Each layer changed between two steps, that of the module, too; what is loaded for the next
  // epoch does not count here.
  const ModelConfig& model = service(0).engine().info().model;
  EXPECT_EQ(model.num_mtp_loaded, 1);
  EXPECT_EQ(service(0).engine().stats().moves->layers_total,
            static_cast<uint64_t>(model.num_layers + model.num_mtp_loaded));
  ASSERT_NO_FATAL_FAILURE(expect_same(answer, want[0]));
  EXPECT_FALSE(service(0).engine().stats().lost.has_value());
}

// The ranks that are left meet again: a request that comes then waits for that, and is not refused.
TEST_P(LeavingClusterRanks, ARequestThatComesWhileTheOthersMeetWaits) {
  ASSERT_TRUE(all_met());
  // Right after the start no rank may be missing.
  ASSERT_TRUE(service(0).read_until([&] {
    const ClusterView view = service(0).engine().parts().cluster->view();
    return view.began && view.tolerate_ranks > 0;
  }));
  const auto short_one = [] {
    RequestInput input = long_one(1);
    input.sampling.max_new_tokens = 2;
    return input;
  };
  std::vector<RequestInput> inputs;
  inputs.push_back(short_one());
  const std::vector<Answer> want = alone(settings_of(kBundled, 1), std::move(inputs));
  std::vector<RequestId> ids;
  std::jthread ender([&] { services_[1].reset(); });
  bool met_anew = false;
  size_t num_done = 0;
  constexpr size_t kMaxOpen = 256;  // a slow machine may take long to meet; the queue holds 1,024
  ASSERT_TRUE(service(0).read_until([&] {
    const EngineStats stats = service(0).engine().stats();
    met_anew = !stats.missing_ranks.empty();
    while (num_done < ids.size() && service(0).answer(ids[num_done]).done) ++num_done;
    if (ids.size() - num_done >= kMaxOpen) return met_anew;
    const auto id = service(0).submit(short_one());
    if (id) ids.push_back(*id);
    EXPECT_TRUE(id) << id.error().message;
    return met_anew || !id;
  }));
  ender.join();
  EXPECT_TRUE(met_anew);
  ASSERT_TRUE(service(0).read_all());
  for (const RequestId id : ids) {
    const Answer& got = service(0).answer(id);
    ASSERT_EQ(got.summary.finish, want[0].summary.finish) << got.summary.error.message;
    ASSERT_NO_FATAL_FAILURE(expect_same(got, want[0]));
  }
}

// The model's own module drafts in every step, and a rank of which experts it needs may be missing.
class DraftingClusterRanks : public ClusterRanks {
  void change(ServerSettings& settings) const override {
    settings.parallel.tolerate_ranks = 1;
    settings.speculation = {.algorithm = "NEXTN", .num_steps = 3};
  }
};

// A rank goes while the others verify drafts. They draft on without it, and again with it. Each of
// the three times has requests of its own, so none needs to outlast a change of ranks.
TEST_P(DraftingClusterRanks, DraftsGoOnWithoutALostRankAndAfterItsReturn) {
  ASSERT_TRUE(all_met());
  constexpr int kRequests = 4;
  const auto endless = [](int of) {
    RequestInput input = long_one(of);
    input.sampling.max_new_tokens = 200;
    input.sampling.ignore_eos = true;
    return input;
  };
  std::vector<RequestInput> inputs;
  for (int i = 0; i < kRequests; ++i) inputs.push_back(endless(i));
  ServerSettings one = settings_of(kBundled, 1);
  one.model.context_length = 2048;
  const std::vector<Answer> want = alone(one, std::move(inputs));
  const auto held = [&] {
    const EngineStats stats = service(0).engine().stats();
    const auto& by_place = stats.ranks[0].scheduler.accepted_total;
    return std::accumulate(by_place.begin(), by_place.end(), uint64_t{});
  };
  const auto service_of = [&](int i) -> Service& { return service(i % 2 == 0 ? 0 : 2); };
  std::vector<RequestId> ids;
  const auto submit = [&] {
    ids.clear();
    for (int i = 0; i < kRequests; ++i) {
      const auto id = service_of(i).submit(endless(i));
      ASSERT_TRUE(id.has_value()) << id.error().message;
      ids.push_back(*id);
    }
  };
  const auto expect_all = [&] {
    for (int i = 0; i < kRequests; ++i) {
      SCOPED_TRACE(i);
      Service& of = service_of(i);
      const Answer& got = of.answer(ids[static_cast<size_t>(i)]);
      ASSERT_TRUE(of.read_until([&] { return got.done; }));
      ASSERT_EQ(got.summary.finish, want[static_cast<size_t>(i)].summary.finish)
          << got.summary.error.message;
      ASSERT_NO_FATAL_FAILURE(expect_same(got, want[static_cast<size_t>(i)]));
    }
  };
  const auto expect_drafts = [&] {
    const uint64_t before = held();
    ASSERT_NO_FATAL_FAILURE(submit());
    ASSERT_NO_FATAL_FAILURE(expect_all());
    EXPECT_GT(held(), before + 20);
  };
  const auto wait_for = [&](bool all) {
    return service(0).read_until([&] {
      const EngineStats stats = service(0).engine().stats();
      return stats.missing_ranks.empty() == all && !stats.lost;
    });
  };
  ASSERT_TRUE(service(0).read_until([&] {
    const ClusterView view = service(0).engine().parts().cluster->view();
    return view.began && view.tolerate_ranks > 0;
  }));
  const uint64_t before = held();
  ASSERT_NO_FATAL_FAILURE(submit());
  ASSERT_TRUE(service(0).read_until([&] { return held() > before; }));
  services_[1].reset();
  ASSERT_NO_FATAL_FAILURE(expect_all());
  ASSERT_TRUE(wait_for(false));
  ASSERT_NO_FATAL_FAILURE(expect_drafts());
  services_[1] = make(1);
  ASSERT_TRUE(services_[1]->works());
  ASSERT_TRUE(wait_for(true));
  ASSERT_NO_FATAL_FAILURE(expect_drafts());
}

INSTANTIATE_TEST_SUITE_P(Ways, DraftingClusterRanks,
                         ::testing::Values(ClusterCase{"memory3", ucx_shared_memory, 3}),
                         [](const auto& param) { return std::string(param.param.name); });

INSTANTIATE_TEST_SUITE_P(Ways, LeavingClusterRanks,
                         ::testing::Values(ClusterCase{"memory3", ucx_shared_memory, 3},
                                           ClusterCase{"overlapped", ucx_tcp, 3, "on"}),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace hocket
