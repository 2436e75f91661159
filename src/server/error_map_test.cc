// Exceptions before, in or after the answer to a request.
#include "server/error_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "server/wire/http_fixture.h"

namespace hocket {
namespace {

using testing::HasSubstr;

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

  c.send(get("/v1/messages"));
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

}  // namespace
}  // namespace hocket
