#include "engine/ranks/identity.h"

#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "core/version.h"
#include "engine/plan/engine_info.h"
#include "engine/plan/model_choice.h"
#include "engine/ranks/overlap_settings.h"
#include "gguf/file.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

// Rises if a release computes other bits, or exchanges other messages, than the one before.
constexpr int kArithmeticLevel = 2;
constexpr uint64_t kMaxHeaderBytes = 100 << 20;  // limit in the format of safetensors
constexpr uint64_t kNumSamples = 16, kSampleBytes = 4096;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    HOCKET_CHECK(EVP_DigestInit_ex2(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  // Hashes the length too, so that texts cut at other places differ.
  void add(std::string_view text) {
    const uint64_t size = text.size();
    HOCKET_CHECK(EVP_DigestUpdate(context_.get(), &size, sizeof size) == 1);
    HOCKET_CHECK(EVP_DigestUpdate(context_.get(), text.data(), text.size()) == 1);
  }
  // Returns the first 16 hexadecimal digits: enough against mistakes, not against attacks.
  std::string digits() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    HOCKET_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1);
    return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + 8, ""));
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

// Returns `size` bytes from `from` on, less at the end of the file.
Result<std::string> read_part(std::ifstream& in, const fs::path& path, uint64_t from,
                              uint64_t size) {
  std::string bytes(size, '\0');
  in.clear();
  in.seekg(static_cast<std::streamoff>(from));
  in.read(bytes.data(), static_cast<std::streamsize>(size));
  if (in.bad() || (in.fail() && !in.eof()))
    return fail(ErrorCode::io, "cannot read {}", path.string());
  bytes.resize(static_cast<size_t>(in.gcount()));
  return bytes;
}

Result<void> add_file(Sha256& sum, const fs::path& path) {
  std::error_code problem;
  const uint64_t size = fs::file_size(path, problem);
  std::ifstream in(path, std::ios::binary);
  if (problem || !in) return fail(ErrorCode::io, "cannot read {}", path.string());
  HOCKET_TRY(const std::string all, read_part(in, path, 0, size));
  sum.add(path.filename().string());
  sum.add(all);
  return {};
}

Result<void> add_weights(Sha256& sum, const fs::path& path) {
  std::error_code problem;
  const uint64_t size = fs::file_size(path, problem);
  std::ifstream in(path, std::ios::binary);
  if (problem || !in) return fail(ErrorCode::io, "cannot read {}", path.string());
  HOCKET_TRY(const std::string length, read_part(in, path, 0, sizeof(uint64_t)));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, length.data(), length.size());
  header_bytes = std::min(header_bytes, kMaxHeaderBytes);  // the loader reports the error
  HOCKET_TRY(const std::string header, read_part(in, path, sizeof(uint64_t), header_bytes));
  sum.add(path.filename().string());
  sum.add(std::to_string(size));
  sum.add(header);
  const uint64_t first = sizeof(uint64_t) + header.size();
  const uint64_t room = size - std::min(size, first);
  for (uint64_t i = 0; i < kNumSamples; ++i) {
    HOCKET_TRY(const std::string sample,
               read_part(in, path, first + room / kNumSamples * i, kSampleBytes));
    sum.add(sample);
  }
  return {};
}

// Hashes a GGUF file, which has all that a folder has: its header and samples of its data.
Result<void> add_gguf(Sha256& sum, const fs::path& path) {
  HOCKET_TRY(const auto file, GgufFile::open(path));
  for (const GgufFile::Part& part : file->parts()) {
    const std::string_view bytes(reinterpret_cast<const char*>(part.bytes.data()),
                                 part.bytes.size());
    const auto header = std::min<size_t>(part.header.data_offset, bytes.size());
    sum.add(part.path.filename().string());
    sum.add(std::to_string(bytes.size()));
    sum.add(bytes.substr(0, header));
    const std::string_view data = bytes.substr(header);
    for (uint64_t i = 0; i < kNumSamples; ++i)
      sum.add(data.substr(data.size() / kNumSamples * i, kSampleBytes));
  }
  return {};
}

