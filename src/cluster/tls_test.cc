// Tests TLS between two ends in memory, and within a connection.
#include "cluster/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <array>
#include <vector>

#include "cluster/connection.h"
#include "cluster/ranks_testing.h"
#include "cluster/token_proof.h"

namespace hocket {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kTlsToken = "a token of sixteen";

std::shared_ptr<const TlsContext> context_of(const std::string& token = kTlsToken) {
  return TlsContext::create(token).value();
}

// Both ends of a stream, and the bytes under way.
struct TlsPair {
  TlsStream client{context_of(), TlsEnd::client}, server;
  std::string to_server, to_client, client_got, server_got;
  Result<void> client_end, server_end;

  explicit TlsPair(const std::string& token = kTlsToken)
      : server(context_of(token), TlsEnd::server) {
    client_end = client.receive({}, client_got, to_server);
  }
  // Moves bytes until none is under way, `piece` at a time; stops at the first error of a side.
  void move(size_t piece = SIZE_MAX) {
    while (!(to_server.empty() && to_client.empty())) {
      const std::string forth = to_server.substr(0, piece);
      to_server.erase(0, forth.size());
      if (server_end && !forth.empty()) server_end = server.receive(forth, server_got, to_client);
      const std::string back = to_client.substr(0, piece);
      to_client.erase(0, back.size());
      if (client_end && !back.empty()) client_end = client.receive(back, client_got, to_server);
    }
  }
};

std::string bytes_like(size_t length) {
  std::string bytes(length, '\0');
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<char>(i * 31 + i / 251);
  return bytes;
}

TEST(TlsStream, BytesArriveAsTheyWereSentInBothDirections) {
  TlsPair pair;
  pair.move();
  ASSERT_TRUE(pair.client.is_open() && pair.server.is_open());
  std::string sent;
  for (const size_t length :
       {size_t{1}, size_t{100}, size_t{16384}, size_t{16385}, kMaxFrameBytes}) {
    sent += bytes_like(length);
    pair.client.send(bytes_like(length), pair.to_server);
    pair.server.send(bytes_like(length), pair.to_client);
    pair.move(1000);
  }
  for (int i = 0; i < 2000; ++i) {
    sent += bytes_like(40);
    pair.client.send(bytes_like(40), pair.to_server);
    pair.server.send(bytes_like(40), pair.to_client);
  }
  pair.move();
  EXPECT_TRUE(pair.server_got == sent);
  EXPECT_TRUE(pair.client_got == sent);
}

TEST(TlsStream, EachByteMayComeAlone) {
  TlsPair pair;
  pair.client.send("said before the handshake", pair.to_server);
  EXPECT_THAT(pair.to_server, Not(HasSubstr("said before")));
  pair.move(1);
  EXPECT_EQ(pair.server_got, "said before the handshake");
  pair.server.send("an answer", pair.to_client);
  EXPECT_THAT(pair.to_client, Not(HasSubstr("an answer")));
  pair.move(1);
  EXPECT_EQ(pair.client_got, "an answer");
}

TEST(TlsStream, AnotherTokenFailsOnBothSides) {
  TlsPair pair("another token, as long");
  pair.client.send("a secret", pair.to_server);
  pair.move();
  EXPECT_EQ(pair.server_end.error().code, ErrorCode::unauthorized);
  EXPECT_EQ(pair.client_end.error().code, ErrorCode::unauthorized);
  EXPECT_FALSE(pair.client.is_open() || pair.server.is_open());
  EXPECT_EQ(pair.server_got, "");
}

TEST(TlsStream, AChangedByteEndsTheStreamAndIsNotRead) {
  for (const size_t at : {size_t{0}, size_t{3}, size_t{5}, size_t{20}}) {
    TlsPair pair;
    pair.move();
    pair.client.send("a message", pair.to_server);
    pair.to_server[at] = static_cast<char>(pair.to_server[at] ^ 1);
    if (at == 3) pair.to_server.resize(pair.to_server.size() + 300);  // it says that it is longer
    pair.move();
    EXPECT_EQ(pair.server_end.error().code, ErrorCode::lost_rank) << at;
    EXPECT_EQ(pair.server_got, "") << at;
  }
}

TEST(TlsStream, ARecordedStreamCannotBeSentAgain) {
  TlsPair first;
  std::string hello = first.to_server;
  std::string answer;
  first.server_end = first.server.receive(hello, first.server_got, answer);
  first.client_end = first.client.receive(answer, first.client_got, first.to_server);
  const std::string rest = first.to_server.substr(hello.size());
  TlsPair second;
  std::string ignored;
  EXPECT_TRUE(second.server.receive(hello, second.server_got, ignored));
  const auto again = second.server.receive(rest, second.server_got, ignored);
  EXPECT_EQ(again.error().code, ErrorCode::unauthorized);
}

TEST(TlsStream, WhatIsNotTlsFails) {
  std::string frame;
  append_frame(frame, ProofMessage{});
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(64, '\xff'),
                                   std::string(64, '\0'), frame}) {
    for (const TlsEnd end : {TlsEnd::server, TlsEnd::client}) {
      TlsStream stream(context_of(), end);
      std::string plain, out;
      EXPECT_TRUE(stream.receive({}, plain, out));
      const auto taken = stream.receive(bytes, plain, out);
      EXPECT_EQ(taken.error().code, ErrorCode::unauthorized);
      EXPECT_EQ(plain, "");
    }
  }
}

