#include "cluster/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cluster/token_proof.h"

namespace hocket {
namespace {

// The name of the key on the wire; it says nothing about the token.
constexpr std::string_view kIdentity = "hocket cluster";
constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherCode[] = {0x13, 0x01};  // the same one on the wire
constexpr size_t kRecordBytes = 16 << 10;              // the longest plain text of a record

// Returns the oldest of OpenSSL's errors, and clears all of them.
std::string complaint() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* const text = code == 0 ? nullptr : ERR_reason_error_string(code);
  return text == nullptr ? "no reason was given" : text;
}

// NOLINTNEXTLINE(readability-function-size): the arguments that OpenSSL gives
void free_key(void*, void* key, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<Proof*>(key);
}

// Where a context of OpenSSL keeps its key.
int key_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, free_key);
  return index;
}

// Makes the session that carries the key. OpenSSL owns the result.
SSL_SESSION* session_of(SSL* ssl) {
  const auto& key =
      *static_cast<const Proof*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), key_index()));
  SSL_SESSION* const session = SSL_SESSION_new();
  const bool made = session != nullptr &&
                    SSL_SESSION_set1_master_key(session, key.data(), key.size()) == 1 &&
                    SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kCipherCode)) == 1 &&
                    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  HOCKET_CHECK(made);
  return session;
}

// NOLINTNEXTLINE(readability-function-size): the arguments that OpenSSL gives
int offer_key(SSL* ssl, const EVP_MD* hash, const unsigned char** identity, size_t* length,
              SSL_SESSION** session) {
  const bool fits = hash == nullptr || EVP_MD_is_a(hash, "SHA256") == 1;
  *session = fits ? session_of(ssl) : nullptr;
  *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *length = kIdentity.size();
  return 1;
}

int find_key(SSL* ssl, const unsigned char* identity, size_t length, SSL_SESSION** session) {
  const std::string_view name(reinterpret_cast<const char*>(identity), length);
  *session = name == kIdentity ? session_of(ssl) : nullptr;
  return 1;  // without a session the handshake fails, because there is no certificate
}

int no_passphrase(char*, int, int, void*) {
  return 0;
}

}  // namespace

void refuse_passphrases(ssl_ctx_st* context) {
  SSL_CTX_set_default_passwd_cb(context, no_passphrase);
}

Result<TlsUse> parse_tls_use(std::string_view text) {
  if (text == "off") return TlsUse::off;
  if (text == "on") return TlsUse::on;
  if (text == "auto") return TlsUse::automatic;
  return fail(error(ErrorCode::bad_value, "--cluster-tls '{}' is none of on, off and auto", text)
                  .with_fix("--cluster-tls auto")
                  .with_param("cluster-tls"));
}

Result<std::shared_ptr<const TlsContext>> TlsContext::create(std::string_view token) {
  HOCKET_CHECK(!token.empty());
  ERR_clear_error();
  SSL_CTX* const context = SSL_CTX_new(TLS_method());
  const bool made = context != nullptr &&
                    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_ciphersuites(context, kCipher) == 1 &&
                    SSL_CTX_set1_groups_list(context, "X25519:P-256") == 1 &&
                    SSL_CTX_set_num_tickets(context, 0) == 1;
  if (!made) {
    SSL_CTX_free(context);
    return fail(error(ErrorCode::io, "OpenSSL here cannot speak TLS 1.3: {}", complaint())
                    .with_fix("--cluster-tls off on all ranks, or another libssl3"));
  }
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_psk_use_session_callback(context, offer_key);
  SSL_CTX_set_psk_find_session_callback(context, find_key);
  auto key = std::make_unique<Proof>(derive_key(token, "hocket tls 1"));
  HOCKET_CHECK(SSL_CTX_set_ex_data(context, key_index(), key.get()) == 1);
  (void)key.release();  // free_key() deletes it
  return std::shared_ptr<const TlsContext>(new TlsContext(context, false));
}

Result<std::shared_ptr<const TlsContext>> TlsContext::for_servers(const CertificateFiles& files,
                                                                  const std::string& flag,
                                                                  const char* ca_end) {
  const auto bad_file = [&](std::string_view file, const char* end, std::string_view what) {
    const std::string param = flag + end;
    return fail(error(ErrorCode::bad_value, "--{} {}: no {} can be read there: {}", param, file,
                      what, complaint())
                    .with_fix(fmt::format("--{} FILE in PEM, that this user may read", param))
                    .with_param(param));
  };
  if (files.certificate.empty() != files.key.empty())
    return fail(error(ErrorCode::bad_value, "--{0}-cert and --{0}-key are of use together", flag)
                    .with_fix(fmt::format("--{0}-cert FILE --{0}-key FILE, or none of them", flag))
                    .with_param(flag + (files.key.empty() ? "-key" : "-cert")));
  ERR_clear_error();
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  HOCKET_CHECK(context != nullptr);
  std::shared_ptr<const TlsContext> made(new TlsContext(context, true));
  HOCKET_CHECK(SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  refuse_passphrases(context);
  if (files.ca.empty())
    (void)SSL_CTX_set_default_verify_paths(context);
  else if (SSL_CTX_load_verify_locations(context, files.ca.c_str(), nullptr) != 1)
    return bad_file(files.ca, ca_end, "certificate");
  if (files.key.empty()) return made;
  if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1)
    return bad_file(files.certificate, "-cert", "certificate");
  if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1)
    return bad_file(files.key, "-key", "key of that certificate");
  return made;
}

