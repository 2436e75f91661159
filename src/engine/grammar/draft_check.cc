#include "engine/grammar/draft_check.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/processor_time.h"

namespace hocket {

size_t DraftCheck::num_allowed(std::span<const TokenId> generated,
                               std::span<const TokenId> drafts) {
  const Watch watch(*this, generated.size() - num_taken_);
  if (!catch_up(generated, watch)) return drafts.size();
  // The library has no limit of its own for this, so it is asked for a few tokens first.
  for (size_t asked = std::min<size_t>(1, drafts.size());;
       asked = std::min(2 * asked, drafts.size())) {
    const Result<size_t> allowed = matcher_->num_allowed(drafts.first(asked));
    if (!allowed) return matcher_.reset(), drafts.size();
    if (*allowed < asked || asked == drafts.size()) return *allowed;
    if (watch.is_over()) return drafts.size();
  }
}

size_t DraftCheck::forced(std::span<const TokenId> generated, std::span<TokenId> out) {
  const Watch watch(*this, generated.size() - num_taken_);
  if (!catch_up(generated, watch)) return 0;
  const std::vector<TokenId> run = matcher_->forced();
  const size_t count = std::min(run.size(), out.size());
  std::copy_n(run.begin(), count, out.begin());
  return count;
}

bool DraftCheck::catch_up(std::span<const TokenId> generated, const Watch& watch) {
  for (; matcher_ && num_taken_ < generated.size(); ++num_taken_)
    if (watch.is_over() || !matcher_->accept(generated[num_taken_])) matcher_.reset();
  return matcher_.has_value();
}

DraftCheck::Watch::Watch(DraftCheck& check, size_t num_new)
    : check_(check),
      end_(thread_processor_time() + kDraftCheckTime +
           static_cast<int64_t>(std::min(num_new, kMaxTimed)) * kTakeTime) {}

bool DraftCheck::Watch::is_over() const {
  return thread_processor_time() > end_;
}

DraftCheck::Watch::~Watch() {
  if (is_over() || check_.num_bytes() > kDraftCheckBytes) check_.matcher_.reset();
}

}  // namespace hocket