// A server with a certificate of its own, which does not know the token.
struct CertifiedServer {
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  SSL* ssl = nullptr;
  CertifiedServer() {
    EVP_PKEY* const key = EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256");
    X509* const certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    EXPECT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
    EXPECT_EQ(SSL_CTX_use_certificate(context, certificate), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context, key), 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
    ssl = SSL_new(context);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_accept_state(ssl);
  }
  ~CertifiedServer() {
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
  std::string answer(const std::string& hello) {
    BIO_write(SSL_get_rbio(ssl), hello.data(), static_cast<int>(hello.size()));
    SSL_do_handshake(ssl);
    char* bytes = nullptr;
    const long length = BIO_get_mem_data(SSL_get_wbio(ssl), &bytes);
    return {bytes, static_cast<size_t>(length)};
  }
};

TEST(TlsStream, ACertificateInPlaceOfTheKeyIsRefused) {
  CertifiedServer server;
  TlsStream client(context_of(), TlsEnd::client);
  std::string plain, hello, out;
  ASSERT_TRUE(client.receive({}, plain, hello));
  client.send("a secret", out);
  const std::string answer = server.answer(hello);
  ASSERT_GT(answer.size(), 100u);
  EXPECT_EQ(client.receive(answer, plain, out).error().code, ErrorCode::unauthorized);
  EXPECT_FALSE(client.is_open());
}

TEST(TlsUse, IsOnOffOrAuto) {
  EXPECT_EQ(parse_tls_use("on").value(), TlsUse::on);
  EXPECT_EQ(parse_tls_use("off").value(), TlsUse::off);
  EXPECT_EQ(parse_tls_use("auto").value(), TlsUse::automatic);
  EXPECT_EQ(parse_tls_use("yes").error().param, "cluster-tls");
}

TEST(ClusterKey, IsThatOfTheStandard) {
  const Proof expected{0x8d, 0xa4, 0xe7, 0x75, 0xa5, 0x63, 0xc1, 0x8f, 0x71, 0x5f, 0x80,
                       0x2a, 0x06, 0x3c, 0x5a, 0x31, 0xb8, 0xa1, 0x1f, 0x5c, 0x5e, 0xe1,
                       0x87, 0x9e, 0xc3, 0x45, 0x4e, 0x5f, 0x3c, 0x73, 0x8d, 0x2d};
  EXPECT_EQ(derive_key(std::string(22, '\x0b'), ""), expected);  // RFC 5869, A.3
  EXPECT_NE(derive_key("token", "a"), derive_key("token", "b"));
  EXPECT_NE(derive_key("token", "a"), derive_key("Token", "a"));
}

// Two connections of one thread over a socket pair.
struct TlsConnections {
  Poller poller;
  int fds[2] = {-1, -1};
  std::unique_ptr<Connection> client, server;

