#include "server/http/error_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "server/http/http_testing.h"

namespace hocket {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ErrorMapTest : public HttpTest {
 protected:
  template <class Thrown>
  static void fail(HttpExchange& exchange, Thrown thrown) {
    try {
      throw thrown;
    } catch (...) {
      fail_by_exception(exchange, "/x");
    }
  }
};

TEST_F(ErrorMapTest, AnExceptionIsAnAnswerOrTheLastEventOfOne) {
  start();
  TestClient c = client();
  c.send(get("/x"));
  fail(*take(), std::runtime_error("a secret of the request"));
  const TestAnswer plain = c.receive();
  EXPECT_EQ(plain.status, 500);
  EXPECT_THAT(plain.body, Not(HasSubstr("secret")));
  c.send(get("/x"));
  fail(*take(), std::bad_alloc());
  EXPECT_EQ(c.receive().status, 503);

  c.send(get("/named"));
  auto exchange = take();
  ASSERT_TRUE(exchange->start_stream("text/event-stream"));
  ASSERT_TRUE(exchange->write("data: 1\n\n"));
  fail(*exchange, 7);
  const TestAnswer stream = c.receive();
  EXPECT_EQ(stream.status, 200);
  EXPECT_THAT(stream.body, HasSubstr("data: 1\n\nevent: error\n"));

  c.send(get("/x"));
  exchange = take();
  ASSERT_TRUE(exchange->respond(200, "text/plain", "all"));
  fail(*exchange, 7);  // it is logged, and changes nothing
  EXPECT_EQ(c.receive().body, "all");
}

TEST(ErrorMap, GivesEachKindItsStatus) {
  const std::pair<ErrorCode, int> expected[] = {
      {ErrorCode::invalid_request, 400}, {ErrorCode::context_length_exceeded, 400},
      {ErrorCode::request_too_big, 400}, {ErrorCode::no_tokenizer, 400},
      {ErrorCode::template_failed, 400}, {ErrorCode::unauthorized, 401},
      {ErrorCode::not_found, 404},       {ErrorCode::method_not_allowed, 405},
      {ErrorCode::request_timeout, 408}, {ErrorCode::payload_too_large, 413},
      {ErrorCode::queue_full, 429},      {ErrorCode::bad_logits, 500},
      {ErrorCode::internal, 500},        {ErrorCode::bad_safetensors, 500},
      {ErrorCode::loading, 503},         {ErrorCode::shutting_down, 503},
      {ErrorCode::watchdog, 503},
  };
  for (const auto& [code, status] : expected)
    EXPECT_EQ(http_status(code), status) << code_name(code);
  EXPECT_THAT(error_headers(ErrorCode::queue_full), ElementsAre(testing::Pair("Retry-After", "1")));
  EXPECT_THAT(error_headers(ErrorCode::loading), testing::SizeIs(1));
  EXPECT_THAT(error_headers(ErrorCode::invalid_request), IsEmpty());
}

}  // namespace
}  // namespace hocket
