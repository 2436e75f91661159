// SchedulerHooks whose answers are set by the test. Thread: any one.
#pragma once

#include <set>

#include "policy/scheduler/scheduler_hooks.h"

namespace hocket {

struct FakeSchedulerHooks final : SchedulerHooks {
  std::set<RequestId> not_ready, broken, not_now;
  bool others_compute = false, nobody_begins = false;
  int num_agreements = 0, num_rows_agreed = 0;
  ForwardMode mode_agreed = ForwardMode::idle;  // mode of the last batch agreed on

  Result<bool> ready(const Request& request) override {
    if (broken.contains(request.id))
      return fail(ErrorCode::invalid_request, "its grammar does not compile");
    return !not_ready.contains(request.id);
  }
  bool may_begin() override { return !nobody_begins; }
  bool may_join(const Request& head) override { return !not_now.contains(head.id); }
  bool agree(const Batch& mine) override {
    ++num_agreements;
    num_rows_agreed += mine.num_rows;
    mode_agreed = mine.mode;
    return others_compute;
  }
};

}  // namespace hocket
