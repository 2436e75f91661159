#include "server/access/request_sender.h"

#include <gtest/gtest.h>

#include "server/access/access_check.h"

namespace hocket {
namespace {

TEST(RequestSender, OnlyAKeyOfOneClientHasALimitOfMemoryOfItsOwn) {
  for (const bool alone : {false, true}) {
    HttpAdmission admission;
    admit_sender(
        admission,
        {.principal = std::make_shared<const Principal>(Principal{.name = "ann", .alone = alone})});
    EXPECT_EQ(admission.memory_owner, alone ? "ann" : "");
  }
}

TEST(RequestSender, TheEndOfTheAnswerEndsTheMeter) {
  const auto usage = std::make_shared<RequestMeter::Usage>();
  usage->num_running = 1;
  HttpAdmission admission;
  admit_sender(admission, {.principal = std::make_shared<const Principal>(),
                           .meter = std::make_shared<RequestMeter>(usage)});
  ASSERT_TRUE(admission.on_end);
  admission.on_end();
  const MutexLock lock(usage->mutex);
  EXPECT_EQ(usage->num_running, 0);
}

TEST(RequestSender, OnlyThePortForRanksLetsInRanks) {
  const auto sent_with_key = [](std::string_view key) {
    HttpRequest head;
    head.headers = {{"authorization", "Bearer " + std::string(key)}};
    return head;
  };
  HttpRequest request = sent_with_key("rank-key");
  request.sender = admit_rank(request, "rank-key").sender;
  EXPECT_TRUE(is_from_rank(request));
  auto check = AccessCheck::create({});
  ASSERT_TRUE(check);
  request.sender = (*check)->admit(request).sender;
  EXPECT_FALSE(is_from_rank(request));
  EXPECT_FALSE(is_from_rank(HttpRequest{}));
}

}  // namespace
}  // namespace hocket
