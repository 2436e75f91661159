// A server that ends while another rank has requests of its clients.
#include <future>

#include "server/tests/rank_router_testing.h"

namespace hocket {
namespace {

using std::chrono::seconds;
using RankRouterTest = ForwardingRank;

TEST_F(RankRouterTest, ADrainWaitsForWhatOtherRanksHave) {
  TestClient client = ask(body_);
  const ForwardedRequest asked = take();
  auto drained =
      std::async(std::launch::async, [&] { return rank_0_->server->drain(seconds(10)); });
  EXPECT_EQ(drained.wait_for(milliseconds(100)), std::future_status::timeout);
  asked.exchange->respond(200, "application/json", "{}");
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_TRUE(drained.get());
}

TEST_F(RankRouterTest, ADrainWithoutPatienceSaysSo) {
  TestClient client = ask(body_);
  const ForwardedRequest asked = take();
  EXPECT_FALSE(rank_0_->server->drain(Duration{}));
  const TestAnswer answer = client.receive();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(error_of(answer)["code"], "shutting_down");
}

}  // namespace
}  // namespace hocket
