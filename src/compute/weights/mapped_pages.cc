#include "compute/weights/mapped_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace hocket {
namespace {

constexpr uintptr_t kFaultAround = 64 << 10;  // bytes that the kernel maps around a touched page

// The most that the kernel reads by one request, whatever the file system, if its setting is the
// usual one (read_ahead_kb).
constexpr uintptr_t kRequestBytes = 128 << 10;

}  // namespace

void fetch_pages(std::span<const std::byte> map, std::span<const std::byte> part) {
  const auto first = reinterpret_cast<uintptr_t>(map.data()), last = first + map.size();
  const auto data = reinterpret_cast<uintptr_t>(part.data());
  if (part.empty() || data < first || data >= last) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t end = std::min(last, data + part.size());
  for (uintptr_t begin = data / page * page; begin < end; begin += kRequestBytes)
    madvise(reinterpret_cast<void*>(begin), std::min(kRequestBytes, end - begin), MADV_WILLNEED);
}

void drop_pages(std::span<const std::byte> map, std::span<const std::byte> part) {
  const auto first = reinterpret_cast<uintptr_t>(map.data()), last = first + map.size();
  const auto data = reinterpret_cast<uintptr_t>(part.data());
  if (part.empty() || data < first || data >= last) return;
  // Neighbouring pages are removed, too: with a touched page the kernel maps its neighbours, even
  // those of tensors that were already released.
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = std::max(first, data - std::min(data, kFaultAround)) / page * page;
  const uintptr_t end = std::min(last, data + part.size() + kFaultAround);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace hocket
