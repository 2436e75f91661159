// HTTPS on real sockets: certificates are made here, and the client is OpenSSL itself.
#include <gmock/gmock.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <filesystem>
#include <thread>

#include "server/http/http_testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
namespace fs = std::filesystem;

// Makes a key and a certificate for `name`, as PEM files in `folder`.
TlsFiles make_identity(const fs::path& folder, const std::string& name) {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 86400);
  X509_set_pubkey(certificate, key);
  X509_NAME* const subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate, subject);
  X509_sign(certificate, key, EVP_sha256());
  TlsFiles files{folder / (name + ".crt"), folder / (name + ".key")};
  FILE* out = std::fopen(files.certificate.c_str(), "w");
  PEM_write_X509(out, certificate);
  std::fclose(out);
  out = std::fopen(files.key.c_str(), "w");
  PEM_write_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(out);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return files;
}

// An OpenSSL client over a socket that blocks for at most 5 s.
class TlsClient {
 public:
  explicit TlsClient(int port, int max_version = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    const timeval limit{5, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) return;
    SSL_CTX_set_max_proto_version(context_, max_version);
    SSL_CTX_set_alpn_protos(context_, reinterpret_cast<const unsigned char*>("\x02h2\x08http/1.1"),
                            12);
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, fd_);
    connected_ = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() {
    if (ssl_ != nullptr) SSL_free(ssl_);
    SSL_CTX_free(context_);
    close(fd_);
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  bool connected() const { return connected_; }
  std::string version() const { return SSL_get_version(ssl_); }
  std::string protocol() const {
    const unsigned char* name = nullptr;
    unsigned int length = 0;
    SSL_get0_alpn_selected(ssl_, &name, &length);
    return {reinterpret_cast<const char*>(name), length};
  }
  std::string server_name() const {
    X509* const certificate = SSL_get1_peer_certificate(ssl_);
    char name[64] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, 64);
    X509_free(certificate);
    return name;
  }
  void send(std::string_view bytes) {
    SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
  }
  // Returns the bytes up to and with `mark`, or up to the end or a pause of 5 s.
  std::string until(std::string_view mark) {
    std::string text;
    char c = 0;
    while (!text.ends_with(mark) && SSL_read(ssl_, &c, 1) == 1) text += c;
    return text;
  }
  std::string echo(std::string_view word) {
    send(fmt::format("GET /echo?{} HTTP/1.1\r\nHost: h\r\n\r\n", word));
    return until(fmt::format("?{} ", word));
  }
  // True if the connection ended with a TLS shutdown, not by a cut.
  bool sees_close_notify() {
    char c = 0;
    while (SSL_read(ssl_, &c, 1) == 1) {
    }
    return SSL_get_shutdown(ssl_) == SSL_RECEIVED_SHUTDOWN;
  }

 private:
  SSL_CTX* const context_ = SSL_CTX_new(TLS_client_method());
  SSL* ssl_ = nullptr;
  int fd_ = -1;
  bool connected_ = false;
};

