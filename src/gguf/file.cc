#include "gguf/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>

namespace hocket {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr int64_t kMaxParts = 1024;

// The name of a part without its number: "model" and 4 of "model-00002-of-00004.gguf".
struct PartName {
  std::string model;
  int64_t count = 0;
  std::string of(int64_t part) const {
    return fmt::format("{}-{:05}-of-{:05}{}", model, part + 1, count, kSuffix);
  }
};

std::optional<PartName> part_name(std::string_view file) {
  constexpr size_t kDigits = 5, kTail = 1 + kDigits + 4 + kDigits;  // -00002-of-00004
  if (!file.ends_with(kSuffix)) return std::nullopt;
  file.remove_suffix(kSuffix.size());
  if (file.size() <= kTail) return std::nullopt;
  const std::string_view tail = file.substr(file.size() - kTail);
  PartName name{.model = std::string(file.substr(0, file.size() - kTail))};
  const std::string_view count = tail.substr(kTail - kDigits);
  const auto [end, problem] = std::from_chars(count.data(), count.data() + kDigits, name.count);
  const bool sound = tail[0] == '-' && tail.substr(1 + kDigits, 4) == "-of-" &&
                     tail.substr(1, kDigits).find_first_not_of("0123456789") == tail.npos &&
                     problem == std::errc() && end == count.data() + kDigits;
  if (!sound || name.count < 1 || name.count > kMaxParts) return std::nullopt;
  return name;
}

std::unexpected<Error> misfit(const std::filesystem::path& path, const std::string& what) {
  return fail(error(ErrorCode::bad_gguf, "{}: {}", path.string(), what)
                  .with_fix("download all parts of the model again, and keep their names"));
}

// Publishers put parts that are no language model beside it: those that read images, and modules
// for multi-token prediction.
bool is_beside_model(std::string_view file) {
  return file.starts_with("mmproj") || file.starts_with("mtp-");
}

// True for a file that begins as GGUF does: programs that download models name some by a checksum.
bool is_marked(const std::filesystem::path& path) {
  constexpr std::string_view kMark = "GGUF";
  char begins[kMark.size()] = {};
  std::ifstream(path, std::ios::binary).read(begins, sizeof(begins));
  return std::string_view(begins, sizeof(begins)) == kMark;
}

// True for a file whose header says that it holds statistics, a part that reads images, or changes
// of a model. Their names are not agreed upon.
bool says_it_is_no_model(const std::filesystem::path& path) {
  constexpr std::string_view kOthers[] = {"imatrix", "mmproj", "adapter", "clip-vision"};
  const auto file = GgufFile::open(path, GgufExtent::header);
  if (!file) return false;
  const auto type = (*file)->metadata().text("general.type");
  return type && std::ranges::find(kOthers, *type) != std::end(kOthers);
}

}  // namespace

Result<void> GgufFile::add(const std::filesystem::path& path, GgufExtent extent) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not wait
  if (fd < 0 && errno == ENOENT)
    return fail(error(ErrorCode::model_not_found, "there is no file {}", path.string())
                    .with_fix("--model-path must name a GGUF file or a model folder"));
  struct stat info = {};
  if (fd < 0 || fstat(fd, &info) != 0) {
    Error e = error(ErrorCode::io, "cannot read {}: {}", path.string(), std::strerror(errno));
    if (fd >= 0) close(fd);
    return fail(std::move(e).with_fix("check that this user may read it"));
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return fail(error(ErrorCode::bad_gguf, "{} is not a file", path.string())
                    .with_fix("--model-path must name a GGUF file or a model folder"));
  }
  const auto bytes = static_cast<size_t>(info.st_size);
  void* const map = bytes == 0 ? nullptr : mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  const int problem = errno;
  close(fd);
  if (map == MAP_FAILED)
    return fail(error(ErrorCode::io, "cannot map {} ({} bytes): {}", path.string(), bytes,
                      std::strerror(problem))
                    .with_fix("raise the limit of address space (ulimit -v)"));
  Part& part = parts_.emplace_back();
  part.path = path;
  part.bytes = {static_cast<const std::byte*>(map), bytes};
  part.changed_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  part.named = MappedFile(map, bytes, path.string());
  auto header = parse_gguf_header(part.bytes, extent);
  if (!header) {
    Error e = std::move(header).error();
    e.message = path.string() + ": " + e.message;
    return fail(std::move(e));
  }
  part.header = *std::move(header);
  return {};
}

