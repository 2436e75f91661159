// Tests that ranks which lack the role that an admin has given to the service are told it.
#include "server/ranks/role_sender.h"

#include "server/ranks/other_rank_testing.h"

namespace hocket {
namespace {

class RoleSenderTest : public OtherRank {
 protected:
  void SetUp() override {
    start_all(2, 1);
    peers_ = std::make_unique<RankPeers>(plane(0));
    sender_ = std::make_unique<RoleSender>(*peers_, &role_);
    peers_->begin_calls(8, [this] {
      sender_->check(*peers_->view());
      ++num_checks_;
    });
    peers_->open({.host = "127.0.0.1", .port = 1}, "the-key-of-rank-0");
    start_rank_1();
  }
  void TearDown() override {
    peers_->stop();
    end_rank_1();
  }
  std::string address_of_rank_1() override {
    const auto view = peers_->view();
    const auto endpoint = peers_->endpoint_of(view->members[1].identity);
    return endpoint ? endpoint->address.text() : "";
  }
  void wait_for_checks() {
    const int before = num_checks_;
    ASSERT_TRUE(eventually([&] { return num_checks_ >= before + 3; }));
  }
  // Expects that rank 1 is told the change once for each status with which it answers.
  void expect_told(const std::vector<int>& statuses, std::string_view mode, uint64_t number) {
    for (const int status : statuses) {
      const ForwardedRequest asked = take();
      EXPECT_EQ(asked.request.path, "/disaggregation_mode");
      EXPECT_EQ(Json::parse(asked.request.body), (Json{{"mode", mode}, {"change", number}}));
      EXPECT_EQ(principal_of(asked.request)->role, Role::admin);
      asked.exchange->respond(status, kJsonType, "{}");
    }
  }
  void expect_nothing_more() {
    std::this_thread::sleep_for(RoleSender::kRetry);
    wait_for_checks();
    EXPECT_EQ(num_held(), 0u) << "it has it";
  }
  void restart_rank_1() {
    planes_[1].reset();
    ASSERT_TRUE(eventually([&] { return !plane(0).view().present().has(1); }));
    start(1, port_);
    enter_all();
    publish(link_->port());
  }

  PrefillRole role_{{.can_prefill = true}};
  std::atomic<int> num_checks_{0};
  std::unique_ptr<RankPeers> peers_;
  std::unique_ptr<RoleSender> sender_;
};

TEST_F(RoleSenderTest, ARankThatComesBackGetsTheRoleOfTheOthers) {
  wait_for_checks();
  EXPECT_EQ(num_held(), 0u) << "all ranks start with the role of the flag";
  ASSERT_TRUE(role_.set(Disaggregation::prefill));
  expect_told({200}, "prefill", 1);
  ASSERT_NO_FATAL_FAILURE(restart_rank_1());
  expect_told({503, 200}, "prefill", 1);
  expect_nothing_more();
}

// The process of a rank whose link was cut lacks what was changed meanwhile, also if that is the
// mode with which it started.
TEST_F(RoleSenderTest, ARankWhoseLinkWasCutGetsWhatWasChangedMeanwhile) {
  ASSERT_TRUE(role_.set(Disaggregation::prefill));
  expect_told({200}, "prefill", 1);
  const std::string boot_id = plane(1).self().boot_id;
  proxy_->set(TestProxy::Link::cut);
  ASSERT_TRUE(eventually([&] { return !plane(0).view().present().has(1); }));
  ASSERT_TRUE(role_.set(Disaggregation::null));
  proxy_->set(TestProxy::Link::up);
  enter_all();
  ASSERT_EQ(plane(1).self().boot_id, boot_id);
  expect_told({200}, "null", 2);
  expect_nothing_more();
}

// The role changes while a rank is told the one before.
TEST_F(RoleSenderTest, ARankThatWasToldAnOldRoleIsToldTheNewOne) {
  ASSERT_TRUE(role_.set(Disaggregation::prefill));
  const ForwardedRequest old = take();
  ASSERT_TRUE(role_.set(Disaggregation::null));
  old.exchange->respond(200, kJsonType, "{}");
  expect_told({200}, "null", 2);
  expect_nothing_more();
}

// A change at any rank reaches all others, through the lowest one.
TEST(RoleSender, EveryRankIsReachedFromEveryOther) {
  RankSet present;
  for (const int rank : {1, 2, 5}) present.add(rank);
  for (const int from : {1, 2, 5})
    for (const int to : {1, 2, 5}) {
      if (from == to) continue;
      EXPECT_EQ(is_role_sender(from, to, present), from == 1 || to == 1) << from << " to " << to;
    }
}

TEST_F(RoleSenderTest, TheFirstRefusalIsInTheLog) {
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(role_.set(Disaggregation::prefill));
  expect_told({400, 400, 200}, "prefill", 1);
  wait_for_checks();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("is not taken"), std::string::npos) << log;
  EXPECT_EQ(log.find("is not taken"), log.rfind("is not taken")) << log;
}

}  // namespace
}  // namespace hocket
