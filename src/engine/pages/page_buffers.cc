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

}  // namespace hocket
