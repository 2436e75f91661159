// A small key-value store of rank 0, through which ranks exchange short facts such as addresses; it
// is not meant for data. An entry may have a lease, which is renewed when the entry is set again. A
// wait for a key ends when the key is set, or at the limit of its time. All entries are lost with
// rank 0. Limits: 4,096 entries, 16 MiB, 1,024 waits. Thread: the control plane's. Time is passed
// in.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cluster/wire.h"

namespace hocket {

class Store {
 public:
  static constexpr size_t kMaxEntries = 4096;
  static constexpr size_t kMaxBytes = size_t{16} << 20;
  static constexpr size_t kMaxWaits = 1024;
  static constexpr int64_t kMaxWaitMs = 3'600'000;

  // A reply is sent to the connection `requester`; the id in it is that of its request. All
  // replies with one value share it, so that a thousand waits for a key cost no thousand copies.
  struct Reply {
    uint64_t requester = 0, id = 0;
    uint16_t code = 0;
    std::shared_ptr<const std::string> value;
    int64_t number = 0;
    StoreReply message() const { return {id, code, *value, number}; }
  };
  // Answers a request. take_replies() returns the reply at once, or later for a wait. Errors are in
  // the reply: not_found (get), timed_out (wait), queue_full (a limit), bad_value (an add to a
  // value that is no number or would exceed 64 bits; a time below 0 or above an hour).
  void ask(uint64_t requester, StoreRequest request, TimePoint now);
  // Ends waits whose time is over, and erases entries whose lease is over. ask() does so only for
  // the entry that it names, since it would cost too much for each request.
  void expire(TimePoint now);
  // Returns when expire() has work next; TimePoint::max() if never.
  TimePoint next_deadline() const;
  // Drops the waits of a connection that has ended.
  void forget(uint64_t requester);

  std::vector<Reply> take_replies() { return std::exchange(replies_, {}); }
  size_t num_entries() const { return entries_.size(); }

 private:
  struct Entry {
    std::shared_ptr<const std::string> value;
    TimePoint until = TimePoint::max();
  };
  struct Wait {
    uint64_t requester, id;
    std::string key;
    TimePoint until;
  };
  void answer(uint64_t requester, uint64_t id, std::shared_ptr<const std::string> value);
  void answer(uint64_t requester, uint64_t id) { answer(requester, id, no_value_); }
  void refuse(uint64_t requester, uint64_t id, const Error& e);
  void set(uint64_t requester, StoreRequest request, TimePoint until);
  void add(uint64_t requester, const StoreRequest& request);
  void wait(uint64_t requester, const StoreRequest& request, TimePoint now);
  // Returns false if it does not fit.
  bool put(const std::string& key, std::string value, TimePoint until);
  void erase(const std::string& key);

  const std::shared_ptr<const std::string> no_value_ = std::make_shared<const std::string>();
  std::map<std::string, Entry> entries_;
  std::vector<Wait> waits_;
  std::vector<Reply> replies_;
  size_t num_bytes_ = 0;
};

}  // namespace hocket
