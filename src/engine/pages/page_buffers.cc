#include "engine/pages/page_buffers.h"

#include <utility>

#include "base/check.h"

namespace hocket {

PageBuffers::PageBuffers(Buffer memory, size_t count)
    : free(count),
      memory_(std::move(memory)),
      bytes_(memory_.bytes() / static_cast<int64_t>(count)),
      users_(count) {
  for (Id id = 0; std::cmp_less(id, count); ++id) HOCKET_CHECK(free.push(Id{id}));
}

void PageBuffers::release(Id id) {
  if (--users_[static_cast<size_t>(id)] == 0) HOCKET_CHECK(free.push(Id{id}));
}

Result<TransferBuffers::Memory> TransferBuffers::allocate(const TierBuffers& sizes) {
  const int64_t num_pages = sizes.num_pages() + sizes.num_senders;
  Memory memory{.num_pages = static_cast<size_t>(num_pages),
                .num_states = static_cast<size_t>(sizes.num_records())};
  HOCKET_TRY(memory.pages, Buffer::allocate(num_pages * sizes.page_bytes));
  HOCKET_TRY(memory.states, Buffer::allocate(sizes.of_records()));
  return memory;
}

TransferBuffers::TransferBuffers(Memory memory)
    : pages(std::move(memory.pages), memory.num_pages),
      states(std::move(memory.states), memory.num_states) {}

}  // namespace hocket
