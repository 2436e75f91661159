// Fuzzes what a server of etcd answers. An answer is refused with a sentence, or its parts keep the
// bounds that callers rely on. The first byte chooses the kind of answer.
#include <string_view>

#include "base/check.h"
#include "cluster/etcd_json.h"

using namespace hocket;

namespace {

template <class T>
bool taken(const Result<T>& read) {
  if (!read) HOCKET_CHECK(!read.error().message.empty());
  return read.has_value();
}

void check_entry(const EtcdEntry& entry, std::string_view text) {
  HOCKET_CHECK(!entry.key.empty());
  HOCKET_CHECK(entry.key.size() + entry.value.size() <= text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 6) {
    case 0:
      if (const auto lease = read_etcd_lease(text); taken(lease)) HOCKET_CHECK(lease->ttl_s > 0);
      break;
    case 1:
      if (const auto lease = read_etcd_keep_alive(text); taken(lease))
        HOCKET_CHECK(lease->ttl_s >= 0);
      break;
    case 2:
      if (const auto range = read_etcd_range(text); taken(range))
        for (const EtcdEntry& entry : range->entries) check_entry(entry, text);
      break;
    case 3:
      taken(read_etcd_swapped(text));
      break;
    case 4:
      if (const auto changes = read_etcd_changes(text); taken(changes))
        for (const EtcdChange& change : *changes) check_entry(change.entry, text);
      break;
    default:
      HOCKET_CHECK(!read_etcd_error(500, text).message.empty());
  }
  return 0;
}
