// TLS 1.3 between two ranks that know the cluster's token. There are no certificates:
//
//   token -- HKDF-SHA-256, "hocket tls 1" --> external PSK, with an ECDHE exchange (psk_dhe_ke)
//
// So a recorded connection stays secret even if the token becomes known later, and a side without
// the token fails in the handshake, before it can say or read anything. TLS 1.2 has no PSK with
// forward secrecy and AES-GCM in all libraries, and keeps the identity of a key outside the proof.
//
// A client of servers that are no ranks (etcd, Redis) has another context: these prove by a
// certificate who they are, and TLS 1.2 will do.
//
// A stream encrypts and decrypts in memory; its owner sends and receives the bytes and limits their
// number. Thread: any for a context; one for a stream. Source: RFC 8446, RFC 9257.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cluster/wire.h"

struct ssl_ctx_st;  // NOLINT(readability-identifier-naming): OpenSSL's
struct ssl_st;      // NOLINT(readability-identifier-naming): OpenSSL's

namespace hocket {

// Files in PEM by which a client and servers that are no ranks know each other.
struct CertificateFiles {
  std::string ca;                // that of the servers' certificates; empty: those of the system
  std::string certificate, key;  // the client's own, if the servers ask for one; both or none

  bool empty() const { return ca.empty() && certificate.empty() && key.empty(); }
};

// Prevents OpenSSL from asking for a key's passphrase on the terminal.
void refuse_passphrases(ssl_ctx_st* context);

class TlsContext {
 public:
  // For a client of servers that are no ranks. `flag` begins the names of the flags of the files:
  // FLAG-cacert (or with another `ca_end`), FLAG-cert, FLAG-key. Errors: bad_value, naming the
  // flag and the file.
  static Result<std::shared_ptr<const TlsContext>> for_servers(const CertificateFiles& files,
                                                               const std::string& flag,
                                                               const char* ca_end = "-cacert");
  // Precondition: the token is not empty. Errors: io, if OpenSSL here cannot speak TLS 1.3.
  static Result<std::shared_ptr<const TlsContext>> create(std::string_view token);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // OpenSSL's object, which owns the key. A client has to refuse certificates (SSL_VERIFY_PEER;
  // none is trusted), or a server without the token could answer with one.
  ssl_ctx_st* get() const { return context_; }
  // True if it is for servers that are no ranks.
  bool checks_certificates() const { return checks_certificates_; }

 private:
  TlsContext(ssl_ctx_st* context, bool checks_certificates)
      : context_(context), checks_certificates_(checks_certificates) {}
  ssl_ctx_st* const context_;
  const bool checks_certificates_;
};

// The values of --cluster-tls: "off", "on", "auto".
enum class TlsUse : uint8_t { off, on, automatic };
// Errors: bad_value.
Result<TlsUse> parse_tls_use(std::string_view text);

enum class TlsEnd : uint8_t { client, server };

// One end of one connection.
class TlsStream {
 public:
  // host: the name or address that the server's certificate must have, if it needs one.
  TlsStream(std::shared_ptr<const TlsContext> context, TlsEnd end, const std::string& host = {});
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Takes bytes of the other side; the first call of a client may have none. Appends what they say
  // to `plain`, and to `out` what has to be sent now. Errors, after which `out` may have an alert
  // and nothing more can be read: unauthorized before the handshake has ended (the other side has
  // another token or a wrong certificate, or does not speak TLS); lost_rank behind it (a record was
  // changed, or the other side has ended the stream).
  Result<void> receive(std::string_view bytes, std::string& plain, std::string& out);
  // Appends the records of `plain` to `out`. Until the handshake has ended they wait here.
  void send(std::string_view plain, std::string& out);

  bool is_open() const { return is_open_; }  // true when the handshake has ended well
  // True if the other side has ended the stream in order, so that no byte is missing.
  bool has_ended() const { return has_ended_; }
  size_t num_waiting() const { return waiting_.size(); }

 private:
  void expect_name(const std::string& host);
  Result<void> handshake(std::string& out);
  Result<void> read_records(std::string& plain);
  void take_records(std::string& out);

  const std::shared_ptr<const TlsContext> context_;
  ssl_st* const ssl_;
  std::string waiting_;  // bytes to send after the handshake
  bool is_open_ = false, has_ended_ = false;
};

}  // namespace hocket
