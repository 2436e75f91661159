#include "base/between_tasks.h"

#include <utility>

#include "base/check.h"

namespace hocket {
namespace {

thread_local BetweenTasks* current = nullptr;

}  // namespace

BetweenTasks::BetweenTasks(Duration every, std::function<void()> call)
    : every_ns_(every.count()), call_(std::move(call)), next_ns_(real_now_ns() + every_ns_) {
  HOCKET_CHECK(current == nullptr);
  current = this;
}

BetweenTasks::~BetweenTasks() {
  current = nullptr;
}

void BetweenTasks::task_done() {
  if (current == nullptr) return;
  const int64_t now = real_now_ns();
  if (now < current->next_ns_) return;
  current->next_ns_ = now + current->every_ns_;
  current->call_();
}

}  // namespace hocket
