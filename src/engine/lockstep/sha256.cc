#include "engine/lockstep/sha256.h"

#include <fmt/ranges.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>

#include "base/check.h"

namespace hocket {

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  HOCKET_CHECK(EVP_DigestInit_ex2(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::add(std::string_view text) {
  const uint64_t size = text.size();
  HOCKET_CHECK(EVP_DigestUpdate(context_.get(), &size, sizeof size) == 1);
  HOCKET_CHECK(EVP_DigestUpdate(context_.get(), text.data(), text.size()) == 1);
}

Result<void> Sha256::add_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  if (!in) return fail(ErrorCode::io, "cannot read {}", path.string());
  add(path.filename().string());
  add(all);
  return {};
}

std::string Sha256::digits(int num_bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  HOCKET_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1);
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + num_bytes, ""));
}

}  // namespace hocket
