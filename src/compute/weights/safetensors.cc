#include "compute/weights/safetensors.h"

#include <fcntl.h>
#include <simdjson.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/nearest_name.h"
#include "compute/weights/byte_sample.h"
#include "compute/weights/fingerprint.h"
#include "compute/weights/gguf_source.h"
#include "compute/weights/json_fields.h"
#include "compute/weights/mapped_pages.h"

namespace hocket {
namespace {

constexpr int64_t kMaxHeaderBytes = 100'000'000;
constexpr int64_t kMaxIndexBytes = int64_t{256} << 20;
constexpr size_t kMaxRank = 32;
constexpr std::string_view kAgain = "the file is damaged or was cut short: download it again";

struct FileType {
  std::string_view name;
  int bits;
  StoredType type;
};
constexpr FileType kFileTypes[] = {
    {"F32", 32, StoredType::f32},
    {"F16", 16, StoredType::f16},
    {"BF16", 16, StoredType::bf16},
    {"I64", 64, StoredType::i64},
    {"I32", 32, StoredType::i32},
    {"I16", 16, StoredType::i16},
    {"I8", 8, StoredType::i8},
    {"U8", 8, StoredType::u8},
    {"BOOL", 8, StoredType::boolean},
    {"F64", 64, StoredType::f64},
    {"F8_E4M3", 8, StoredType::f8_e4m3},
    {"F8_E5M2", 8, StoredType::f8_e5m2},
    {"U16", 16, StoredType::other},
    {"U32", 32, StoredType::other},
    {"U64", 64, StoredType::other},
    {"C64", 64, StoredType::other},
    {"F8_E8M0", 8, StoredType::f8_e8m0},
    {"F8_E4M3FNUZ", 8, StoredType::other},
    {"F8_E5M2FNUZ", 8, StoredType::other},
    {"F4", 4, StoredType::other},
    {"F6_E2M3", 6, StoredType::other},
    {"F6_E3M2", 6, StoredType::other},
};

template <class... Args>
std::unexpected<Error> broken(fmt::format_string<Args...> text, Args&&... args) {
  return fail(error(ErrorCode::bad_safetensors, text, std::forward<Args>(args)...)
                  .with_fix(std::string(kAgain)));
}

// Reads an integer from 0 to the largest int64; returns false for anything else.
bool read_count(simdjson::dom::element value, int64_t& out) {
  return value.get(out) == simdjson::SUCCESS && out >= 0;
}

Result<SafetensorsEntry> read_entry(std::string_view name, simdjson::dom::object fields) {
  SafetensorsEntry entry;
  std::string_view type_name;
  simdjson::dom::array shape, offsets;
  if (repeated_key(fields)) return broken("tensor {} holds a key twice", shown(name));
  if (fields["dtype"].get(type_name) != simdjson::SUCCESS ||
      fields["shape"].get(shape) != simdjson::SUCCESS ||
      fields["data_offsets"].get(offsets) != simdjson::SUCCESS)
    return broken("tensor {} lacks dtype, shape or data_offsets of the right kind", shown(name));

  const auto* type = std::find_if(std::begin(kFileTypes), std::end(kFileTypes),
                                  [&](const FileType& t) { return t.name == type_name; });
  if (type == std::end(kFileTypes))
    return broken("tensor {} is of the unknown dtype {}", shown(name), shown(type_name));
  entry.type = type->type;
  entry.type_name = type_name;

  if (shape.size() > kMaxRank) return broken("tensor {} has {} axes", shown(name), shape.size());
  int64_t bits = type->bits;
  for (const simdjson::dom::element axis : shape) {
    int64_t length = 0;
    if (!read_count(axis, length))
      return broken("the shape of tensor {} holds something else than whole numbers from 0 up",
                    shown(name));
    if (__builtin_mul_overflow(bits, length, &bits))
      return broken("the shape of tensor {} is larger than any file", shown(name));
    entry.shape.push_back(length);
  }

  if (offsets.size() != 2 || !read_count(offsets.at(0).value_unsafe(), entry.begin) ||
      !read_count(offsets.at(1).value_unsafe(), entry.end) || entry.end < entry.begin)
    return broken("data_offsets of tensor {} are not two rising numbers", shown(name));
  if (bits % 8 != 0 || entry.end - entry.begin != bits / 8)
    return broken("tensor {} owns {} bytes, but its shape and dtype need {} bits", shown(name),
                  entry.end - entry.begin, bits);
  return entry;
}

Result<void> read_metadata(simdjson::dom::element value, SafetensorsHeader& header) {
  simdjson::dom::object fields;
  if (value.get(fields) != simdjson::SUCCESS) return broken("__metadata__ is not an object");
  for (const simdjson::dom::key_value_pair field : fields) {
    std::string_view text;
    if (field.value.get(text) != simdjson::SUCCESS)
      return broken("__metadata__ holds something else than strings");
    if (!header.metadata.emplace(field.key, text).second)
      return broken("__metadata__ holds the key {} twice", shown(field.key));
  }
  return {};
}

// Checks that the tensors tile the data: no hole, no overlap, no rest.
Result<void> check_tiling(const SafetensorsHeader& header, int64_t data_bytes) {
  using Named = std::pair<const std::string, SafetensorsEntry>;
  std::vector<const Named*> order;
  for (const Named& tensor : header.tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const Named* a, const Named* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  int64_t covered = 0;
  for (const Named* tensor : order) {
    const SafetensorsEntry& entry = tensor->second;
    if (entry.end > data_bytes)
      return broken("tensor {} ends at byte {} of the data, but the file holds only {}",
                    shown(tensor->first), entry.end, data_bytes);
    if (entry.begin != covered)
      return broken("tensor {} begins at byte {} of the data, but {} ends at {}",
                    shown(tensor->first), entry.begin,
                    entry.begin < covered ? "an overlapping one" : "the one before it", covered);
    covered = entry.end;
  }
  if (covered != data_bytes)
    return broken("the tensors end at byte {} of the data, but the file holds {}", covered,
                  data_bytes);
  return {};
}

Result<SafetensorsHeader> parse_header(std::span<const std::byte> head, int64_t file_bytes) {
  if (file_bytes < 8)
    return broken("the file has {} bytes, less than a header's length", file_bytes);
  uint64_t length = 0;
  std::memcpy(&length, head.data(), 8);
  if (length > kMaxHeaderBytes)
    return broken("the header claims {} bytes; at most {} are allowed", length, kMaxHeaderBytes);
  const auto header_bytes = static_cast<int64_t>(length);
  if (header_bytes > file_bytes - 8)
    return broken("the header claims {} bytes, but the file holds only {} after its length",
                  header_bytes, file_bytes - 8);
  HOCKET_CHECK(static_cast<int64_t>(head.size()) >= 8 + header_bytes);
  const auto* text = reinterpret_cast<const char*>(head.data()) + 8;
  if (header_bytes == 0 || text[0] != '{') return broken("the header does not begin with {{");

  simdjson::dom::parser parser;
  simdjson::dom::object root;
  const auto code = parser.parse(text, header_bytes).get(root);
  if (code != simdjson::SUCCESS)
    return broken("the header is not a JSON object: {}", simdjson::error_message(code));
  SafetensorsHeader header;
  header.data_offset = 8 + header_bytes;
  bool has_metadata = false;
  for (const simdjson::dom::key_value_pair field : root) {
    if (field.key == "__metadata__") {
      if (std::exchange(has_metadata, true)) return broken("the header holds __metadata__ twice");
      HOCKET_TRY_VOID(read_metadata(field.value, header));
      continue;
    }
    simdjson::dom::object fields;
    if (field.value.get(fields) != simdjson::SUCCESS)
      return broken("the entry of tensor {} is not an object", shown(field.key));
    HOCKET_TRY(SafetensorsEntry entry, read_entry(field.key, fields));
    if (!header.tensors.emplace(field.key, std::move(entry)).second)
      return broken("the header holds tensor {} twice", shown(field.key));
  }
  HOCKET_TRY_VOID(check_tiling(header, file_bytes - header.data_offset));
  return header;
}

Error missing_tensor(std::string_view name, const std::filesystem::path& where,
                     const std::vector<std::string>& names) {
  std::string message = fmt::format("{} holds no tensor {}", where.string(), shown(name));
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  if (const auto nearest = nearest_name(name, candidates))
    message += fmt::format("; the nearest of its {} is {}", names.size(), shown(*nearest));
  return error(ErrorCode::missing_tensor, "{}", message)
      .with_fix(
          "config.json and the weights may be of different models, or a file is missing: "
          "download the model again");
}

// A folder of shards with its index, which maps a name to its shard.
class ShardedWeights final : public WeightSource {
 public:
  static Result<std::unique_ptr<WeightSource>> open(const std::filesystem::path& folder,
                                                    const std::filesystem::path& index);
  Result<StoredTensor> find(std::string_view name) const override {
    const auto found = shard_of_.find(name);
    if (found == shard_of_.end()) return fail(missing_tensor(name, folder_, names()));
    return found->second->find(name);
  }
  bool has(std::string_view name) const override { return shard_of_.contains(name); }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, shard] : shard_of_) all.push_back(name);
    return all;
  }
  void will_read(const StoredTensor& tensor) const override {
    for (const auto& [file, shard] : shards_) shard->will_read(tensor);
  }
  void done_with(const StoredTensor& tensor) const override {
    for (const auto& [file, shard] : shards_) shard->done_with(tensor);
  }
  std::optional<uint64_t> identity() const override {
    Fingerprint all;
    all.add(index_);
    for (const auto& [file, shard] : shards_) all.add(*shard->identity());
    return all.value();
  }

