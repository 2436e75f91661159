#include "server/reply/reply_table.h"

#include <algorithm>

#include "core/queue_limits.h"
#include "server/http/retry_after.h"
#include "server/reply/reply_job.h"

namespace hocket {
namespace {

constexpr QueueLimit<int64_t> kLiveTextLimit{"{} texts are under way", kRetryAfterFix};

}  // namespace

ReplyTable::ReplyTable(size_t max_texts) : max_texts_(max_texts) {
  entries_.reserve(max_texts);
}

Result<void> ReplyTable::add(const std::shared_ptr<ReplyJob>& job) {
  MutexLock lock(mutex_);
  if (!job->sent_before_loss || job->client_has)
    HOCKET_TRY_VOID(check_limit(kLiveTextLimit,
                                {.used = std::ssize(entries_),
                                 .more = std::ssize(job->of_choice),
                                 .max = static_cast<int64_t>(max_texts_)},
                                max_texts_));
  try {
    for (size_t i = 0; i < job->of_choice.size(); ++i)
      entries_.emplace(job->of_choice[i].id, Entry{job, i});
  } catch (...) {
    for (const auto& choice : job->of_choice) entries_.erase(choice.id);
    throw;
  }
  return {};
}

ReplyTable::Entry ReplyTable::find(RequestId id) const {
  MutexLock lock(mutex_);
  const auto found = entries_.find(id);
  return found == entries_.end() ? Entry{} : found->second;
}

void ReplyTable::erase(RequestId id) {
  MutexLock lock(mutex_);
  entries_.erase(id);
}

void ReplyTable::erase_all_of(const ReplyJob& job) {
  MutexLock lock(mutex_);
  for (const auto& choice : job.of_choice) entries_.erase(choice.id);
}

size_t ReplyTable::num_texts() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

std::vector<ReplyTable::Entry> ReplyTable::entries() const {
  std::vector<Entry> all;
  MutexLock lock(mutex_);
  all.reserve(entries_.size());
  for (const auto& [id, entry] : entries_) all.push_back(entry);
  return all;
}

std::vector<LiveText> ReplyTable::live_texts(size_t max_texts) const {
  std::vector<Entry> all = entries();
  const auto id_of = [](const Entry& entry) { return entry.job->of_choice[entry.choice].id; };
  const auto oldest = all.begin() + static_cast<ptrdiff_t>(std::min(max_texts, all.size()));
  std::ranges::partial_sort(all, oldest, {}, id_of);
  std::vector<LiveText> texts;
  for (auto entry = all.begin(); entry != oldest; ++entry) {
    const int generated = entry->job->of_choice[entry->choice].num_generated;
    texts.push_back(live_text(entry->job->answer, entry->choice, id_of(*entry), generated));
  }
  return texts;
}

}  // namespace hocket
