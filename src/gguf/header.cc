#include "gguf/header.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace hocket {
namespace {

constexpr uint64_t kMaxKeyBytes = 1024, kMaxNameBytes = 256;
constexpr uint64_t kMaxAxes = 4;
// Published files have some thousand tensors and some hundred values; each takes memory.
constexpr uint64_t kMaxTensors = 1 << 18, kMaxValues = 1 << 16;
constexpr uint64_t kMaxList = 1 << 24;  // entries of a list
constexpr int64_t kMaxAlignment = 1 << 20;
constexpr int64_t kMaxFileBytes = int64_t{1} << 50;
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxHeaderBytes = int64_t{512} << 20;
constexpr double kMaxWhole = 9007199254740992.0;  // 2^53

// Value types of the metadata. 0 is a number of 8 bits without sign.
constexpr uint32_t kI8 = 1, kU16 = 2, kI16 = 3, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kText = 8,
                   kArray = 9, kU64 = 10, kI64 = 11, kF64 = 12, kNumTypes = 13;

// Returns 0 for texts and arrays.
int scalar_bytes(uint32_t type) {
  constexpr int kBytes[kNumTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < kNumTypes ? kBytes[type] : 0;
}

template <class T>
double number_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return static_cast<double>(value);
}

double scalar(uint32_t type, const std::byte* from) {
  switch (type) {
    case kI8:
      return number_as<int8_t>(from);
    case kU16:
      return number_as<uint16_t>(from);
    case kI16:
      return number_as<int16_t>(from);
    case kU32:
      return number_as<uint32_t>(from);
    case kI32:
      return number_as<int32_t>(from);
    case kF32:
      return number_as<float>(from);
    case kU64:
      return number_as<uint64_t>(from);
    case kI64:
      return number_as<int64_t>(from);
    case kF64:
      return number_as<double>(from);
    default:
      return number_as<uint8_t>(from);
  }
}

template <class... Args>
std::unexpected<Error> broken(fmt::format_string<Args...> text, Args&&... args) {
  return fail(error(ErrorCode::bad_gguf, text, std::forward<Args>(args)...)
                  .with_fix("the file is damaged or was cut short: download it again"));
}

}  // namespace

// Reads from the front of the file. A failed take leaves an error.
class GgufHeaderReader {
 public:
  GgufHeaderReader(std::span<const std::byte> file, GgufExtent extent)
      : file_(file), extent_(extent) {}
  Result<GgufHeader> read();

 private:
  using Array = GgufMetadata::Array;
  uint64_t remaining() const { return std::min<uint64_t>(file_.size(), kMaxHeaderBytes) - at_; }
  Result<std::span<const std::byte>> take(uint64_t bytes, std::string_view what);
  template <class T>
  Result<T> take_number(std::string_view what);
  Result<std::string_view> take_text(uint64_t max_bytes, std::string_view what);
  Result<Array> take_array(std::string_view key);
  Result<void> read_value(std::string_view key);
  Result<void> read_metadata(uint64_t count);
  Result<GgufTensor> read_tensor(std::string_view name);
  Result<void> read_tensors(uint64_t count);
  Result<void> check_data();

  std::span<const std::byte> file_;
  const GgufExtent extent_;
  uint64_t at_ = 0;
  GgufHeader header_;
};

Result<std::span<const std::byte>> GgufHeaderReader::take(uint64_t bytes, std::string_view what) {
  if (bytes > remaining())
    return broken("{} at byte {} has {} bytes, but {} are left for the header", what, at_, bytes,
                  remaining());
  const auto taken = file_.subspan(at_, bytes);
  at_ += bytes;
  return taken;
}

