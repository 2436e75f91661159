// Tests the rows of the model's own module in pages that a peer computes.
#include "engine/tests/peer_services.h"

namespace hocket {
namespace {

using namespace testing;

using PeerModulesTest = testing::PeerServicesTest;

// The module's rows move with the pages, also those of the prompt's last chunk, which is all of it
// here. So the module drafts as if the prompt had been computed here.
TEST_F(PeerModulesTest, TheModuleDraftsBehindAPromptThatAPeerComputes) {
  for (const Form& form : {kBundled, kMimo}) {
    SCOPED_TRACE(form.name);
    std::filesystem::remove_all(folder_);
    ServerSettings drafting = plain(&form);
    drafting.scheduler.chunked_prefill_size = -1;
    drafting.speculation = {.algorithm = "NEXTN", .num_steps = 2};
    RequestInput input = question(1, 600);
    input.sampling.max_new_tokens = 30;
    const Answer want = computed(plain(&form), input);
    Service prefill(offering(drafting, "prefill"));
    ASSERT_TRUE(prefill.works());
    Service decode(decoding(drafting, port_));
    ASSERT_TRUE(decode.works());
    const Answer got = ask(decode, input);
    expect_same(got, want);
    EXPECT_GE(got.summary.cached_tokens, 500);
    EXPECT_GT(decode.engine().stats().scheduler.num_verified_total, 5u);
  }
}

// There is room for one token behind it, and the module's rows of the last chunk do not come.
TEST_F(PeerModulesTest, APromptThatFillsTheContextIsComputedByAPeer) {
  ServerSettings drafting = plain();
  drafting.speculation = {.algorithm = "NEXTN", .num_steps = 2};
  Service prefill(offering(drafting, "prefill"));
  ASSERT_TRUE(prefill.works());
  Service decode(decoding(drafting, port_));
  ASSERT_TRUE(decode.works());
  RequestInput input = question(1, 2047);
  input.sampling.max_new_tokens = 1;
  expect_same(ask(decode, input), computed(plain(), input));
  EXPECT_EQ(tier_of(decode).peer_prefills_total, 1u);
}

}  // namespace
}  // namespace hocket
