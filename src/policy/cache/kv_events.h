// Events of the prefix cache for routers that send requests to where their prefixes are: one event
// for each page, on a bounded queue from the engine thread to one reader.
//
//   listen() -> cleared, stored...      all cached pages, as far as the queue has room
//               stored, removed, ...    then every change
//   queue full -> nothing more until the reader has caught up -> cleared, stored...
//
// A listener may therefore miss cached pages, but every page that it knows is really cached. While
// no client listens, no event is computed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/mailbox.h"
#include "policy/cache/page_hash.h"

namespace hocket {

struct KvEvent {
  enum class Kind : uint8_t { stored, removed, cleared };
  Kind kind = Kind::cleared;
  PageHash hash{};           // the page; for stored and removed
  PageHash parent{};         // for stored: the page before it, or root_hash() of its namespace
  uint64_t num_dropped = 0;  // for cleared: events lost since the cleared event before
};

class KvEventChannel {
 public:
  explicit KvEventChannel(size_t capacity) : events_(capacity) {}

  // The reader's functions.   Thread: any, one at a time.
  void listen() {
    ++num_listens_;
    listening_ = true;
  }
  void stop_listening() { listening_ = false; }
  std::optional<KvEvent> wait_pop(std::chrono::milliseconds timeout) {
    return events_.wait_pop(timeout);
  }
  std::optional<KvEvent> pop() { return events_.pop(); }
  void wake() { events_.wake(); }

  // The writer's functions.   Thread: engine.
  // Returns true if a reader listens and no event was lost since it got them all.
  bool is_publishing() const { return listening_ && known_listens_ == num_listens_ && lost_ == 0; }
  // Returns true if the whole tree must be sent again: a reader has begun to listen, or has caught
  // up.
  bool needs_all() const {
    return listening_ && !is_publishing() &&
           (known_listens_ != num_listens_ || events_.size() == 0);
  }
  // Pushes `cleared`. If the queue had room for it, is_publishing() is true afterwards.
  void begin_anew() {
    const uint64_t listens = num_listens_;
    if (!events_.push({.kind = KvEvent::Kind::cleared, .num_dropped = lost_})) {
      ++lost_;
      return;
    }
    known_listens_ = listens;
    lost_ = 0;
  }
  // Call only while is_publishing().
  void push(const KvEvent& event) {
    if (!events_.push(KvEvent(event))) note_lost(1);
  }
  // Counts events that were not pushed because is_publishing() is false.
  void note_lost(int count) {
    if (listening_) lost_ += static_cast<uint64_t>(count);
  }
  size_t room() const { return events_.capacity() - events_.size(); }

 private:
  Mailbox<KvEvent> events_;
  std::atomic<bool> listening_{false};
  std::atomic<uint64_t> num_listens_{0};
  uint64_t known_listens_ = 0;  // known_listens_ and lost_ belong to the engine thread
  uint64_t lost_ = 0;
};

}  // namespace hocket