Result<void> GgufFile::add_other_parts(GgufExtent extent) {
  const int64_t count = metadata().integer("split.count").value_or(1);
  if (count <= 1) return {};
  const std::filesystem::path first = path();
  const std::optional<PartName> name = part_name(first.filename().string());
  if (!name || name->count != count)
    return misfit(first, fmt::format("the file is one of {} parts, but its name does not end in "
                                     "-00001-of-{:05}.gguf",
                                     count, count));
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) HOCKET_TRY_VOID(add(first.parent_path() / name->of(i), extent));
    const GgufMetadata& part = parts_.back().header.metadata;
    if (part.integer("split.no") != i || part.integer("split.count") != count)
      return misfit(parts_.back().path, fmt::format("the file is not part {} of {}", i + 1, count));
  }
  size_t tensors = 0;
  for (const Part& part : parts_) {
    tensors += part.header.tensors.size();
    for (const auto& [tensor, unused] : part.header.tensors)
      if (find(tensor).tensor != &part.header.tensors.at(tensor))
        return misfit(part.path, "a tensor is in two parts");
  }
  const auto claimed = metadata().integer("split.tensors.count");
  if (claimed && *claimed != static_cast<int64_t>(tensors))
    return misfit(first, fmt::format("the parts hold {} tensors, not {}", tensors, *claimed));
  return {};
}

Result<std::unique_ptr<const GgufFile>> GgufFile::open(const std::filesystem::path& path,
                                                       GgufExtent extent) {
  std::filesystem::path first = path;
  if (const auto name = part_name(path.filename().string()))
    first = path.parent_path() / name->of(0);
  std::unique_ptr<GgufFile> file(new GgufFile);
  HOCKET_TRY_VOID(file->add(first, extent));
  HOCKET_TRY_VOID(file->add_other_parts(extent));
  return file;
}

GgufFile::~GgufFile() {
  for (const Part& part : parts_)
    if (!part.bytes.empty()) munmap(const_cast<std::byte*>(part.bytes.data()), part.bytes.size());
}

GgufFile::TensorData GgufFile::find(std::string_view name) const {
  for (const Part& part : parts_)
    if (const auto found = part.header.tensors.find(name); found != part.header.tensors.end()) {
      const GgufTensor& tensor = found->second;
      const bool is_there = part.header.data_offset + tensor.end <= std::ssize(part.bytes);
      return {&tensor,
              is_there ? part.bytes.data() + part.header.data_offset + tensor.begin : nullptr};
    }
  return {};
}

std::vector<std::filesystem::path> gguf_models_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> all;
  std::error_code problem;
  std::filesystem::directory_iterator entry(folder, problem);
  for (; !problem && entry != std::filesystem::directory_iterator(); entry.increment(problem)) {
    const std::string file = entry->path().filename().string();
    if (entry->path().extension() != kSuffix || is_beside_model(file)) continue;
    const auto name = part_name(file);
    if (!name || file == name->of(0)) all.push_back(entry->path());
  }
  if (all.size() > 1) std::erase_if(all, says_it_is_no_model);
  std::ranges::sort(all);
  return all;
}

std::filesystem::path gguf_file_of(const std::filesystem::path& path) {
  if (path.extension() == kSuffix) return path;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return is_marked(path) ? path : "";
  if (!std::filesystem::is_directory(path, ignored) ||
      std::filesystem::exists(path / "config.json", ignored))
    return {};
  const std::vector<std::filesystem::path> models = gguf_models_in(path);
  return models.size() == 1 ? models.front() : std::filesystem::path();
}

}  // namespace hocket
