#include "compute/weights/weight_source.h"

#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "compute/weights/stored_rows.h"

namespace hocket {

std::string_view stored_type_name(StoredType t) {
  switch (t) {
    case StoredType::f32:
      return "float32";
    case StoredType::f16:
      return "float16";
    case StoredType::bf16:
      return "bfloat16";
    case StoredType::i64:
      return "int64";
    case StoredType::i32:
      return "int32";
    case StoredType::i16:
      return "int16";
    case StoredType::i8:
      return "int8";
    case StoredType::u8:
      return "uint8";
    case StoredType::boolean:
      return "bool";
    case StoredType::f64:
      return "float64";
    case StoredType::f8_e4m3:
      return "float8_e4m3";
    case StoredType::f8_e5m2:
      return "float8_e5m2";
    case StoredType::f8_e8m0:
      return "float8_e8m0";
    case StoredType::rows:
      return "blocks";
    case StoredType::other:
      return "a type without a name here";
  }
  return "?";
}

int stored_type_size(StoredType t) {
  switch (t) {
    case StoredType::f64:
    case StoredType::i64:
      return 8;
    case StoredType::f32:
    case StoredType::i32:
      return 4;
    case StoredType::f16:
    case StoredType::bf16:
    case StoredType::i16:
      return 2;
    case StoredType::i8:
    case StoredType::u8:
    case StoredType::boolean:
    case StoredType::f8_e4m3:
    case StoredType::f8_e5m2:
    case StoredType::f8_e8m0:
      return 1;
    case StoredType::rows:
    case StoredType::other:
      break;
  }
  HOCKET_CHECK(t != StoredType::other && t != StoredType::rows);
  return 0;
}

template <class T>
void convert_stored(StoredType type, const std::byte* from, int64_t count, T* to) {
  if (type == StoredType::f32) {
    for (int64_t i = 0; i < count; ++i) {
      float x;
      std::memcpy(&x, from + i * 4, 4);
      to[i] = from_float<T>(x);
    }
    return;
  }
  HOCKET_CHECK(type == StoredType::bf16 || type == StoredType::f16);
  if (std::is_same_v<T, Bf16> && type == StoredType::bf16) {
    std::memcpy(to, from, count * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + i * 2, 2);
    to[i] = from_float<T>(type == StoredType::bf16 ? to_float(Bf16{bits}) : f16_to_float(bits));
  }
}
template void convert_stored<float>(StoredType, const std::byte*, int64_t, float*);
template void convert_stored<Bf16>(StoredType, const std::byte*, int64_t, Bf16*);

std::vector<std::span<const std::byte>> stored_bytes(const StoredTensor& tensor) {
  if (tensor.rows == nullptr) return {{tensor.data, static_cast<size_t>(tensor.bytes)}};
  int64_t numbers = 1;
  for (const int64_t axis : tensor.shape) numbers *= axis;
  return tensor.rows->bytes_of(0, numbers / tensor.rows->columns());
}

}  // namespace hocket
