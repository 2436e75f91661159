// Answers of /v1/responses that clients may ask for again, or go on from. In memory, for as long as
// there is room; then the principal with the most bytes loses its least recently used ones, but
// none that runs.
//
//   conversation of an answer:  turns of the answer before it .. | its input | its output
//
// Turns are shared along a conversation, so one of n turns costs its own text once.
// Thread: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hocket {

class ResponseStore {
 public:
  struct Limits {
    size_t bytes_max = 64 << 20;  // of all texts that are alive; 0: nothing is kept
    size_t count_max = 65536;
  };
  explicit ResponseStore(Limits limits) : limits_(limits) {}

  // A text that counts as long as anybody holds it.
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
  // `beside`: other bytes that are kept as long as the text and counted with it.
  TextPtr keep(std::string text, size_t beside = 0) const {
    return std::make_shared<const Text>(std::move(text), beside, total_);
  }

  struct Record {
    TextPtr body;                // the response, as JSON text
    std::vector<TextPtr> turns;  // each a JSON list of items: all before the output
    TextPtr output;              // null while it runs, and where it failed
    std::string who;             // whose it is
    bool background = false;
    bool running = false;
    bool cancelled = false;
  };
  using RecordPtr = std::shared_ptr<const Record>;

  bool keeps() const { return limits_.bytes_max > 0; }
  void put(const std::string& id, Record record);
  // In the place of one that runs; nothing where that is gone by now.
  void finish(const std::string& id, Record record);
  // Null: there is none, or it is another's.
  RecordPtr find(const std::string& id, std::string_view who);
  // Marks one that runs as cancelled, and gives it.
  RecordPtr cancel(const std::string& id, std::string_view who);
  // The record that was there.
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
  struct Place {
    RecordPtr record;
    Owner* owner;
    std::list<std::string>::iterator used;
  };
  void set(Place& place, RecordPtr record);
  void forget(const std::string& id);
  Place* place_of(const std::string& id, std::string_view who);
  const std::string* least_used() const;  // null: all run
  void make_room();

  const Limits limits_;
  const std::shared_ptr<std::atomic<size_t>> total_ = std::make_shared<std::atomic<size_t>>(0);
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Owner> owners_;  // by name; as many as there are principals
  std::unordered_map<std::string, Place> places_;
};

}  // namespace hocket
