// Tests one HTTP connection against servers that end answers in every way, in the clear and in TLS.
#include "cluster/blocking_http_connection.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cluster/certificates_testing.h"

namespace hocket {
namespace {

using std::chrono::milliseconds;

Fd loopback_listener() {
  auto listener = listen_on(resolve({"127.0.0.1", 0})->front());
  HOCKET_CHECK(listener.has_value());
  return *std::move(listener);
}

// Answers one request, piece by piece, and then ends the connection.
class OneAnswerServer {
 public:
  struct Options {
    std::vector<std::string> pieces;
    const TestCertificates* certificates = nullptr;  // with server.crt; null: in the clear
    bool ends_in_order = true;                       // says before the end that it comes
  };
  explicit OneAnswerServer(Options options)
      : options_(std::move(options)), thread_([this] { serve(); }) {}
  ~OneAnswerServer() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  OneAnswerServer(const OneAnswerServer&) = delete;
  OneAnswerServer& operator=(const OneAnswerServer&) = delete;

  SocketAddress address() const { return local_address(listener_); }

 private:
  void serve() {
    pollfd asked_for{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    poll(&asked_for, 1, -1);
    const Fd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (options_.certificates == nullptr)
      answer([&](char* to) { return recv(client.get(), to, 1, 0) == 1; },
             [&](const std::string& piece) {
               return send(client.get(), piece.data(), piece.size(), MSG_NOSIGNAL) ==
                      std::ssize(piece);
             });
    else
      serve_tls(client);
  }
  void serve_tls(const Fd& client) {
    const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_server_method()),
                                                               SSL_CTX_free);
    const std::string certificate = options_.certificates->file("server.crt");
    const std::string key = options_.certificates->file("server.key");
    HOCKET_CHECK(SSL_CTX_use_certificate_chain_file(context.get(), certificate.c_str()) == 1);
    HOCKET_CHECK(SSL_CTX_use_PrivateKey_file(context.get(), key.c_str(), SSL_FILETYPE_PEM) == 1);
    const std::unique_ptr<SSL, void (*)(SSL*)> tls(SSL_new(context.get()), SSL_free);
    SSL_set_fd(tls.get(), client.get());
    if (SSL_accept(tls.get()) != 1) return;
    answer([&](char* to) { return SSL_read(tls.get(), to, 1) == 1; },
           [&](const std::string& piece) {
             return SSL_write(tls.get(), piece.data(), static_cast<int>(piece.size())) > 0;
           });
    if (options_.ends_in_order) SSL_shutdown(tls.get());
  }
  template <class Read, class Write>
  void answer(Read&& read_byte, Write&& write) {
    std::string asked;
    char byte = 0;
    while (!asked.ends_with("\r\n\r\n") && read_byte(&byte)) asked += byte;
    for (const std::string& piece : options_.pieces) {
      if (!write(piece)) return;
      std::this_thread::sleep_for(milliseconds(2));
    }
  }

  const Options options_;
  const Fd listener_ = loopback_listener();
  std::thread thread_;
};

class BlockingHttpConnectionTest : public testing::TestWithParam<bool> {
 protected:
  BlockingHttpConnectionTest() { certificates_.make("server", "IP:127.0.0.1"); }

  static TimePoint soon() { return RealClock().now() + std::chrono::seconds(10); }
  OneAnswerServer::Options options(std::vector<std::string> pieces) const {
    return {.pieces = std::move(pieces), .certificates = GetParam() ? &certificates_ : nullptr};
  }
  BlockingHttpConnection dial(const OneAnswerServer& server) const {
    const auto tls = GetParam() ? certificates_.trusting() : nullptr;
    return BlockingHttpConnection::dial({server.address()}, tls, "127.0.0.1", soon()).value();
  }
  static Result<void> ask(BlockingHttpConnection& connection) {
    HOCKET_TRY_VOID(connection.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1000, soon()));
    return connection.read_head(soon());
  }
  static Result<std::string> body_of(BlockingHttpConnection& connection) {
    HOCKET_TRY_VOID(ask(connection));
    while (!connection.is_done()) {
      HOCKET_TRY(const bool came, connection.read(soon()));
      if (!came) return fail(ErrorCode::timed_out, "nothing came");
    }
    return connection.take_body();
  }

  TestCertificates certificates_;
};

TEST_P(BlockingHttpConnectionTest, HeadsAndChunksMayComeInPieces) {
  const std::string text =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n2;x=y\r\nef\r\n0\r\n\r\n";
  std::vector<std::string> bytes;
  for (const char byte : text) bytes.emplace_back(1, byte);
  const OneAnswerServer server(options(std::move(bytes)));
  BlockingHttpConnection connection = dial(server);
  EXPECT_EQ(body_of(connection), "abcdef");
  EXPECT_TRUE(connection.may_go_on());
}

TEST_P(BlockingHttpConnectionTest, AnAnswerWithoutALengthEndsWithTheStream) {
  const OneAnswerServer server(options({"HTTP/1.1 200 OK\r\n\r\n", "abcd", "ef"}));
  BlockingHttpConnection connection = dial(server);
  EXPECT_EQ(body_of(connection), "abcdef");
  EXPECT_FALSE(connection.may_go_on());
}

TEST_P(BlockingHttpConnectionTest, AnAnswerThatLacksBytesIsAnError) {
  const OneAnswerServer server(options({"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", "abcd"}));
  BlockingHttpConnection connection = dial(server);
  EXPECT_FALSE(body_of(connection));
}

TEST_P(BlockingHttpConnectionTest, AKeptConnectionThatEndedHasNoAnswerBegun) {
  const OneAnswerServer server(options({"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"}));
  BlockingHttpConnection connection = dial(server);
  EXPECT_EQ(body_of(connection), "ab");
  ASSERT_TRUE(connection.may_go_on());
  std::this_thread::sleep_for(milliseconds(20));
  const auto again = ask(connection);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::io);
  EXPECT_FALSE(connection.has_begun());
}

INSTANTIATE_TEST_SUITE_P(InTheClearAndInTls, BlockingHttpConnectionTest, testing::Bool(),
                         [](const auto& one) { return one.param ? "tls" : "clear"; });

class BlockingTlsConnectionTest : public BlockingHttpConnectionTest {};

// An attacker who cuts a TLS stream must not decide where an answer ends.
TEST_P(BlockingTlsConnectionTest, AnAnswerThatIsCutIsNoWholeOne) {
  auto cut = options({"HTTP/1.1 200 OK\r\n\r\n", "abcd"});
  cut.ends_in_order = false;
  const OneAnswerServer server(std::move(cut));
  BlockingHttpConnection connection = dial(server);
  EXPECT_FALSE(body_of(connection));
}

TEST_P(BlockingTlsConnectionTest, AnAddressThatSaysNothingLeavesTimeToTheNext) {
  const Fd silent = loopback_listener();
  const OneAnswerServer server(options({"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"}));
  auto made = BlockingHttpConnection::dial({local_address(silent), server.address()},
                                           certificates_.trusting(), "127.0.0.1",
                                           RealClock().now() + std::chrono::seconds(4));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(body_of(*made), "ab");
}

INSTANTIATE_TEST_SUITE_P(InTls, BlockingTlsConnectionTest, testing::Values(true));

}  // namespace
}  // namespace hocket
