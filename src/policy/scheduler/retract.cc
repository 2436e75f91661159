#include "policy/scheduler/retract.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace hocket {
namespace {

std::unique_ptr<Request> take_victim(RequestLists& lists) {
  if (!lists.chunked.empty()) return lists.take_newest_chunked();
  return lists.running.take(retraction_victim(lists.running.requests()));
}

void count_retraction(const Request& request, SchedulerCounters& counters) {
  ++counters.num_retracted_total;
  counters.retracted_input_total += static_cast<uint64_t>(request.prompt_len);
  counters.retracted_output_total += static_cast<uint64_t>(request.generated());
}

// Takes the only request, for which there is no memory: add() refuses requests that can never fit,
// so something else must have the pages. One answer with an error is better than a server that
// stops.
std::unique_ptr<Request> take_last(RunningBatch& running, int num_pages) {
  std::unique_ptr<Request> last = running.take(*running.requests().front());
  last->fail(error(ErrorCode::out_of_memory,
                   "the KV cache of {} pages is full at {} tokens of this request, with all others "
                   "retracted",
                   num_pages, last->tokens.size())
                 .with_fix("a smaller max_tokens, or more memory for the KV cache"));
  return last;
}

void raise_ratio(NewTokenRatio& ratio, const RunningBatch& running) {
  double generated = 0, most = 0;
  for (const auto& request : running.requests()) {
    generated += request->generated();
    most += request->sampling.max_new_tokens;
  }
  ratio.raise(generated, most, running.size());
}

}  // namespace

const Request& retraction_victim(std::span<const std::unique_ptr<Request>> running) {
  HOCKET_CHECK(running.size() >= 2);
  const auto loss = [](const Request& r) { return std::tuple(r.generated(), -r.prompt_len); };
  auto victim = running.begin();
  for (auto it = running.begin() + 1; it != running.end(); ++it)
    if (loss(**it) <= loss(**victim)) victim = it;
  return **victim;
}

int retract_until_decode_fits(RequestLists& lists, KvMemory& memory, NewTokenRatio& ratio,
                              SchedulerCounters& counters, TimePoint now) {
  const int pages_before = memory.num_available_pages();
  int num_retracted = 0;
  while (lists.running.num_pages_needed() > memory.num_takeable_pages()) {
    if (lists.num_active() == 1) {
      lists.close(take_last(lists.running, memory.pages.num_pages()), now);
      break;
    }
    std::unique_ptr<Request> victim = take_victim(lists);
    count_retraction(*victim, counters);
    lists.retract(std::move(victim), now);
    ++num_retracted;
  }
  if (num_retracted == 0) return 0;
  const double ratio_before = ratio.now();
  raise_ratio(ratio, lists.running);
  log::warning(
      "KV cache pool is full. Retract requests. #retracted_reqs: {}, #new_tokens_gained: {}, "
      "#new_token_ratio: {:.4f} -> {:.4f}",
      num_retracted, (memory.num_available_pages() - pages_before) * memory.page_tokens(),
      ratio_before, ratio.now());
  return num_retracted;
}

}  // namespace hocket
