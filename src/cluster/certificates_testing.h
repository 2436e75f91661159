// Tests only: a CA and certificates made here, as PEM files in a folder that ends with the object.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "base/check.h"
#include "cluster/tls.h"

namespace hocket {

class TestCertificates {
 public:
  TestCertificates() {
    std::string folder = (std::filesystem::temp_directory_path() / "hocket_pem_XXXXXX").string();
    HOCKET_CHECK(mkdtemp(folder.data()) != nullptr);
    folder_ = folder;
    make("ca", "");
  }
  ~TestCertificates() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TestCertificates(const TestCertificates&) = delete;
  TestCertificates& operator=(const TestCertificates&) = delete;

  // Makes NAME.crt and NAME.key. `names`: "IP:127.0.0.1,DNS:localhost"; empty: it has none.
  void make(const std::string& name, const std::string& names) {
    const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
    const Certificate made(X509_new(), X509_free);
    X509_set_version(made.get(), X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), ++num_made_);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -60);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), 86400);
    X509_set_pubkey(made.get(), key.get());
    X509_NAME* const subject = X509_get_subject_name(made.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    const bool is_ca = ca_ == nullptr;
    add(made.get(), NID_basic_constraints, is_ca ? "critical,CA:TRUE" : "CA:FALSE");
    if (!names.empty()) add(made.get(), NID_subject_alt_name, names);
    X509_set_issuer_name(made.get(), is_ca ? subject : X509_get_subject_name(ca_.get()));
    X509_sign(made.get(), is_ca ? key.get() : ca_key_.get(), EVP_sha256());
    write(name + ".crt", [&](FILE* out) { return PEM_write_X509(out, made.get()); });
    write(name + ".key", [&](FILE* out) {
      return PEM_write_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
    if (!is_ca) return;
    X509_up_ref(made.get());
    EVP_PKEY_up_ref(key.get());
    ca_.reset(made.get());
    ca_key_.reset(key.get());
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  // A client that trusts this CA, and proves itself as `client`, if that is not empty.
  std::shared_ptr<const TlsContext> trusting(const std::string& client = {}) const {
    CertificateFiles files{.ca = file("ca.crt")};
    if (!client.empty()) files.certificate = file(client + ".crt");
    if (!client.empty()) files.key = file(client + ".key");
    return TlsContext::for_servers(files, "store").value();
  }

 private:
  using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
  using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

  static void add(X509* to, int kind, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, to, to, nullptr, nullptr, 0);
    X509_EXTENSION* const made = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
    HOCKET_CHECK(made != nullptr);
    X509_add_ext(to, made, -1);
    X509_EXTENSION_free(made);
  }
  template <class Write>
  void write(const std::string& name, Write&& write_pem) const {
    FILE* const out = std::fopen(file(name).c_str(), "w");
    HOCKET_CHECK(out != nullptr);
    HOCKET_CHECK(write_pem(out) == 1);
    std::fclose(out);
  }

  std::filesystem::path folder_;
  long num_made_ = 0;
  Certificate ca_{nullptr, X509_free};
  Key ca_key_{nullptr, EVP_PKEY_free};
};

}  // namespace hocket