 private:
  Result<void> add(std::string_view name, std::string_view file);

  std::filesystem::path folder_;
  uint64_t index_ = 0;  // hash of the index's text
  std::map<std::string, std::unique_ptr<SafetensorsFile>, std::less<>> shards_;
  std::map<std::string, const SafetensorsFile*, std::less<>> shard_of_;
};

Result<void> ShardedWeights::add(std::string_view name, std::string_view file) {
  if (file.empty() || file.find('/') != file.npos || file == "." || file == "..")
    return broken("the index places tensor {} in {}, which is no file of this folder", shown(name),
                  shown(file));
  auto shard = shards_.find(file);
  if (shard == shards_.end()) {
    auto opened = SafetensorsFile::open(folder_ / file);
    if (!opened) {
      Error e = std::move(opened).error();
      e.message += fmt::format(" (the index places tensor {} there)", shown(name));
      return fail(std::move(e));
    }
    shard = shards_.emplace(file, *std::move(opened)).first;
  }
  if (!shard->second->find(name))
    return broken("the index places tensor {} in {}, which does not hold it", shown(name),
                  (folder_ / file).string());
  if (!shard_of_.emplace(name, shard->second.get()).second)
    return broken("the index holds tensor {} twice", shown(name));
  return {};
}

Result<std::unique_ptr<WeightSource>> ShardedWeights::open(const std::filesystem::path& folder,
                                                           const std::filesystem::path& index) {
  HOCKET_TRY(const std::string text, read_small_file(index, kMaxIndexBytes));
  simdjson::dom::parser parser;
  simdjson::dom::object root, weight_map;
  const auto code = parser.parse(text).get(root);
  if (code != simdjson::SUCCESS)
    return broken("{} is not a JSON object: {}", index.string(), simdjson::error_message(code));
  if (root["weight_map"].get(weight_map) != simdjson::SUCCESS)
    return broken("{} has no weight_map", index.string());
  auto weights = std::make_unique<ShardedWeights>();
  weights->folder_ = folder;
  Fingerprint read;
  read.add(text);
  weights->index_ = read.value();
  for (const simdjson::dom::key_value_pair field : weight_map) {
    std::string_view file;
    if (field.value.get(file) != simdjson::SUCCESS)
      return broken("{} names no file for tensor {}", index.string(), shown(field.key));
    HOCKET_TRY_VOID(weights->add(field.key, file));
  }
  return weights;
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> head,
                                                   int64_t file_bytes) try {
  return parse_header(head, file_bytes);
} catch (const std::exception& e) {
  return broken("the header cannot be read: {}", e.what());
}

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::open(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT)
    return fail(error(ErrorCode::model_not_found, "there is no file {}", file.string())
                    .with_fix("download the model again, all files of it"));
  struct stat info = {};
  if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    Error e = error(ErrorCode::io, "cannot read {}: {}", file.string(),
                    fd < 0 ? std::strerror(errno) : "it is not a file");
    if (fd >= 0) close(fd);
    return fail(std::move(e).with_fix("check that this user may read it"));
  }
  auto opened = std::unique_ptr<SafetensorsFile>(new SafetensorsFile);
  opened->path_ = file;
  opened->bytes_ = info.st_size;
  if (info.st_size > 0) {
    void* map = mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map != MAP_FAILED) opened->map_ = static_cast<std::byte*>(map);
  }
  close(fd);
  if (info.st_size > 0 && opened->map_ == nullptr)
    return fail(error(ErrorCode::io, "cannot map {} ({} bytes): {}", file.string(), info.st_size,
                      std::strerror(errno))
                    .with_fix("raise the limit of address space (ulimit -v)"));
  opened->named_ = MappedFile(opened->map_, static_cast<size_t>(opened->bytes_), file.string());
  auto header =
      parse_safetensors_header({opened->map_, static_cast<size_t>(opened->bytes_)}, opened->bytes_);
  if (!header) {
    Error e = std::move(header).error();
    e.message = file.string() + ": " + e.message;
    return fail(std::move(e));
  }
  opened->header_ = *std::move(header);
  Fingerprint identity;
  identity.add(file.filename().string());
  identity.add_all(info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
  identity.add(text_of({opened->map_, static_cast<size_t>(opened->header_.data_offset)}));
  opened->identity_ = identity.value();
  return opened;
}

