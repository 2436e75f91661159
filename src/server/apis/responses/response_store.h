// Keeps answers of /v1/responses in memory, so that clients can ask for them again or continue from
// them. If there is no room, the principal with the most bytes loses its least recently used
// answers, except running ones.
//
//   conversation of an answer:  turns of the answer before it .. | its input | its output
//
// Answers of a conversation share their turns, so a conversation of n turns stores each turn once.
// Thread: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "server/generation/api.h"

namespace hocket {

class ResponseStore : public AnswerStore {
 public:
  struct Limits {
    size_t max_bytes = 64 << 20;  // bytes of all texts that exist; 0: nothing is kept
    size_t max_count = 65536;
  };
  explicit ResponseStore(Limits limits) : limits_(limits) {}

  // A text whose bytes count until its last holder drops it.
  class Text {
   public:
    Text(std::string text, size_t beside, std::shared_ptr<std::atomic<size_t>> total);
    ~Text();
    Text(const Text&) = delete;
    Text& operator=(const Text&) = delete;
    const std::string& str() const { return text_; }

   private:
    const std::string text_;
    const size_t bytes_;
    const std::shared_ptr<std::atomic<size_t>> total_;
  };
  using TextPtr = std::shared_ptr<const Text>;
  // `beside` is the number of other bytes that are kept as long as the text and counted with it.
  TextPtr keep(std::string text, size_t beside = 0) const {
    return std::make_shared<const Text>(std::move(text), beside, total_);
  }

  struct Record {
    TextPtr body;                // the response, as JSON text
    std::vector<TextPtr> turns;  // JSON lists of items: all turns before the output
    TextPtr output;              // null while it runs, and if it failed
    std::string who;             // name of the principal
    bool background = false;
    bool running = false;
    bool cancelled = false;
  };
  using RecordPtr = std::shared_ptr<const Record>;

  bool keeps() const { return limits_.max_bytes > 0; }
  void put(const std::string& id, Record record);
  // Replaces the record of a running answer; does nothing if it was deleted.
  void finish(const std::string& id, Record record);
  // Returns the record; null if there is none, or it belongs to another principal.
  RecordPtr find(const std::string& id, std::string_view who);
  // Marks a running answer as cancelled, and returns its record.
  RecordPtr cancel(const std::string& id, std::string_view who);
  // Deletes the record and returns it; null as find().
  RecordPtr erase(const std::string& id, std::string_view who);

  struct Counts {
    size_t num_records = 0, bytes = 0;
  };
  Counts counts() const;

 private:
  struct Owner {
    std::list<std::string> used;  // ids, the least recently used first
    size_t bytes = 0;
  };
  struct Entry {
    RecordPtr record;
    Owner* owner;
    std::list<std::string>::iterator used;
  };
  void set(Entry& entry, RecordPtr record) HOCKET_REQUIRES(mutex_);
  void forget(const std::string& id) HOCKET_REQUIRES(mutex_);
  Entry* entry_of(const std::string& id, std::string_view who) HOCKET_REQUIRES(mutex_);
  const std::string* least_used() const HOCKET_REQUIRES(mutex_);  // null: all answers run
  void make_room() HOCKET_REQUIRES(mutex_);

  const Limits limits_;
  const std::shared_ptr<std::atomic<size_t>> total_ = std::make_shared<std::atomic<size_t>>(0);
  mutable Mutex mutex_;
  // By name; one per principal.
  std::unordered_map<std::string, Owner> owners_ HOCKET_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Entry> entries_ HOCKET_GUARDED_BY(mutex_);
};

}  // namespace hocket
