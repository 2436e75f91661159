#include "server/http/http_socket.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>

namespace hocket {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// A client that always sends more bytes is always between two reads.
TEST(HttpSocket, ALimitThatIsReachedBetweenTwoReadsEndsTheNext) {
  asio::io_context context;
  tcp::acceptor door(context, {asio::ip::address_v4::loopback(), 0});
  tcp::socket client(context);
  client.connect(door.local_endpoint());
  const auto socket = std::make_shared<HttpSocket>(door.accept(), nullptr);
  asio::write(client, asio::buffer("more", 4));

  char bytes[8];
  HttpSocket::Code got;
  size_t num_read = 0;
  const auto read = [&] {
    socket->async_read_some(asio::buffer(bytes), [&](HttpSocket::Code code, size_t count) {
      got = code;
      num_read = count;
    });
    context.restart();
    context.run();
  };
  socket->arm(Duration(0));
  context.run();
  ASSERT_TRUE(socket->timed_out());
  read();
  EXPECT_EQ(got, asio::error::operation_aborted);
  EXPECT_EQ(num_read, 0u);

  socket->disarm();
  read();
  EXPECT_FALSE(got);
  EXPECT_EQ(num_read, 4u);
}

TEST(HttpSocket, AnEndThatWasReadIsReadAgain) {
  asio::io_context context;
  tcp::acceptor door(context, {asio::ip::address_v4::loopback(), 0});
  tcp::socket client(context);
  client.connect(door.local_endpoint());
  const auto socket = std::make_shared<HttpSocket>(door.accept(), nullptr);

  char bytes[8];
  HttpSocket::Code got;
  const auto begin = [&] {
    got = {};
    socket->async_read_some(asio::buffer(bytes),
                            [&](HttpSocket::Code code, size_t) { got = code; });
  };
  begin();
  context.poll();  // the read begins before the end comes
  client.shutdown(tcp::socket::shutdown_send);
  context.restart();
  context.run();
  ASSERT_EQ(got, asio::error::eof);
  socket->note_eof();
  begin();
  context.restart();
  context.run_for(std::chrono::seconds(5));
  EXPECT_EQ(got, asio::error::eof);
}

}  // namespace
}  // namespace hocket
