// News of the prefix cache for whoever routes requests to where their prefixes are: one event a
// page, on a bounded queue from the engine thread to one reader.
//
//   listen() -> cleared, stored...      all that is cached, as far as the queue has room
//               stored, removed, ...    from then on
//   queue full -> nothing more until the reader has caught up -> cleared, stored...
//
// So a listener that follows the events may know too little, never anything wrong. Nothing is
// computed while nobody listens.
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
  PageHash hash{};           // stored, removed
  PageHash parent{};         // stored: of the page before it, or of the namespace's beginning
  uint64_t num_dropped = 0;  // cleared: events lost since the last one
};

class KvEventChannel {
 public:
  explicit KvEventChannel(size_t capacity) : events_(capacity) {}

  // The reader.   Thread: any, one at a time.
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

  // The writer.   Thread: engine.
  // Whether events are wanted and every one before was taken.
  bool telling() const { return listening_ && told_listens_ == num_listens_ && lost_ == 0; }
  // Whether the whole tree is to be told anew: somebody began to listen, or has caught up.
  bool needs_all() const {
    return listening_ && !telling() && (told_listens_ != num_listens_ || events_.size() == 0);
  }
  // Says `cleared`; telling() from then on, if there was room for it.
  void begin_anew() {
    const uint64_t listens = num_listens_;
    if (!events_.push({.kind = KvEvent::Kind::cleared, .num_dropped = lost_})) {
      ++lost_;
      return;
    }
    told_listens_ = listens;
    lost_ = 0;
  }
  // Call only while telling().
  void push(const KvEvent& event) {
    if (!events_.push(KvEvent(event))) note_lost(1);
  }
  // Events that nobody was told because telling() is false.
  void note_lost(int count) {
    if (listening_) lost_ += static_cast<uint64_t>(count);
  }
  size_t room() const { return events_.capacity() - events_.size(); }

 private:
  Mailbox<KvEvent> events_;
  std::atomic<bool> listening_{false};
  std::atomic<uint64_t> num_listens_{0};
  uint64_t told_listens_ = 0;  // the engine's, as is lost_
  uint64_t lost_ = 0;
};

}  // namespace hocket