class HttpTlsTest : public HttpTest {
 protected:
  HttpTlsTest()
      : folder_(fs::path(testing::TempDir()) / ("hocket_tls_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    files_ = make_identity(folder_, "first");
  }
  ~HttpTlsTest() override { fs::remove_all(folder_); }

  const fs::path folder_;
  TlsFiles files_;
};

TEST_F(HttpTlsTest, ServesManyRequestsOfAConnection) {
  start({.tls = files_});
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient c(server_->port(), version);
    ASSERT_TRUE(c.connected());
    EXPECT_EQ(c.version(), version == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3");
    EXPECT_EQ(c.protocol(), "http/1.1");
    for (const char* word : {"one", "two", "three"}) EXPECT_THAT(c.echo(word), HasSubstr("200 OK"));
  }
  TlsClient old(server_->port(), TLS1_1_VERSION);
  EXPECT_FALSE(old.connected());
}

TEST_F(HttpTlsTest, StreamsWhileItListensForTheClientsEnd) {
  start({.tls = files_});
  TlsClient c(server_->port());
  for (int round = 0; round < 3; ++round) {
    c.send("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    auto exchange = take();
    ASSERT_TRUE(exchange);
    exchange->start_stream("text/event-stream");
    for (int i = 0; i < 50; ++i) {
      exchange->write(fmt::format("data: {}\n\n", i));
      if (i % 10 == 0) std::this_thread::sleep_for(2ms);
    }
    exchange->write("data: " + std::string(200'000, 'x') + "\n\n");
    exchange->finish();
    const std::string all = c.until("\r\n0\r\n\r\n");
    EXPECT_THAT(all, HasSubstr("data: 49\n\n"));
    EXPECT_GT(all.size(), 200'000u);
  }
  bool left = false;
  c.send("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
  auto exchange = take();
  ASSERT_TRUE(exchange);
  exchange->start_stream("text/event-stream");
  c.until("chunked\r\n\r\n");
  {
    TlsClient gone(server_->port());
  }
  exchange->on_close([&] { left = true; });
  EXPECT_FALSE(left);
  exchange->finish();
  EXPECT_THAT(c.until("0\r\n\r\n"), HasSubstr("0\r\n\r\n"));
}

TEST_F(HttpTlsTest, EndsWithAFarewell) {
  start({.tls = files_});
  TlsClient c(server_->port());
  c.send("GET /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(c.sees_close_notify());
}

TEST_F(HttpTlsTest, TellsPlainClientsWhatItSpeaks) {
  start({.tls = files_, .header_timeout = 100ms});
  TestClient plain = client();
  plain.send(get("/echo"));
  const TestAnswer answer = plain.receive();
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("https://"));
  // The server closes a connection that sends nothing, or begins a handshake and stops.
  TestClient silent = client(), slow = client();
  slow.send("\x16\x03\x01");
  EXPECT_TRUE(silent.sees_end(3s));
  EXPECT_TRUE(slow.sees_end(3s));
  EXPECT_TRUE(TlsClient(server_->port()).connected());
}

TEST_F(HttpTlsTest, ShowsANewCertificateToNewConnections) {
  start({.tls = files_});
  TlsClient before(server_->port());
  EXPECT_EQ(before.server_name(), "first");
  const TlsFiles second = make_identity(folder_, "second");
  fs::copy_file(second.certificate, files_.certificate, fs::copy_options::overwrite_existing);
  const auto half = server_->reload_tls();  // the key still belongs to the old certificate
  ASSERT_FALSE(half);
  EXPECT_EQ(half.error().param, "ssl-keyfile");
  EXPECT_EQ(TlsClient(server_->port()).server_name(), "first");
  fs::copy_file(second.key, files_.key, fs::copy_options::overwrite_existing);
  EXPECT_TRUE(server_->reload_tls());
  EXPECT_EQ(TlsClient(server_->port()).server_name(), "second");
  EXPECT_THAT(before.echo("still"), HasSubstr("200 OK"));
}

TEST_F(HttpTlsTest, SaysWhatIsWrongWithTheFiles) {
  const auto complaint = [](TlsFiles files) {
    const auto loaded = load_tls_identity(files);
    return loaded ? "" : loaded.error().param;
  };
  EXPECT_EQ(complaint(files_), "");
  EXPECT_EQ(complaint({files_.certificate, ""}), "ssl-keyfile");
  EXPECT_EQ(complaint({"", files_.key}), "ssl-certfile");
  EXPECT_EQ(complaint({"/nowhere", files_.key}), "ssl-certfile");
  EXPECT_EQ(complaint({files_.key, files_.key}), "ssl-certfile");
  EXPECT_EQ(complaint({files_.certificate, make_identity(folder_, "x").key}), "ssl-keyfile");
  EXPECT_NEAR(load_tls_identity(files_)->remaining_days, 1, 0.01);
}

}  // namespace
}  // namespace hocket