std::optional<uint64_t> SafetensorsFile::identity() const {
  Fingerprint all;
  all.add_all(identity_);
  const std::span<const std::byte> map(map_, static_cast<size_t>(bytes_));
  const auto sample_of = [&](const SafetensorsEntry& entry) {
    return middle_sample(map.subspan(static_cast<size_t>(header_.data_offset + entry.begin),
                                     static_cast<size_t>(entry.end - entry.begin)));
  };
  // All samples are asked for first, so that a disk reads many at once.
  for (const auto& [name, entry] : header_.tensors) fetch_pages(map, sample_of(entry));
  for (const auto& [name, entry] : header_.tensors) all.add(text_of(sample_of(entry)));
  return all.value();
}

SafetensorsFile::~SafetensorsFile() {
  if (map_ != nullptr) munmap(map_, bytes_);
}

Result<StoredTensor> SafetensorsFile::find(std::string_view name) const {
  const auto found = header_.tensors.find(name);
  if (found == header_.tensors.end()) return fail(missing_tensor(name, path_, names()));
  const SafetensorsEntry& entry = found->second;
  return StoredTensor{entry.type, entry.shape, map_ + header_.data_offset + entry.begin,
                      entry.end - entry.begin};
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> all;
  for (const auto& [name, entry] : header_.tensors) all.push_back(name);
  return all;
}