  explicit TlsConnections(bool begins = true) {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    client = std::make_unique<Connection>(Fd(fds[0]), poller, 1);
    server = std::make_unique<Connection>(Fd(fds[1]), poller, 2);
    server->begin_tls(context_of(), TlsEnd::server);
    if (begins) client->begin_tls(context_of(), TlsEnd::client);
  }
  void move() {
    for (Connection* one : {server.get(), client.get()}) {
      one->flush();
      one->receive();
    }
  }
  // Returns the messages that arrive until `count` have, or a side ends.
  static std::vector<Message> take(Connection& from, size_t count, TlsConnections& both) {
    std::vector<Message> all;
    while (all.size() < count && !both.client->ended() && !both.server->ended()) {
      both.move();
      while (auto message = from.next(kMaxFrameBytes).value()) all.push_back(*std::move(message));
    }
    return all;
  }
};

TEST(TlsConnection, MessagesOfAllSizesArriveEqual) {
  TlsConnections both;
  std::vector<Message> sent;
  for (int i = 0; i < 500; ++i) sent.push_back(LeaveMessage{fmt::format("small {}", i)});
  sent.push_back(StoreRequest{.id = 1, .key = "k", .value = bytes_like(kMaxStoreValueBytes)});
  sent.push_back(StoreRequest{.id = 2, .key = "k", .value = bytes_like(kMaxStoreValueBytes)});
  for (const Message& message : sent) both.client->send(message);  // the handshake has not begun
  EXPECT_EQ(TlsConnections::take(*both.server, sent.size(), both), sent);
  for (const Message& message : sent) both.server->send(message);
  EXPECT_EQ(TlsConnections::take(*both.client, sent.size(), both), sent);
}

TEST(TlsConnection, ACutInTheMiddleOfARecordEndsItWithoutAMessage) {
  TlsConnections both;
  both.client->send(LeaveMessage{"first"});
  EXPECT_EQ(TlsConnections::take(*both.server, 1, both).size(), 1u);
  std::array<int, 2> wire{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, wire.data()), 0);
  TlsStream stream(context_of(), TlsEnd::client);
  Connection server(Fd(wire[0]), both.poller, 3);
  server.begin_tls(context_of(), TlsEnd::server);
  const Fd raw(wire[1]);
  std::string plain, out, frame;
  char buffer[4096];
  ASSERT_TRUE(stream.receive({}, plain, out));
  while (!stream.is_open()) {
    ASSERT_EQ(send(raw.get(), out.data(), out.size(), MSG_NOSIGNAL), std::ssize(out));
    out.clear();
    server.receive();
    const ssize_t got = recv(raw.get(), buffer, sizeof buffer, 0);
    ASSERT_GT(got, 0);
    ASSERT_TRUE(stream.receive({buffer, static_cast<size_t>(got)}, plain, out));
  }
  append_frame(frame, LeaveMessage{"half"});
  stream.send(frame, out);
  ASSERT_GT(send(raw.get(), out.data(), out.size() - 5, MSG_NOSIGNAL), 0);
  server.receive();
  EXPECT_FALSE(server.next(kMaxFrameBytes).value().has_value());
  EXPECT_FALSE(server.ended());
  shutdown(raw.get(), SHUT_WR);
  server.receive();
  ASSERT_TRUE(server.ended());
  EXPECT_EQ(server.ended()->code, ErrorCode::lost_rank);
  EXPECT_FALSE(server.next(kMaxFrameBytes).value().has_value());
}

TEST(TlsConnection, WhoNeverShakesHandsHoldsNoMoreThanTheLimit) {
  TlsConnections both(false);
  const StoreRequest large{.id = 1, .key = "k", .value = bytes_like(kMaxStoreValueBytes)};
  for (size_t sent = 0; sent <= Connection::kMaxUnsentBytes; sent += large.value.size())
    both.server->send(large);
  ASSERT_TRUE(both.server->ended());
  EXPECT_THAT(both.server->ended()->message, HasSubstr("does not read"));
}

}  // namespace
}  // namespace hocket
