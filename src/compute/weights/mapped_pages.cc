#include "compute/weights/mapped_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace hocket {
namespace {

constexpr uintptr_t kFaultAround = 64 << 10;  // bytes that the kernel maps around a touched page

}  // namespace

void drop_pages(std::span<const std::byte> map, std::span<const std::byte> part) {
  const auto first = reinterpret_cast<uintptr_t>(map.data()), last = first + map.size();
  const auto data = reinterpret_cast<uintptr_t>(part.data());
  if (part.empty() || data < first || data >= last) return;
  // Neighbouring pages are removed, too: a touched page brings in its neighbours, even those of
  // tensors that were already given back.
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = std::max(first, data - std::min(data, kFaultAround)) / page * page;
  const uintptr_t end = std::min(last, data + part.size() + kFaultAround);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace hocket
