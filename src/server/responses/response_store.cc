#include "server/responses/response_store.h"

#include <utility>

namespace hocket {
namespace {

constexpr size_t kOverhead = 256;  // of a text and its place

}  // namespace

ResponseStore::Text::Text(std::string text, size_t beside,
                          std::shared_ptr<std::atomic<size_t>> total)
    : text_(std::move(text)),
      bytes_(text_.size() + kOverhead + beside),
      total_(std::move(total)) {
  *total_ += bytes_;
}

ResponseStore::Text::~Text() {
  *total_ -= bytes_;
}

void ResponseStore::put(const std::string& id, Record record) {
  if (!keeps()) return;
  auto kept = std::make_shared<const Record>(std::move(record));
  std::lock_guard lock(mutex_);
  const auto [place, fresh] = places_.try_emplace(id);
  if (fresh) place->second.used = used_.insert(used_.end(), id);
  place->second.record = std::move(kept);
  used_.splice(used_.end(), used_, place->second.used);
  make_room();
}

void ResponseStore::finish(const std::string& id, Record record) {
  std::lock_guard lock(mutex_);
  const auto place = places_.find(id);
  if (place == places_.end()) return;
  record.cancelled = place->second.record->cancelled;
  place->second.record = std::make_shared<const Record>(std::move(record));
  make_room();
}

ResponseStore::Place* ResponseStore::place_of(const std::string& id, std::string_view who) {
  const auto place = places_.find(id);
  if (place == places_.end() || place->second.record->who != who) return nullptr;
  used_.splice(used_.end(), used_, place->second.used);
  return &place->second;
}

ResponseStore::RecordPtr ResponseStore::find(const std::string& id, std::string_view who) {
  std::lock_guard lock(mutex_);
  const Place* place = place_of(id, who);
  return place == nullptr ? nullptr : place->record;
}

ResponseStore::RecordPtr ResponseStore::cancel(const std::string& id, std::string_view who) {
  std::lock_guard lock(mutex_);
  Place* place = place_of(id, who);
  if (place == nullptr) return nullptr;
  if (place->record->running) {
    Record changed = *place->record;
    changed.cancelled = true;
    place->record = std::make_shared<const Record>(std::move(changed));
  }
  return place->record;
}

ResponseStore::RecordPtr ResponseStore::erase(const std::string& id, std::string_view who) {
  std::lock_guard lock(mutex_);
  Place* place = place_of(id, who);
  if (place == nullptr) return nullptr;
  RecordPtr record = place->record;
  used_.erase(place->used);
  places_.erase(id);
  return record;
}

// mutex_ is held. Texts that requests under way hold go on counting, so that room is made for them.
void ResponseStore::make_room() {
  while (!used_.empty() && (places_.size() > limits_.count_max || *total_ > limits_.bytes_max)) {
    places_.erase(used_.front());
    used_.pop_front();
  }
}

ResponseStore::Counts ResponseStore::counts() const {
  std::lock_guard lock(mutex_);
  return {.num_records = places_.size(), .bytes = *total_};
}

}  // namespace hocket
