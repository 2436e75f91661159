#include "server/reply/stream_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace hocket {

std::optional<std::vector<size_t>> StreamCopies::set_keepers(
    std::span<const std::string> boot_ids) {
  HOCKET_CHECK(boot_ids.size() <= kMaxKeepers);
  const auto has = [](std::span<const std::string> ids, const std::string& id) {
    return std::ranges::find(ids, id) != ids.end();
  };
  std::array<std::string, kMaxKeepers> next;
  for (size_t slot = 0; slot < kMaxKeepers; ++slot)
    if (has(boot_ids, keepers_[slot].boot_id)) next[slot] = keepers_[slot].boot_id;
  for (const std::string& boot_id : boot_ids)
    if (!has(next, boot_id)) *std::ranges::find(next, std::string()) = boot_id;
  std::vector<size_t> other;
  bool is_reordered = false;
  for (size_t slot = 0; slot < kMaxKeepers; ++slot) {
    const auto place =
        static_cast<size_t>(std::ranges::find(boot_ids, next[slot]) - boot_ids.begin());
    is_reordered |= std::exchange(keepers_[slot].place, place) != place;
    if (keepers_[slot].boot_id == next[slot]) continue;
    take_changed(slot);
    keepers_[slot].boot_id = next[slot];
    other.push_back(slot);
  }
  if (other.empty() && !is_reordered) return std::nullopt;
  return other;
}

std::optional<size_t> StreamCopies::slot_of(std::string_view boot_id) const {
  const auto found = std::ranges::find(keepers_, boot_id, &Keeper::boot_id);
  if (boot_id.empty() || found == keepers_.end()) return std::nullopt;
  return static_cast<size_t>(found - keepers_.begin());
}

bool StreamCopies::wants(const StreamRecord& stream, size_t slot) const {
  const auto may_have = [&](const Keeper& keeper) {
    return !keeper.boot_id.empty() && keeper.boot_id != stream.holder;
  };
  const auto before = std::ranges::count_if(keepers_, [&](const Keeper& keeper) {
    return may_have(keeper) && keeper.place < keepers_[slot].place;
  });
  return may_have(keepers_[slot]) && std::cmp_less(before, stream.num_copies);
}

void StreamCopies::changed(StreamRecord& stream) {
  for (size_t slot = 0; slot < kMaxKeepers; ++slot) changed(stream, slot);
}

void StreamCopies::changed(StreamRecord& stream, size_t slot) {
  if (!wants(stream, slot) || std::exchange(stream.copies[slot].is_changed, true)) return;
  keepers_[slot].changed.push_back(stream.shared_from_this());
}

void StreamCopies::set_known(StreamRecord& stream, size_t slot, bool is_known) {
  stream.copies[slot].is_known = is_known;
  stream.copies[slot].num_sent.assign(stream.request.tokens.size(), 0);
  changed(stream, slot);
}

void StreamCopies::forget_unwanted(StreamRecord& stream) const {
  for (size_t slot = 0; slot < kMaxKeepers; ++slot)
    if (!wants(stream, slot)) stream.copies[slot].is_known = false;
}

std::vector<StreamRecordPtr> StreamCopies::take_changed(size_t slot) {
  std::vector<StreamRecordPtr> streams = std::exchange(keepers_[slot].changed, {});
  for (const StreamRecordPtr& stream : streams) stream->copies[slot].is_changed = false;
  return streams;
}

void append_changes(const StreamRecord& stream, StreamRecord::Copy& copy, std::string& lines) {
  const char* const state = stream.removed                       ? "gone"
                            : stream.state == StreamState::left  ? "left"
                            : stream.state == StreamState::ended ? "ended"
                                                                 : "live";
  const auto out = std::back_inserter(lines);
  fmt::format_to(out, "{} {}", stream.request.identity.id, state);
  for (size_t c = 0; c < copy.num_sent.size() && !stream.removed; ++c) {
    const std::vector<TokenId>& ids = stream.request.tokens[c];
    size_t& sent = copy.num_sent[c];
    if (sent == ids.size()) continue;
    fmt::format_to(out, " {}:{}:", c, sent);
    for (const size_t first = sent; sent < ids.size(); ++sent)
      fmt::format_to(out, "{}{}", sent == first ? "" : ",", value(ids[sent]));
  }
  lines += '\n';
}

}  // namespace hocket