void SafetensorsFile::will_read(const StoredTensor& tensor) const {
  fetch_pages({map_, static_cast<size_t>(bytes_)},
              {tensor.data, static_cast<size_t>(tensor.bytes)});
}

void SafetensorsFile::done_with(const StoredTensor& tensor) const {
  drop_pages({map_, static_cast<size_t>(bytes_)}, {tensor.data, static_cast<size_t>(tensor.bytes)});
}

Result<std::unique_ptr<WeightSource>> open_model_weights(const std::filesystem::path& folder) try {
  if (const std::filesystem::path gguf = gguf_file_of(folder); !gguf.empty()) {
    HOCKET_TRY(std::unique_ptr<const GgufFile> file, GgufFile::open(gguf));
    return std::make_unique<GgufWeights>(std::move(file));
  }
  std::error_code ec;
  const std::filesystem::path single = folder / "model.safetensors";
  const std::filesystem::path index = folder / "model.safetensors.index.json";
  if (std::filesystem::exists(single, ec)) {
    HOCKET_TRY(std::unique_ptr<WeightSource> file, SafetensorsFile::open(single));
    return file;
  }
  if (std::filesystem::exists(index, ec)) return ShardedWeights::open(folder, index);
  return fail(error(ErrorCode::model_not_found,
                    "{} holds neither model.safetensors nor model.safetensors.index.json",
                    folder.string())
                  .with_fix("name a folder with weights in safetensors, or start with "
                            "--load-format dummy"));
} catch (const std::exception& e) {
  return broken("{}: {}", folder.string(), e.what());
}

}  // namespace hocket
