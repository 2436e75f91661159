// Tests only: an etcd in memory with time set by hand, whose calls can fail before or after they
// take effect. Several ranks share its data; each has a connection of its own.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock_testing.h"
#include "cluster/etcd.h"

namespace hocket {

class MemoryEtcd {
 public:
  explicit MemoryEtcd(const FakeClock& clock) : clock_(clock) {}

  // Erases what belonged to leases whose time is over.
  void expire() {
    std::erase_if(leases_, [&](const auto& lease) {
      if (clock_.now() < lease.second.until) return false;
      end(lease.first);
      return true;
    });
  }
  std::optional<EtcdEntry> find(const std::string& key) {
    expire();
    const auto found = entries_.find(key);
    return found == entries_.end() ? std::nullopt : std::optional(found->second.entry);
  }
  void set(const std::string& key, const std::string& value, int64_t lease = 0) {
    Stored& stored = entries_[key];
    ++revision_;
    if (stored.entry.key.empty()) stored.entry.create_revision = revision_;
    stored.entry.key = key;
    stored.entry.value = value;
    stored.entry.mod_revision = revision_;
    stored.lease = lease;
    log_.push_back({.erased = false, .entry = stored.entry});
  }
  void erase(const std::string& key) {
    if (entries_.erase(key) == 0) return;
    log_.push_back({.erased = true, .entry = {.key = key, .mod_revision = ++revision_}});
  }
  void forget_lease(int64_t lease) {
    leases_.erase(lease);
    end(lease);
  }
  // Watches from before this revision are refused.
  void compact() { compacted_ = revision_; }

  class Client;

 private:
  struct Lease {
    int64_t ttl_s = 0;
    TimePoint until{};
  };
  struct Stored {
    EtcdEntry entry;
    int64_t lease = 0;
  };
  void end(int64_t lease) {
    std::vector<std::string> gone;
    for (const auto& [key, stored] : entries_)
      if (stored.lease == lease) gone.push_back(key);
    for (const std::string& key : gone) erase(key);
  }

  const FakeClock& clock_;
  int64_t revision_ = 1, compacted_ = 0, last_lease_ = 0;
  std::map<std::string, Stored> entries_;
  std::map<int64_t, Lease> leases_;
  std::vector<EtcdChange> log_;
};

class MemoryEtcd::Client final : public Etcd {
 public:
  explicit Client(MemoryEtcd& etcd) : etcd_(etcd) {}

  bool is_cut = false;            // no call arrives
  bool loses_answers = false;     // calls take effect, and fail
  bool loses_swaps = false;       // swaps take effect, and fail
  bool breaks_watches = false;    // the next changes() fails
  bool hides_changes = false;     // changes() has nothing yet
  size_t max_changes = SIZE_MAX;  // changes() returns no more at once
  int num_watches = 0;

  Result<EtcdLease> grant(int64_t ttl_s) override {
    if (is_cut) return lost();
    const int64_t id = ++etcd_.last_lease_;
    etcd_.leases_[id] = {ttl_s, etcd_.clock_.now() + std::chrono::seconds(ttl_s)};
    if (loses_answers) return lost();
    return EtcdLease{id, ttl_s};
  }
  Result<EtcdLease> keep_alive(int64_t lease) override {
    if (is_cut) return lost();
    etcd_.expire();
    const auto found = etcd_.leases_.find(lease);
    if (found == etcd_.leases_.end()) return EtcdLease{lease, 0};
    found->second.until = etcd_.clock_.now() + std::chrono::seconds(found->second.ttl_s);
    if (loses_answers) return lost();
    return EtcdLease{lease, found->second.ttl_s};
  }
  Result<void> revoke(int64_t lease) override {
    if (is_cut) return lost();
    etcd_.forget_lease(lease);
    return {};
  }
  Result<EtcdRange> range(std::string_view prefix, int max_entries) override {
    if (is_cut || loses_answers) return lost();
    etcd_.expire();
    EtcdRange read{.revision = etcd_.revision_, .entries = {}};
    for (const auto& [key, stored] : etcd_.entries_)
      if (key.starts_with(prefix) && std::ssize(read.entries) < max_entries)
        read.entries.push_back(stored.entry);
    return read;
  }
  Result<bool> swap(const EtcdSwap& swap) override {
    if (is_cut) return lost();
    etcd_.expire();
    const auto found = etcd_.entries_.find(swap.key);
    const int64_t created = found == etcd_.entries_.end() ? 0 : found->second.entry.create_revision;
    const bool done = swap.key.empty() || created == swap.create_revision;
    for (const EtcdPut& put : swap.puts)
      if (done && put.lease != 0 && !etcd_.leases_.contains(put.lease))
        return fail(ErrorCode::not_found, "requested lease not found");
    if (done) {
      for (const EtcdPut& put : swap.puts) etcd_.set(put.key, put.value, put.lease);
      for (const std::string& key : swap.erased) etcd_.erase(key);
    }
    if (loses_answers || loses_swaps) return lost();
    return done;
  }
  Result<void> watch(std::string_view key, int64_t from_revision) override {
    if (is_cut) return lost();
    ++num_watches;
    key_ = key;
    from_ = from_revision;
    watching_ = true;
    breaks_watches = false;
    return {};
  }
  Result<std::vector<EtcdChange>> changes() override {
    if (!watching_ || is_cut || breaks_watches || from_ < etcd_.compacted_) {
      watching_ = false;
      return fail(ErrorCode::io, "the watch is over");
    }
    std::vector<EtcdChange> news;
    if (hides_changes) return news;
    etcd_.expire();
    for (const EtcdChange& change : etcd_.log_) {
      if (change.entry.mod_revision < from_ || change.entry.key != key_) continue;
      if (news.size() == max_changes) return news;
      news.push_back(change);
      from_ = change.entry.mod_revision + 1;
    }
    from_ = etcd_.revision_ + 1;
    return news;
  }
  int watch_fd() const override { return -1; }
  std::string local_host() const override { return "127.0.0.1"; }

 private:
  static std::unexpected<Error> lost() {
    return fail(ErrorCode::io, "no server of etcd answers in time");
  }

  MemoryEtcd& etcd_;
  std::string key_;
  int64_t from_ = 0;
  bool watching_ = false;
};

}  // namespace hocket
