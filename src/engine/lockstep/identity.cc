#include "engine/lockstep/identity.h"

#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "compute/weights/byte_sample.h"
#include "compute/weights/safetensors.h"
#include "core/version.h"
#include "engine/lockstep/overlap_settings.h"
#include "engine/plan/engine_info.h"
#include "engine/plan/model_choice.h"
#include "gguf/file.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

// Rises if a release computes other bits, or exchanges other messages, than the one before.
constexpr int kArithmeticLevel = 4;
// A tensor up to the first size is hashed whole, of a larger one a sample of each part.
constexpr size_t kMaxWholeBytes = 64 << 10, kPartBytes = 16 << 20;

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

Result<void> add_file(Sha256& sum, const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  if (!in) return fail(ErrorCode::io, "cannot read {}", path.string());
  sum.add(path.filename().string());
  sum.add(all);
  return {};
}

// Samples lie in the middle of each part. A fine-tune may change a few small tensors and no other,
// so each tensor counts.
void add_tensor(Sha256& sum, std::string_view name, const std::byte* data, size_t size) {
  const std::span<const std::byte> bytes(data, size);
  sum.add(name);
  if (size <= kMaxWholeBytes) return sum.add(text_of(bytes));
  const size_t num_parts = (size + kPartBytes - 1) / kPartBytes, part = size / num_parts;
  for (size_t i = 0; i < num_parts; ++i)
    sum.add(text_of(middle_sample(bytes.subspan(i * part, part))));
}

Result<void> add_weights(Sha256& sum, const fs::path& folder) {
  HOCKET_TRY(const auto weights, open_model_weights(folder));
  for (const std::string& name : weights->names()) {
    HOCKET_TRY(const StoredTensor tensor, weights->find(name));
    sum.add(fmt::format("{} [{}]", stored_type_name(tensor.type), fmt::join(tensor.shape, ", ")));
    add_tensor(sum, name, tensor.data, static_cast<size_t>(tensor.bytes));
  }
  return {};
}

// Hashes a GGUF file, which has all that a folder has.
Result<void> add_gguf(Sha256& sum, const fs::path& path) {
  HOCKET_TRY(const auto file, GgufFile::open(path));
  for (const GgufFile::Part& part : file->parts()) {
    const std::byte* const data = part.bytes.data() + part.header.data_offset;
    sum.add(part.path.filename().string());
    sum.add(text_of(part.bytes.first(static_cast<size_t>(part.header.data_offset))));
    for (const auto& [name, tensor] : part.header.tensors)
      add_tensor(sum, name, data + tensor.begin, static_cast<size_t>(tensor.end - tensor.begin));
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
      if (kind == ".json" || kind == ".jinja" || kind == ".txt" || kind == ".model")
        HOCKET_TRY_VOID(add_file(sum, file));
    }
    if (folder == model.model_path && !dummy) HOCKET_TRY_VOID(add_weights(sum, folder));
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
                                    .combine_dtype = choice.combine_dtype,
                                    .weight_format = choice.weight_format(),
                                    .prompt_form = choice.prompt_form,
                                    .answer_begins = choice.answer_begins,
                                    .combine_groups = choice.combine_groups});
  return fmt::format("{} | {}", kArithmeticLevel, form);
}

}  // namespace

Result<std::string> describe_bits(const ServerSettings& settings) {
  HOCKET_TRY(const std::string arithmetic, describe_arithmetic(settings));
  HOCKET_TRY(const std::string model, hash_model(settings.model));
  return fmt::format("model {} | arithmetic {}", model, arithmetic);
}

Result<Identity> make_identity(const ServerSettings& settings, const Launch& launch) {
  Identity self{.rank = launch.rank,
                .num_ranks = launch.num_ranks,
                .ranks_per_node = launch.ranks_per_node,
                .host = this_environment().host_name,
                .version = std::string(kVersion)};
  HOCKET_TRY(self.arithmetic, describe_arithmetic(settings));
  HOCKET_TRY(self.plans, describe_plans(settings));
  HOCKET_TRY(self.model_hash, hash_model(settings.model));
  self.disaggregation = settings.peers.disaggregation_mode;
  return self;
}

}  // namespace hocket
