// The part of etcd that ranks use: leases, entries that live as long as a lease, compare-and-swap,
// and a watch. EtcdClient speaks to servers; tests have one in memory.
// Calls block, each within EtcdClient::Options::call_limit. A call that failed may still have taken
// effect, so callers repeat only calls that may take effect twice. Thread: one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hocket {

struct EtcdEntry {
  std::string key, value;
  int64_t create_revision = 0;  // the store's when the key was set and was not there
  int64_t mod_revision = 0;     // the store's when it was set last, or erased

  bool operator==(const EtcdEntry&) const = default;
};

struct EtcdRange {
  int64_t revision = 0;  // the store's when it was read
  std::vector<EtcdEntry> entries;
};

struct EtcdLease {
  int64_t id = 0;
  int64_t ttl_s = 0;  // may be longer than asked for; 0: the lease is over
};

struct EtcdPut {
  std::string key, value;
  int64_t lease = 0;  // 0: the entry stays for good
};

// Sets and erases entries if the create revision of `key` is the one given.
struct EtcdSwap {
  std::string key = {};         // empty: the entries are set whatever there is
  int64_t create_revision = 0;  // 0: the key must not be there
  std::vector<EtcdPut> puts = {};
  std::vector<std::string> erased = {};
};

struct EtcdChange {
  bool erased = false;
  EtcdEntry entry;  // only key and mod_revision if erased
};

// Errors of all: io (no server answers in time, or an answer is not one of etcd), not_found (the
// lease is over), unauthorized (etcd demands credentials).
class Etcd {
 public:
  virtual ~Etcd() = default;
  virtual Result<EtcdLease> grant(int64_t ttl_s) = 0;
  virtual Result<EtcdLease> keep_alive(int64_t lease) = 0;
  virtual Result<void> revoke(int64_t lease) = 0;
  // Returns the entries whose keys begin with `prefix`, at most `max_entries`.
  virtual Result<EtcdRange> range(std::string_view prefix, int max_entries) = 0;
  // Returns false if the create revision is another; nothing is set then.
  virtual Result<bool> swap(const EtcdSwap& swap) = 0;
  // Watches `key` from a revision on, in place of what was watched before.
  virtual Result<void> watch(std::string_view key, int64_t from_revision) = 0;
  // Returns the changes that have arrived since the last call; never waits. After an error the
  // watch is over: read the key, and watch it from there.
  virtual Result<std::vector<EtcdChange>> changes() = 0;
  // Returns the descriptor that is readable when changes have arrived; -1 if there is none.
  virtual int watch_fd() const = 0;
  // Returns the address of this host on the way to the server; empty before the first answer.
  virtual std::string local_host() const = 0;
};

}  // namespace hocket
