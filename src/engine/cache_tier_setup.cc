#include "engine/cache_tier_setup.h"

#include <openssl/evp.h>

#include <cmath>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/ranks/identity.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

// Raise this if the bytes of a page mean other numbers than before.
constexpr int kPageLevel = 1;
constexpr double kShareOfFreeDisk = 0.5;

Error unfit(const char* flag, std::string why, std::string fix) {
  return error(ErrorCode::bad_value, "{}", why).with_param(flag).with_fix(std::move(fix));
}

// Describes all that the bytes of a page depend on, beside its tokens and those before it.
Result<std::string> describe_pages(const ServerSettings& settings, Runner& runner) {
  HOCKET_TRY(std::string text, describe_bits(settings));
  const PagePool& pages = runner.pages();
  text += fmt::format(" | pages {} | states of {} bytes |", kPageLevel,
                      runner.states() != nullptr ? runner.states()->state_bytes() : 0);
  for (int layer = 0; layer < pages.num_layers(); ++layer) {
    const KvShape shape = pages.layer(layer).shape;
    text += fmt::format(" {}:{}:{}:{}:{}:{}", static_cast<int>(shape.kind), dtype_name(shape.dtype),
                        shape.num_heads, shape.key_dim, shape.value_dim, shape.page_tokens);
  }
  return text;
}

PageKey hash_text(const std::string& text) {
  PageKey key{};
  HOCKET_CHECK(EVP_Digest(text.data(), text.size(), key.data(), nullptr, EVP_sha256(), nullptr) ==
               1);
  return key;
}

Result<void> check_flags(const ServerSettings& settings, const Runner& runner) {
  const MemorySettings& memory = settings.memory;
  if (memory.kv_cache_dir.empty()) {
    if (memory.kv_cache_dir_gb == 0) return {};
    return fail(unfit("kv-cache-dir-gb", "--kv-cache-dir-gb changes nothing without a folder",
                      "--kv-cache-dir DIR"));
  }
  if (!(std::isfinite(memory.kv_cache_dir_gb) && memory.kv_cache_dir_gb >= 0 &&
        memory.kv_cache_dir_gb <= 1e9))
    return fail(
        unfit("kv-cache-dir-gb",
              fmt::format("--kv-cache-dir-gb {} is not in 0 to 1e9", memory.kv_cache_dir_gb),
              "--kv-cache-dir-gb 100"));
  if (settings.scheduler.disable_radix_cache)
    return fail(unfit("kv-cache-dir",
                      "--kv-cache-dir keeps what the prefix cache holds, and --disable-radix-cache "
                      "takes that away",
                      "one of the two"));
  if (runner.info().num_window_pages > 0)
    return fail(unfit("kv-cache-dir",
                      "--kv-cache-dir keeps pages of full and latent attention and states of delta "
                      "nets; pages of sliding windows cannot be kept yet",
                      "no --kv-cache-dir for this model"));
  return {};
}

Result<int64_t> choose_bytes(double given_gb, const fs::path& folder) {
  if (given_gb > 0) return static_cast<int64_t>(given_gb * 1e9);
  std::error_code problem;
  const fs::space_info space = fs::space(folder, problem);
  if (problem)
    return fail(unfit(
        "kv-cache-dir-gb",
        fmt::format("the free disk at {} is not known: {}", folder.string(), problem.message()),
        "--kv-cache-dir-gb 100"));
  return static_cast<int64_t>(kShareOfFreeDisk * static_cast<double>(space.available));
}

}  // namespace

Result<std::optional<CacheTier::Options>> choose_cache_tier(const ServerSettings& settings,
                                                            Runner& runner) {
  const MemorySettings& memory = settings.memory;
  HOCKET_TRY(const StoragePrefetch prefetch,
             parse_storage_prefetch(memory.hicache_storage_prefetch_policy));
  HOCKET_TRY_VOID(check_flags(settings, runner));
  if (memory.kv_cache_dir.empty()) return std::nullopt;
  HOCKET_TRY(const std::string form, describe_pages(settings, runner));
  const PageKey key = hash_text(form);
  std::string name;
  for (size_t i = 0; i < 8; ++i) name += fmt::format("{:02x}", key[i]);
  // Pages of other models lie beside these, in folders of their own.
  const fs::path folder = fs::path(memory.kv_cache_dir) / name;
  std::error_code problem;  // open() reports it
  fs::create_directories(folder, problem);
  HOCKET_TRY(const int64_t free_bytes, choose_bytes(memory.kv_cache_dir_gb, folder));
  HOCKET_TRY(std::unique_ptr<PageFiles> files,
             PageFiles::open({.folder = folder, .most_bytes = free_bytes}));
  const PageFiles::Figures now = files->figures();
  log::info("prefixes in files: {} files, {:.2f} GB of at most {:.2f} GB, in {}", now.files,
            static_cast<double>(now.bytes) * 1e-9, static_cast<double>(free_bytes) * 1e-9,
            folder.string());
  return CacheTier::Options{.files = std::move(files),
                            .form = key,
                            .page_tokens = runner.info().page_tokens,
                            .prefetch = prefetch};
}

}  // namespace hocket