// Hashes the weights and all files that decide how texts become tokens and tokens answers.
Result<std::string> hash_model(const ModelSettings& model) {
  const bool dummy = model.load_format == "dummy";
  Sha256 sum;
  if (dummy) sum.add(fmt::format("dummy:{}", model.dummy_seed));
  const std::vector<fs::path> folders = {
      model.model_path, model.tokenizer_path.empty() ? model.model_path : model.tokenizer_path};
  for (const fs::path& folder : folders) {
    if (const fs::path gguf = gguf_file_of(folder); !gguf.empty()) {
      HOCKET_TRY_VOID(add_gguf(sum, gguf));
      if (folder == folders.back()) break;
      continue;
    }
    std::error_code problem;
    std::set<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder, problem)) files.insert(entry.path());
    if (problem)
      return fail(ErrorCode::model_not_found, "cannot read the folder {}: {}", folder.string(),
                  problem.message());
    for (const fs::path& file : files) {
      const fs::path kind = file.extension();
      if (kind == ".json" || kind == ".jinja" || kind == ".txt" || kind == ".model") {
        HOCKET_TRY_VOID(add_file(sum, file));
      } else if (kind == ".safetensors" && !dummy) {
        HOCKET_TRY_VOID(add_weights(sum, file));
      }
    }
    if (folder == folders.back()) break;
  }
  if (!model.chat_template.empty()) HOCKET_TRY_VOID(add_file(sum, model.chat_template));
  return sum.digits();
}

// Describes the steps that all ranks may run: orders, places of experts, limits of prompts and
// answers, and modules whose passes all ranks play. Limits that are planned from memory are
// compared later, when they are known.
Result<std::string> describe_plans(const ServerSettings& s) {
  HOCKET_TRY(const OverlapSettings overlap, choose_overlap(s.parallel));
  HOCKET_TRY(const ModelChoice choice, choose_model_form(s));
  std::string experts = s.parallel.init_expert_location;
  if (experts != "trivial") {
    Sha256 sum;
    HOCKET_TRY_VOID(add_file(sum, experts));
    experts = sum.digits();
  }
  experts += fmt::format(", {} replicas, placed by {}", s.parallel.ep_num_redundant_experts,
                         s.parallel.eplb_algorithm);
  if (s.parallel.enable_eplb)
    experts += fmt::format(", looked at every {} steps", s.parallel.eplb_rebalance_num_iterations);
  if (s.parallel.tolerate_ranks > 0)
    experts += fmt::format(", {} ranks may be missing", s.parallel.tolerate_ranks);
  return fmt::format(
      "{} orders, {:08x} | experts {} | context {}, chunk {}, prefill {}, running {} | {} | "
      "delayer {} | {} modules that guess | steps overlap: {}",
      overlap.orders->size(), overlap.orders->fingerprint(), experts, s.model.context_length,
      s.scheduler.chunked_prefill_size, s.scheduler.max_prefill_tokens,
      s.memory.max_running_requests,
      s.scheduler.enable_mixed_chunk ? "mixed" : s.scheduler.prefill_policy,
      s.parallel.enable_prefill_delayer ? s.parallel.prefill_delayer_max_passes : 0,
      choice.model.num_mtp_loaded,
      s.scheduler.disable_overlap_schedule ? "off" : s.scheduler.overlap_schedule);
}

Result<std::string> describe_arithmetic(const ServerSettings& settings) {
  HOCKET_TRY(const ModelChoice choice, choose_model_form(settings));
  const std::string form = form_of({.dtype = choice.dtype,
                                    .kv_dtype = choice.kv_dtype,
                                    .dispatch_dtype = choice.dispatch_dtype,
                                    .weight_format = choice.weight_format(),
                                    .prompt_role = choice.prompt_role,
                                    .combine_groups = choice.combine_groups});
  return fmt::format("{} | {}", kArithmeticLevel, form);
}

}  // namespace

Result<std::string> describe_bits(const ServerSettings& settings) {
  HOCKET_TRY(const std::string arithmetic, describe_arithmetic(settings));
  HOCKET_TRY(const std::string model, hash_model(settings.model));
  return fmt::format("model {} | arithmetic {}", model, arithmetic);
}

Result<Identity> make_identity(const ServerSettings& settings, const LaunchPlan& plan) {
  Identity self{.rank = plan.rank,
                .num_ranks = plan.num_ranks,
                .ranks_per_node = plan.ranks_per_node,
                .host = this_environment().host_name,
                .version = std::string(kVersion)};
  HOCKET_TRY(self.arithmetic, describe_arithmetic(settings));
  HOCKET_TRY(self.plans, describe_plans(settings));
  HOCKET_TRY(self.model_hash, hash_model(settings.model));
  return self;
}

}  // namespace hocket
