#include "server/apis/responses/response_store.h"

#include <algorithm>
#include <utility>

namespace hocket {
namespace {

constexpr size_t kOverhead = 256;  // bytes of a text's object and its entry

// Returns the bytes that an answer adds to its conversation; earlier turns are shared with other
// answers.
size_t bytes_of(const ResponseStore::Record& record) {
  size_t bytes = kOverhead;
  if (record.body != nullptr) bytes += record.body->str().size();
  if (record.output != nullptr) bytes += record.output->str().size();
  if (!record.turns.empty()) bytes += record.turns.back()->str().size();
  return bytes;
}

}  // namespace

ResponseStore::Text::Text(std::string text, size_t beside,
                          std::shared_ptr<std::atomic<size_t>> total)
    : text_(std::move(text)), bytes_(text_.size() + kOverhead + beside), total_(std::move(total)) {
  *total_ += bytes_;
}

ResponseStore::Text::~Text() {
  *total_ -= bytes_;
}

void ResponseStore::put(const std::string& id, Record record) {
  if (!keeps()) return;
  auto kept = std::make_shared<const Record>(std::move(record));
  MutexLock lock(mutex_);
  if (entries_.contains(id)) forget(id);
  Owner& owner = owners_[kept->who];
  const auto used = owner.used.insert(owner.used.end(), id);
  set(entries_.emplace(id, Entry{nullptr, &owner, used}).first->second, std::move(kept));
  make_room();
}

void ResponseStore::finish(const std::string& id, Record record) {
  MutexLock lock(mutex_);
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return;
  record.cancelled = entry->second.record->cancelled;
  set(entry->second, std::make_shared<const Record>(std::move(record)));
  make_room();
}

void ResponseStore::set(Entry& entry, RecordPtr record) {
  if (entry.record != nullptr) entry.owner->bytes -= bytes_of(*entry.record);
  entry.owner->bytes += bytes_of(*record);
  entry.record = std::move(record);
}

// Precondition: there is an answer with this id.
void ResponseStore::forget(const std::string& id) {
  const auto entry = entries_.find(id);
  Owner& owner = *entry->second.owner;
  owner.bytes -= bytes_of(*entry->second.record);
  owner.used.erase(entry->second.used);
  entries_.erase(entry);
}

ResponseStore::Entry* ResponseStore::entry_of(const std::string& id, std::string_view who) {
  const auto entry = entries_.find(id);
  if (entry == entries_.end() || entry->second.record->who != who) return nullptr;
  std::list<std::string>& used = entry->second.owner->used;
  used.splice(used.end(), used, entry->second.used);
  return &entry->second;
}

ResponseStore::RecordPtr ResponseStore::find(const std::string& id, std::string_view who) {
  MutexLock lock(mutex_);
  const Entry* entry = entry_of(id, who);
  return entry == nullptr ? nullptr : entry->record;
}

ResponseStore::RecordPtr ResponseStore::cancel(const std::string& id, std::string_view who) {
  MutexLock lock(mutex_);
  Entry* entry = entry_of(id, who);
  if (entry == nullptr) return nullptr;
  if (entry->record->running) {
    Record changed = *entry->record;
    changed.cancelled = true;
    set(*entry, std::make_shared<const Record>(std::move(changed)));
  }
  return entry->record;
}

ResponseStore::RecordPtr ResponseStore::erase(const std::string& id, std::string_view who) {
  MutexLock lock(mutex_);
  Entry* entry = entry_of(id, who);
  if (entry == nullptr) return nullptr;
  RecordPtr record = entry->record;
  forget(id);
  return record;
}

// Returns the id of the least recently used answer of the owner with the most bytes. Running
// answers stay, since a client waits for them; the engine's queue limits their number.
const std::string* ResponseStore::least_used() const {
  const auto at_rest = [&](const std::string& id)
                           HOCKET_REQUIRES(mutex_) { return !entries_.at(id).record->running; };
  const std::string* found = nullptr;
  size_t largest_bytes = 0;
  for (const auto& [name, owner] : owners_) {
    if (found != nullptr && owner.bytes <= largest_bytes) continue;
    const auto first = std::ranges::find_if(owner.used, at_rest);
    if (first == owner.used.end()) continue;
    found = &*first;
    largest_bytes = owner.bytes;
  }
  return found;
}

// Deletes answers until the limits hold. Texts that requests under way hold still count, so answers
// are deleted for them too.
void ResponseStore::make_room() {
  while (entries_.size() > limits_.max_count || *total_ > limits_.max_bytes) {
    const std::string* id = least_used();
    if (id == nullptr) return;
    forget(std::string(*id));
  }
}

ResponseStore::Counts ResponseStore::counts() const {
  MutexLock lock(mutex_);
  return {.num_records = entries_.size(), .bytes = *total_};
}

}  // namespace hocket
