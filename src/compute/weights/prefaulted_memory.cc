#include "compute/weights/prefaulted_memory.h"

#include <algorithm>

#include "compute/tensor/view.h"

namespace hocket {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int kPagesAWorker = 4;  // touched ahead, so that all workers have some

}  // namespace

void PrefaultedMemory::prefault(const std::byte* last, WorkerPool* workers) {
  const std::byte* const begin = memory_.data();
  if (workers == nullptr || last < begin || last > begin + memory_.size()) return;
  if (last - begin <= touched_) return;
  const int64_t ahead = int64_t{kPagesAWorker} * workers->size() * kHugePage;
  const int64_t end = std::min(round_up(last - begin, kHugePage) + ahead, std::ssize(memory_));
  const auto pages = static_cast<int>((end - touched_ + kHugePage - 1) / kHugePage);
  workers->run(pages, [&](int page, int) {
    // Written as it was read: vectors may be there.
    volatile std::byte* const first = memory_.data() + touched_ + page * kHugePage;
    *first = *first;
  });
  touched_ = std::min(touched_ + pages * kHugePage, std::ssize(memory_));
}

}  // namespace hocket
