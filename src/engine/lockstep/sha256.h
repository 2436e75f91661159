// SHA-256 over texts and files, each with its length.   Thread: the owner's.
#pragma once

#include <openssl/evp.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

class Sha256 {
 public:
  Sha256();
  // Hashes the length too, so that texts cut at other places differ.
  void add(std::string_view text);
  // Adds the file's name and all that it holds. Errors: io.
  Result<void> add_file(const std::filesystem::path& path);
  // Returns two hexadecimal digits for each of the first `num_bytes`, at most 32. Eight bytes are
  // enough against mistakes, not against attacks. Nothing can be added afterwards.
  std::string digits(int num_bytes = 8);

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace hocket
