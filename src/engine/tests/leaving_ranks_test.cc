// Tests ranks that leave a running service of which ranks may be missing.
#include "engine/tests/cluster_ranks.h"

namespace hocket {
namespace {

using namespace testing;

class LeavingClusterRanks : public ClusterRanks {
  double drain_s() const override { return to_seconds(kPatience); }
  void change(ServerSettings& settings) const override { settings.parallel.tolerate_ranks = 1; }
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
  const uint64_t before = moves();
  EXPECT_GT(before, 0u);
  ASSERT_TRUE(service(0).read_all());
  EXPECT_EQ(moves(), before);
  ASSERT_NO_FATAL_FAILURE(expect_same(answer, want[0]));
  EXPECT_FALSE(service(0).engine().stats().lost.has_value());
}

INSTANTIATE_TEST_SUITE_P(Ways, LeavingClusterRanks,
                         ::testing::Values(ClusterCase{"memory3", ucx_shared_memory, 3},
                                           ClusterCase{"overlapped", ucx_tcp, 3, "on"}),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace hocket
