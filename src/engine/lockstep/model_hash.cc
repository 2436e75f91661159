#include "engine/lockstep/model_hash.h"

#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"
#include "compute/weights/byte_sample.h"
#include "compute/weights/safetensors.h"
#include "engine/lockstep/sha256.h"
#include "gguf/file.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

// A tensor up to the first size is hashed whole, of a larger one a sample of each part.
constexpr size_t kMaxWholeBytes = 64 << 10, kPartBytes = 16 << 20;
constexpr int kAllDigits = 16;  // bytes of a hash that outlives the process

using Digest = std::array<std::byte, 32>;

// Has the disk read a whole part at once, without waiting.
void fetch(std::span<const std::byte> part) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(part.data()) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(part.data() + part.size());
  posix_madvise(reinterpret_cast<void*>(begin), end - begin, POSIX_MADV_WILLNEED);
}

Digest digest_of(std::span<const std::byte> part) {
  fetch(part);
  Digest digest{};
  HOCKET_CHECK(EVP_Digest(part.data(), part.size(), reinterpret_cast<unsigned char*>(digest.data()),
                          nullptr, EVP_sha256(), nullptr) == 1);
  return digest;
}

// Returns the digests of all parts in order. Threads take parts one by one.
std::vector<Digest> digests_of(const std::vector<std::span<const std::byte>>& parts) {
  std::vector<Digest> digests(parts.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < parts.size(); i = next++) digests[i] = digest_of(parts[i]);
  };
  const size_t num_threads = std::min<size_t>(parts.size(), std::thread::hardware_concurrency());
  std::vector<Thread> others;
  try {
    while (others.size() + 1 < num_threads)
      others.emplace_back(Thread::Options{.name = "hash"}, work);
  } catch (const std::system_error& why) {
    log::info("the model is hashed by {} threads, since the system refuses another: {}",
              others.size() + 1, why.what());
  }
  work();
  others.clear();  // joins them
  return digests;
}

// The names and bytes of tensors, in order.
class TensorSum {
 public:
  explicit TensorSum(HashedWeights bytes) : bytes_(bytes) {}

  void add(std::string_view text) { sum_.add(text); }
  // `bytes` stay mapped until digits() returns. Samples lie in the middle of each part. A fine-tune
  // may change a few small tensors and no other, so each tensor counts.
  void add_tensor(std::string_view name, std::span<const std::byte> bytes) {
    sum_.add(name);
    const bool whole = bytes_ == HashedWeights::all;
    if (!whole && bytes.size() <= kMaxWholeBytes) return sum_.add(text_of(bytes));
    const size_t num_parts = (bytes.size() + kPartBytes - 1) / kPartBytes;
    const size_t part = bytes.size() / std::max<size_t>(num_parts, 1);
    for (size_t i = 0; i < num_parts; ++i) {
      const size_t end = i + 1 < num_parts ? (i + 1) * part : bytes.size();
      if (whole)
        parts_.push_back(bytes.subspan(i * part, end - i * part));
      else
        sum_.add(text_of(middle_sample(bytes.subspan(i * part, part))));
    }
  }
  std::string digits() {
    if (bytes_ == HashedWeights::samples) return sum_.digits();
    for (const Digest& digest : digests_of(parts_)) sum_.add(text_of(digest));
    return sum_.digits(kAllDigits);
  }

 private:
  const HashedWeights bytes_;
  Sha256 sum_;
  std::vector<std::span<const std::byte>> parts_;
};

Result<std::string> hash_folder(const fs::path& folder, HashedWeights bytes) {
  HOCKET_TRY(const auto weights, open_model_weights(folder));
  TensorSum sum(bytes);
  for (const std::string& name : weights->names()) {
    HOCKET_TRY(const StoredTensor tensor, weights->find(name));
    sum.add(fmt::format("{} [{}]", stored_type_name(tensor.type), fmt::join(tensor.shape, ", ")));
    sum.add_tensor(name, {tensor.data, static_cast<size_t>(tensor.bytes)});
  }
  return sum.digits();
}

Result<std::string> hash_gguf(const fs::path& path, HashedWeights bytes) {
  HOCKET_TRY(const auto file, GgufFile::open(path));
  TensorSum sum(bytes);
  for (const GgufFile::Part& part : file->parts()) {
    const auto data = part.bytes.subspan(static_cast<size_t>(part.header.data_offset));
    sum.add(part.path.filename().string());
    sum.add(text_of(part.bytes.first(static_cast<size_t>(part.header.data_offset))));
    for (const auto& [name, tensor] : part.header.tensors)
      sum.add_tensor(name, data.subspan(static_cast<size_t>(tensor.begin),
                                        static_cast<size_t>(tensor.end - tensor.begin)));
  }
  return sum.digits();
}

// Returns the files directly in the folder, in order.
Result<std::set<fs::path>> files_in(const fs::path& folder) {
  std::error_code problem;
  std::set<fs::path> files;
  fs::directory_iterator entry(folder, problem);
  for (; !problem && entry != fs::directory_iterator(); entry.increment(problem))
    files.insert(entry->path());
  if (problem)
    return fail(ErrorCode::model_not_found, "cannot read the folder {}: {}", folder.string(),
                problem.message());
  return files;
}

Result<void> add_texts(Sha256& sum, const fs::path& folder) {
  if (const fs::path gguf = gguf_file_of(folder); !gguf.empty()) {
    HOCKET_TRY(const auto file, GgufFile::open(gguf));
    for (const GgufFile::Part& part : file->parts())
      sum.add(text_of(part.bytes.first(static_cast<size_t>(part.header.data_offset))));
    return {};
  }
  HOCKET_TRY(const std::set<fs::path> files, files_in(folder));
  for (const fs::path& file : files) {
    const fs::path kind = file.extension();
    if (kind == ".json" || kind == ".jinja" || kind == ".txt" || kind == ".model")
      HOCKET_TRY_VOID(sum.add_file(file));
  }
  return {};
}

}  // namespace

Result<std::string> hash_weights(const ModelSettings& model, HashedWeights bytes) {
  if (model.load_format == "dummy") {
    Sha256 sum;
    sum.add(fmt::format("dummy:{}", model.dummy_seed));
    return sum.digits();
  }
  const fs::path gguf = gguf_file_of(model.model_path);
  return gguf.empty() ? hash_folder(model.model_path, bytes) : hash_gguf(gguf, bytes);
}

Result<std::string> hash_texts(const ModelSettings& model) {
  Sha256 sum;
  HOCKET_TRY_VOID(add_texts(sum, model.model_path));
  if (!model.tokenizer_path.empty() && model.tokenizer_path != model.model_path)
    HOCKET_TRY_VOID(add_texts(sum, model.tokenizer_path));
  if (!model.chat_template.empty()) HOCKET_TRY_VOID(sum.add_file(model.chat_template));
  return sum.digits();
}

Result<std::vector<fs::path>> weight_files(const ModelSettings& model) {
  std::vector<fs::path> found;
  if (model.load_format == "dummy") return found;
  if (const fs::path gguf = gguf_file_of(model.model_path); !gguf.empty()) {
    HOCKET_TRY(const auto file, GgufFile::open(gguf));
    for (const GgufFile::Part& part : file->parts()) found.push_back(part.path);
    return found;
  }
  HOCKET_TRY(const std::set<fs::path> files, files_in(model.model_path));
  std::ranges::copy_if(files, std::back_inserter(found),
                       [](const fs::path& file) { return file.extension() == ".safetensors"; });
  return found;
}

}  // namespace hocket
