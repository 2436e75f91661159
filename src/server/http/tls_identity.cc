#include "server/http/tls_identity.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <boost/asio/ssl/context.hpp>

namespace hocket {
namespace {

namespace ssl = boost::asio::ssl;

// Returns the newest of OpenSSL's errors, and clears all of them.
std::string complaint() {
  const char* reason = nullptr;
  while (const unsigned long code = ERR_get_error())
    if (const char* text = ERR_reason_error_string(code); text != nullptr) reason = text;
  return reason == nullptr ? "unknown" : reason;
}

Error bad_file(std::string_view what, const std::string& file, const char* flag) {
  return error(ErrorCode::bad_value, "cannot use {} as {}: {}", file, what, complaint())
      .with_fix(fmt::format("{} FILE in PEM, that this user may read", flag))
      .with_param(flag + 2);
}

// ALPN: chooses http/1.1 if the client offers it.
// NOLINTNEXTLINE(readability-function-size): the arguments that OpenSSL gives
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_len,
                    const unsigned char* offered, unsigned int offered_len, void*) {
  static constexpr unsigned char kProtocols[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_len, kProtocols, sizeof kProtocols - 1, offered,
                            offered_len) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

double days_left_of(const SSL_CTX* context) {
  const X509* certificate = SSL_CTX_get0_certificate(context);
  int days = 0, seconds = 0;
  if (certificate == nullptr ||
      ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notAfter(certificate)) != 1)
    return 0;
  return days + seconds / 86400.0;
}

}  // namespace

std::shared_ptr<ssl::context> asio_context(const TlsContext& cluster) {
  SSL_CTX_up_ref(cluster.get());
  return std::make_shared<ssl::context>(cluster.get());  // takes one reference
}

Result<TlsIdentity> load_tls_identity(const TlsFiles& files) {
  if (files.certificate.empty() || files.key.empty())
    return fail(error(ErrorCode::bad_value, "TLS needs a certificate and its key")
                    .with_fix("--ssl-certfile CHAIN.pem --ssl-keyfile KEY.pem")
                    .with_param(files.key.empty() ? "ssl-keyfile" : "ssl-certfile"));
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* const raw = context->native_handle();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_cipher_list(raw, "ECDHE+AESGCM:ECDHE+CHACHA20");  // for 1.2; all of 1.3 are good
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS);  // saves 34 kB per idle stream
  SSL_CTX_set_alpn_select_cb(raw, choose_protocol, nullptr);
  refuse_passphrases(raw);
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(raw, files.certificate.c_str()) != 1)
    return fail(bad_file("a certificate", files.certificate, "--ssl-certfile"));
  if (SSL_CTX_use_PrivateKey_file(raw, files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(raw) != 1)
    return fail(bad_file("its key", files.key, "--ssl-keyfile"));
  return TlsIdentity{std::move(context), days_left_of(raw)};
}

}  // namespace hocket