template <class T>
Result<T> GgufHeaderReader::take_number(std::string_view what) {
  HOCKET_TRY(const auto bytes, take(sizeof(T), what));
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

Result<std::string_view> GgufHeaderReader::take_text(uint64_t max_bytes, std::string_view what) {
  HOCKET_TRY(const auto length, take_number<uint64_t>(what));
  if (length > max_bytes)
    return broken("{} has {} bytes; at most {} are allowed", what, length, max_bytes);
  HOCKET_TRY(const auto bytes, take(length, what));
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<GgufMetadata::Array> GgufHeaderReader::take_array(std::string_view key) {
  Array array;
  HOCKET_TRY(array.type, take_number<uint32_t>("the type of a list"));
  HOCKET_TRY(array.count, take_number<uint64_t>("the length of a list"));
  if (array.count > kMaxList)
    return broken("the list {} claims {} entries; at most {} are allowed", quoted_ascii(key),
                  array.count, kMaxList);
  const uint64_t start = at_;
  if (const int size = scalar_bytes(array.type); size > 0) {
    if (array.count > remaining() / size)
      return broken("the list {} claims {} numbers, but {} bytes are left for the header",
                    quoted_ascii(key), array.count, remaining());
    at_ += array.count * size;
  } else if (array.type == kText) {
    if (array.count > remaining() / 8)
      return broken("the list {} claims {} texts, but {} bytes are left for the header",
                    quoted_ascii(key), array.count, remaining());
    for (uint64_t i = 0; i < array.count; ++i)
      HOCKET_TRY_VOID(take_text(kMaxHeaderBytes, "a text of a list"));
  } else if (array.type == kArray) {
    return fail(error(ErrorCode::unsupported_model,
                      "the list {} holds lists, which are not supported", quoted_ascii(key))
                    .with_fix("take another GGUF file of the model"));
  } else {
    return broken("the list {} holds values of type {}; lists hold numbers or texts",
                  quoted_ascii(key), array.type);
  }
  array.bytes = file_.subspan(start, at_ - start);
  return array;
}

Result<void> GgufHeaderReader::read_value(std::string_view key) {
  HOCKET_TRY(const auto type, take_number<uint32_t>("the type of a value"));
  GgufMetadata::Value value;
  if (type == kText) {
    HOCKET_TRY(value, take_text(kMaxHeaderBytes, "a text"));
  } else if (type == kArray) {
    HOCKET_TRY(value, take_array(key));
  } else if (const int size = scalar_bytes(type); size > 0) {
    HOCKET_TRY(const auto bytes, take(size, "a value"));
    const double number = scalar(type, bytes.data());
    if (type == kBool) {
      value = number != 0;
    } else {
      value = number;
    }
  } else {
    return broken("the value {} is of the unknown type {}", quoted_ascii(key), type);
  }
  if (!header_.metadata.values_.emplace(key, value).second)
    return broken("the metadata hold the key {} twice", quoted_ascii(key));
  return {};
}

Result<void> GgufHeaderReader::read_metadata(uint64_t count) {
  constexpr uint64_t kMinEntryBytes = 8 + 4 + 1;  // bytes of the shortest entry
  if (count > remaining() / kMinEntryBytes || count > kMaxValues)
    return broken("the header claims {} values, more than {}, or than its {} bytes can hold", count,
                  kMaxValues, remaining());
  for (uint64_t i = 0; i < count; ++i) {
    HOCKET_TRY(const auto key, take_text(kMaxKeyBytes, "a key"));
    HOCKET_TRY_VOID(read_value(key));
  }
  return {};
}

Result<GgufTensor> GgufHeaderReader::read_tensor(std::string_view name) {
  GgufTensor tensor;
  HOCKET_TRY(const auto axes, take_number<uint32_t>("the number of axes"));
  if (axes < 1 || axes > kMaxAxes)
    return broken("tensor {} has {} axes, not 1 to {}", quoted_ascii(name), axes, kMaxAxes);
  int64_t numbers = 1;
  for (uint32_t i = 0; i < axes; ++i) {
    HOCKET_TRY(const auto length, take_number<int64_t>("an axis"));
    if (length < 1 || __builtin_mul_overflow(numbers, length, &numbers))
      return broken("tensor {} has an impossible shape: axis {} is {}", quoted_ascii(name), i,
                    length);
    tensor.shape.insert(tensor.shape.begin(), length);
  }
  HOCKET_TRY(const auto type, take_number<uint32_t>("a type"));
  tensor.type = gguf_type(type);
  if (tensor.type == nullptr)
    return fail(error(ErrorCode::unsupported_model,
                      "tensor {} is stored as {}, which is not supported; supported are {}",
                      quoted_ascii(name), gguf_type_name(type), gguf_supported_types())
                    .with_fix("take a file of the model in these types; most publishers of GGUF "
                              "files have one"));
  if (tensor.shape.back() % tensor.type->block != 0)
    return broken("tensor {} has rows of {} numbers, which are no whole blocks of {}, as {} has",
                  quoted_ascii(name), tensor.shape.back(), tensor.type->block, tensor.type->name);
  int64_t bytes = numbers / tensor.type->block;
  HOCKET_TRY(tensor.begin, take_number<int64_t>("an offset"));
  if (tensor.begin < 0 || __builtin_mul_overflow(bytes, int64_t{tensor.type->bytes}, &bytes) ||
      __builtin_add_overflow(tensor.begin, bytes, &tensor.end))
    return broken("tensor {} ends beyond any file", quoted_ascii(name));
  return tensor;
}

Result<void> GgufHeaderReader::read_tensors(uint64_t count) {
  constexpr uint64_t kMinEntryBytes = 8 + 4 + 8 + 4 + 8;  // bytes of the shortest entry
  if (count > remaining() / kMinEntryBytes || count > kMaxTensors)
    return broken("the header claims {} tensors, more than {}, or than its {} bytes can hold",
                  count, kMaxTensors, remaining());
  for (uint64_t i = 0; i < count; ++i) {
    HOCKET_TRY(const auto name, take_text(kMaxNameBytes, "a tensor's name"));
    HOCKET_TRY(GgufTensor tensor, read_tensor(name));
    if (!header_.tensors.emplace(name, std::move(tensor)).second)
      return broken("the header holds tensor {} twice", quoted_ascii(name));
  }
  return {};
}

// Checks that the tensors lie one behind the other, each at the alignment, within the file; if only
// the header must be there, within the largest file that there can be.
Result<void> GgufHeaderReader::check_data() {
  const int64_t alignment =
      header_.metadata.integer("general.alignment").value_or(kDefaultAlignment);
  if (alignment < 1 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0)
    return broken("general.alignment is {}, not a power of two up to {}", alignment, kMaxAlignment);
  const auto padded = [&](int64_t at) { return (at + alignment - 1) / alignment * alignment; };
  header_.data_offset = padded(static_cast<int64_t>(at_));
  const int64_t file_bytes =
      extent_ == GgufExtent::whole ? static_cast<int64_t>(file_.size()) : kMaxFileBytes;
  if (header_.tensors.empty()) {  // nothing pads the file then
    header_.data_offset = std::min(header_.data_offset, static_cast<int64_t>(file_.size()));
    return {};
  }
  if (header_.data_offset > file_bytes)
    return broken("the data begin at byte {}, but the file holds {}", header_.data_offset,
                  file_bytes);
  std::vector<std::pair<std::string_view, const GgufTensor*>> order;
  for (const auto& [name, tensor] : header_.tensors) order.emplace_back(name, &tensor);
  std::ranges::sort(order, {}, [](const auto& entry) { return entry.second->begin; });
  int64_t covered = 0;
  for (const auto& [name, tensor] : order) {
    if (tensor->end > file_bytes - header_.data_offset)
      return broken("tensor {} ends at byte {} of the data, but the file holds only {}",
                    quoted_ascii(name), tensor->end, file_bytes - header_.data_offset);
    if (tensor->begin != padded(covered))
      return broken("tensor {} begins at byte {} of the data, but {} ends at {}",
                    quoted_ascii(name), tensor->begin,
                    tensor->begin < covered ? "an overlapping one" : "the one before it", covered);
    covered = tensor->end;
  }
  return {};
}

Result<GgufHeader> GgufHeaderReader::read() {
  HOCKET_TRY(const auto magic, take(4, "the mark GGUF"));
  if (std::memcmp(magic.data(), "GGUF", 4) != 0)
    return broken("the file does not begin with the mark GGUF");
  HOCKET_TRY(const auto version, take_number<uint32_t>("the version"));
  if (version != 2 && version != 3) {
    const bool swapped = (version & 0xffff) == 0 && version != 0;
    return fail(error(ErrorCode::unsupported_model,
                      "the file is GGUF {}; supported are the versions 2 and 3, little-endian",
                      swapped ? "of a big-endian machine" : fmt::format("version {}", version))
                    .with_fix("convert it again with a newer llama.cpp"));
  }
  HOCKET_TRY(const auto num_tensors, take_number<uint64_t>("the number of tensors"));
  HOCKET_TRY(const auto num_values, take_number<uint64_t>("the number of values"));
  HOCKET_TRY_VOID(read_metadata(num_values));
  HOCKET_TRY_VOID(read_tensors(num_tensors));
  HOCKET_TRY_VOID(check_data());
  return std::move(header_);
}

Result<GgufHeader> parse_gguf_header(std::span<const std::byte> file, GgufExtent extent) {
  return GgufHeaderReader(file, extent).read();
}

std::optional<double> GgufMetadata::number(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  const double* const value = std::get_if<double>(&found->second);
  return value != nullptr ? std::optional(*value) : std::nullopt;
}

std::optional<int64_t> GgufMetadata::integer(std::string_view key) const {
  const std::optional<double> value = number(key);
  if (!value || std::abs(*value) > kMaxWhole || *value != std::floor(*value)) return std::nullopt;
  return static_cast<int64_t>(*value);
}

std::optional<bool> GgufMetadata::flag(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  const bool* const value = std::get_if<bool>(&found->second);
  return value != nullptr ? std::optional(*value) : std::nullopt;
}

std::optional<std::string_view> GgufMetadata::text(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  const auto* const value = std::get_if<std::string_view>(&found->second);
  return value != nullptr ? std::optional(*value) : std::nullopt;
}

std::optional<std::vector<double>> GgufMetadata::numbers(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  const Array* const array = std::get_if<Array>(&found->second);
  if (array == nullptr || array->type == kText) return std::nullopt;
  std::vector<double> out;
  const int size = scalar_bytes(array->type);
  for (uint64_t i = 0; i < array->count; ++i)
    out.push_back(scalar(array->type, array->bytes.data() + i * size));
  return out;
}

std::optional<std::vector<std::string_view>> GgufMetadata::texts(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  const Array* const array = std::get_if<Array>(&found->second);
  if (array == nullptr || array->type != kText) return std::nullopt;
  std::vector<std::string_view> out;
  const std::byte* at = array->bytes.data();
  for (uint64_t i = 0; i < array->count; ++i) {
    uint64_t length;
    std::memcpy(&length, at, 8);
    out.emplace_back(reinterpret_cast<const char*>(at) + 8, length);
    at += 8 + length;
  }
  return out;
}

}  // namespace hocket