TlsContext::~TlsContext() {
  SSL_CTX_free(context_);
}

TlsStream::TlsStream(std::shared_ptr<const TlsContext> context, TlsEnd end, const std::string& host)
    : context_(std::move(context)), ssl_(SSL_new(context_->get())) {
  BIO* const in = BIO_new(BIO_s_mem());
  BIO* const out = BIO_new(BIO_s_mem());
  HOCKET_CHECK(ssl_ != nullptr && in != nullptr && out != nullptr);
  SSL_set_bio(ssl_, in, out);
  if (end == TlsEnd::server) {
    SSL_set_accept_state(ssl_);
    return;
  }
  // A server that answers with a certificate in place of the key is refused: none is trusted.
  SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
  if (context_->checks_certificates()) expect_name(host);
  SSL_set_connect_state(ssl_);
}

// A name is also said to the server, which may have several. An address is not (RFC 6066).
void TlsStream::expect_name(const std::string& host) {
  HOCKET_CHECK(!host.empty());
  X509_VERIFY_PARAM* const expected = SSL_get0_param(ssl_);
  if (X509_VERIFY_PARAM_set1_ip_asc(expected, host.c_str()) == 1) return;
  ERR_clear_error();
  X509_VERIFY_PARAM_set_hostflags(expected, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  HOCKET_CHECK(X509_VERIFY_PARAM_set1_host(expected, host.data(), host.size()) == 1);
  (void)SSL_set_tlsext_host_name(ssl_, host.c_str());
}

TlsStream::~TlsStream() {
  SSL_free(ssl_);
}

Result<void> TlsStream::receive(std::string_view bytes, std::string& plain, std::string& out) {
  ERR_clear_error();
  if (!bytes.empty()) {
    const int taken = BIO_write(SSL_get_rbio(ssl_), bytes.data(), static_cast<int>(bytes.size()));
    HOCKET_CHECK(taken == static_cast<int>(bytes.size()));
  }
  Result<void> done = is_open_ ? Result<void>() : handshake(out);
  if (done && is_open_) done = read_records(plain);
  take_records(out);
  return done;
}

Result<void> TlsStream::handshake(std::string& out) {
  const int done = SSL_do_handshake(ssl_);
  if (done != 1 && SSL_get_error(ssl_, done) == SSL_ERROR_WANT_READ) return {};
  if (const long verdict = SSL_get_verify_result(ssl_);
      context_->checks_certificates() && verdict != X509_V_OK)
    return fail(ErrorCode::unauthorized, "its certificate is refused: {}",
                X509_verify_cert_error_string(verdict));
  if (done != 1 || (!context_->checks_certificates() && SSL_session_reused(ssl_) != 1))
    return fail(ErrorCode::unauthorized, "the TLS handshake failed: {}", complaint());
  is_open_ = true;
  take_records(out);
  const std::string waited = std::exchange(waiting_, {});
  send(waited, out);
  return {};
}

Result<void> TlsStream::read_records(std::string& plain) {
  char buffer[kRecordBytes];
  for (;;) {
    size_t got = 0;
    const int done = SSL_read_ex(ssl_, buffer, sizeof buffer, &got);
    if (done == 1) {
      plain.append(buffer, got);
      continue;
    }
    const int why = SSL_get_error(ssl_, done);
    if (why == SSL_ERROR_WANT_READ) return {};
    has_ended_ = why == SSL_ERROR_ZERO_RETURN;
    if (has_ended_) return fail(ErrorCode::lost_rank, "the other side ended the connection");
    if (context_->checks_certificates())  // it may also refuse the client's certificate, or lack it
      return fail(ErrorCode::lost_rank, "it ended TLS: {}", complaint());
    return fail(ErrorCode::lost_rank, "what came over TLS was changed on its way: {}", complaint());
  }
}

void TlsStream::take_records(std::string& out) {
  BIO* const records = SSL_get_wbio(ssl_);
  char* bytes = nullptr;
  const long length = BIO_get_mem_data(records, &bytes);
  if (length <= 0) return;
  out.append(bytes, static_cast<size_t>(length));
  (void)BIO_reset(records);
}

void TlsStream::send(std::string_view plain, std::string& out) {
  if (!is_open_) {
    waiting_.append(plain);
    return;
  }
  ERR_clear_error();
  while (!plain.empty()) {  // record by record, so that OpenSSL's own buffer stays small
    size_t put = 0;
    const size_t size = std::min(plain.size(), kRecordBytes);
    if (SSL_write_ex(ssl_, plain.data(), size, &put) != 1) return;  // receive() says why
    plain.remove_prefix(put);
    take_records(out);
  }
}

}  // namespace hocket
