// Tests that a rank which joins later gets the role that an admin has given to the others.
#include "server/ranks/role_sender.h"

#include "server/ranks/other_rank_testing.h"

namespace hocket {
namespace {

class RoleSenderTest : public OtherRank {
 protected:
  void SetUp() override {
    start_all(2);
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
  ASSERT_TRUE(role_.set(Disaggregation::prefill));
  wait_for_checks();
  EXPECT_EQ(num_held(), 0u) << "the admin's request reached those that were there";
  ASSERT_NO_FATAL_FAILURE(restart_rank_1());
  for (const int status : {503, 200}) {
    const ForwardedRequest asked = take();
    EXPECT_EQ(asked.request.path, "/disaggregation_mode");
    EXPECT_EQ(asked.request.body, R"({"mode":"prefill"})");
    EXPECT_EQ(principal_of(asked.request)->role, Role::admin);
    asked.exchange->respond(status, kJsonType, "{}");
  }
  std::this_thread::sleep_for(RoleSender::kRetry);
  wait_for_checks();
  EXPECT_EQ(num_held(), 0u) << "it has it";
}

TEST_F(RoleSenderTest, WithTheRoleOfTheStartNobodyIsTold) {
  wait_for_checks();
  ASSERT_TRUE(role_.set(Disaggregation::prefill));
  ASSERT_TRUE(role_.set(Disaggregation::null));
  ASSERT_NO_FATAL_FAILURE(restart_rank_1());
  wait_for_checks();
  EXPECT_EQ(num_held(), 0u);
}

}  // namespace
}  // namespace hocket
