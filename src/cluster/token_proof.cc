#include "cluster/token_proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/check.h"
#include "base/log.h"

namespace hocket {

Result<std::string> read_cluster_token(const std::string& path) {
  constexpr size_t kMax = 4096;
  std::ifstream in(path, std::ios::binary);
  if (!in)
    return fail(error(ErrorCode::io, "cannot read the cluster token in {}", path)
                    .with_fix("--cluster-token-file names a file that every rank can read")
                    .with_param("cluster-token-file"));
  std::string token(kMax + 1, '\0');
  in.read(token.data(), static_cast<std::streamsize>(token.size()));
  token.resize(static_cast<size_t>(in.gcount()));
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = token.find_first_not_of(kSpace);
  token = first == std::string::npos
              ? ""
              : token.substr(first, token.find_last_not_of(kSpace) - first + 1);
  if (token.size() < kMinTokenBytes || token.size() > kMax)
    return fail(error(ErrorCode::bad_value,
                      "the cluster token in {} has {} bytes; {} to {} are taken", path,
                      token.size(), kMinTokenBytes, kMax)
                    .with_fix("make one with: openssl rand -hex 32 > token")
                    .with_param("cluster-token-file"));
  // A group may read the file if root owns it: Kubernetes mounts secrets so, and systemd
  // credentials.
  struct stat facts{};
  if (stat(path.c_str(), &facts) == 0 &&
      (facts.st_mode & (facts.st_uid == geteuid() ? S_IRGRP | S_IROTH : S_IROTH)) != 0)
    log::warning("cluster: other users can read the token in {}; chmod 600 keeps it from them",
                 path);
  return token;
}

Nonce make_nonce() {
  Nonce nonce;
  HOCKET_CHECK(RAND_bytes(nonce.data(), static_cast<int>(nonce.size())) == 1);
  return nonce;
}

Proof prove(std::string_view token, Side side, const Nonce& theirs, const Nonce& own) {
  std::string text = side == Side::rank_0 ? "hocket rank 0" : "hocket rank";
  text.append(reinterpret_cast<const char*>(theirs.data()), theirs.size());
  text.append(reinterpret_cast<const char*>(own.data()), own.size());
  return sign(token, text);
}

Proof sign(std::string_view token, std::string_view text) {
  Proof proof{};
  unsigned int length = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  HOCKET_CHECK(HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()), bytes, text.size(),
                    proof.data(), &length) != nullptr);
  HOCKET_CHECK(length == proof.size());
  return proof;
}

namespace {

std::string_view text_of(const Proof& proof) {
  return {reinterpret_cast<const char*>(proof.data()), proof.size()};
}

}  // namespace

Proof derive_key(std::string_view token, std::string_view use) {
  const Proof extracted = sign(text_of(Proof{}), token);
  return sign(text_of(extracted), std::string(use) + '\x01');
}

std::string token_for_pages(std::string_view token) {
  return token.empty() ? "" : std::string(text_of(derive_key(token, "hocket pages")));
}

Result<std::string> read_page_token(const std::string& path) {
  if (path.empty()) return std::string();
  HOCKET_TRY(const std::string token, read_cluster_token(path));
  return token_for_pages(token);
}

bool same_proof(const Proof& a, const Proof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace hocket
