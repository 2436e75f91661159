// The texts of etcd's JSON gateway (/v3/..., etcd 3.4 and later): what is asked, and what the
// answers say. Keys and values travel as base64, 64-bit numbers as texts, and fields that are zero
// are left out. Strict where it matters: an answer without a field that is never left out, or with
// one of another type, is an error. Numbers of entries and bytes are bounded by the answer's
// length. Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/etcd.h"

namespace hocket {

std::string etcd_grant_text(int64_t ttl_s);
std::string etcd_lease_text(int64_t lease);  // asks to keep or to revoke it
std::string etcd_range_text(std::string_view prefix, int max_entries);
std::string etcd_swap_text(const EtcdSwap& swap);
std::string etcd_watch_text(std::string_view key, int64_t from_revision);

// The errors are io.
Result<EtcdLease> read_etcd_lease(std::string_view text);       // answer of grant
Result<EtcdLease> read_etcd_keep_alive(std::string_view text);  // answer of keepalive
Result<EtcdRange> read_etcd_range(std::string_view text);
Result<bool> read_etcd_swapped(std::string_view text);
// Reads one line of a watch. Errors: io, also if etcd ends the watch: it names the reason.
Result<std::vector<EtcdChange>> read_etcd_changes(std::string_view line);
// Reads an answer whose HTTP status is not 200. Returns the error that it is.
Error read_etcd_error(int status, std::string_view text);

std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);

}  // namespace hocket
