#include "cluster/coordinator_seat.h"

#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "cluster/token_proof.h"

namespace hocket {
namespace {

constexpr std::string_view kSeatKey = "coordinator", kEpochKey = "epoch", kRanksKey = "rank/";
constexpr size_t kMaxShown = 64;  // bytes of a strange value in a log line

// Returns 16 digits of a hash over all that ranks must have in common (disagreement()), places of
// experts included.
std::string digest(const Identity& self) {
  const Proof hash = sign("", fmt::format("hocket agreed\n{}\n{}\n{}\n{}\n{}\n{}\n{}", self.version,
                                          self.num_ranks, self.ranks_per_node, self.model_hash,
                                          self.plans, self.arithmetic, self.disaggregation));
  std::string text;
  for (size_t i = 0; i < 8; ++i) text += fmt::format("{:02x}", hash[i]);
  return text;
}

// Splits "a b c" at its first spaces into at most `max_words` words.
std::vector<std::string_view> words(std::string_view text, size_t max_words) {
  std::vector<std::string_view> all;
  while (!text.empty() && all.size() < max_words) {
    const size_t space =
        all.size() + 1 == max_words ? text.size() : std::min(text.find(' '), text.size());
    all.push_back(text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return all;
}

template <class Number>
std::optional<Number> read_number(std::string_view text) {
  Number value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Returns the beginning of a value that may be anything, for a log line.
std::string shown(std::string_view value) {
  std::string text(value.substr(0, kMaxShown));
  std::ranges::replace_if(text, [](unsigned char c) { return c < 32 || c > 126; }, '?');
  return text;
}

// The seat's value is "BOOT-ID RANK HOST:PORT".
std::optional<SeatHolder> read_holder(std::string_view value) {
  const auto parts = words(value, 3);
  if (parts.size() != 3 || parts[0].size() > kMaxNameBytes) return std::nullopt;
  const auto rank = read_number<int>(parts[1]);
  const auto address = parse_host_port(parts[2]);
  if (!rank || *rank < 0 || *rank >= kMaxRanks || !address) return std::nullopt;
  return SeatHolder{.boot_id = std::string(parts[0]), .rank = *rank, .address = *address};
}

}  // namespace

CoordinatorSeat::CoordinatorSeat(Etcd& etcd, const Clock& clock, Options options)
    : etcd_(etcd),
      clock_(clock),
      options_(std::move(options)),
      prefix_(fmt::format("/hocket/{}/", options_.name)),
      agreed_(digest(options_.self)) {}

void CoordinatorSeat::want_epoch(int64_t term, uint32_t epoch, std::string ranks) {
  wanted_epoch_ = {.term = term, .epoch = epoch, .ranks = std::move(ranks)};
}

bool CoordinatorSeat::is_self() const {
  return holder_ && holder_->boot_id == options_.self.boot_id;
}

bool CoordinatorSeat::has_seat() const {
  return is_self() && holder_term_ == term_;
}

CoordinatorSeat::State CoordinatorSeat::state() const {
  const bool mine = has_seat() && clock_.now() < until_;
  return {.known = watching_,
          .holder = holder_,
          .holder_term = holder_term_,
          .mine = mine,
          .until = until_,
          .term = term_,
          .floor = floor_,
          .taken = taken_,
          .local_host = etcd_.local_host(),
          .problem = problem_};
}

void CoordinatorSeat::tick() {
  if (backs_off()) return;
  if (auto done = work(); !done) {
    const Error& why = done.error();
    if (why.code == ErrorCode::not_found) lose_lease();
    if (problem_.empty())
      log::warning(
          "cluster: etcd: {}; the ranks continue in their epoch, but a lost rank cannot return "
          "until etcd answers",
          why.message);
    problem_ = why.message;
    retry_at_ = clock_.now() + options_.retry;
    return;
  }
  if (!problem_.empty()) log::info("cluster: etcd answers again");
  problem_.clear();
}

Result<void> CoordinatorSeat::work() {
  if (lease_.id == 0) {
    HOCKET_TRY_VOID(get_lease());
  } else if (clock_.now() >= renew_at_) {
    HOCKET_TRY_VOID(renew());
  }
  if (!is_rank_) HOCKET_TRY_VOID(take_rank());
  if (!watching_) HOCKET_TRY_VOID(look());
  HOCKET_TRY_VOID(follow());
  if (holder_ && holder_term_ == gone_term_) HOCKET_TRY_VOID(empty_seat());
  if (wanted_address_ && !holder_) HOCKET_TRY_VOID(take());
  if (is_self() && holder_term_ != term_) HOCKET_TRY_VOID(begin_term());
  if (has_seat() && wanted_address_ != holder_->address) HOCKET_TRY_VOID(empty_seat());
  const bool wants_epoch = wanted_epoch_.term == term_ && wanted_epoch_.epoch > taken_;
  if (has_seat() && wants_epoch) HOCKET_TRY_VOID(take_epoch());
  return {};
}

Result<void> CoordinatorSeat::get_lease() {
  const TimePoint asked = clock_.now();
  HOCKET_TRY(const EtcdLease lease,
             etcd_.grant(std::chrono::ceil<std::chrono::seconds>(options_.ttl).count()));
  lease_ = lease;
  until_ = asked + std::chrono::seconds(lease.ttl_s) - options_.margin;
  renew_at_ = asked + options_.renew;
  return {};
}

// Sets the entry of this rank, unless another process has it.
Result<void> CoordinatorSeat::take_rank() {
  const Identity& self = options_.self;
  const std::string own = key(fmt::format("{}{}", kRanksKey, self.rank));
  EtcdSwap swap{.key = own,
                .create_revision = 0,
                .puts = {{.key = own,
                          .value = fmt::format("{} {} {}", self.boot_id, agreed_, self.host),
                          .lease = lease_.id}}};
  HOCKET_TRY(is_rank_, etcd_.swap(swap));
  if (is_rank_) return {};
  HOCKET_TRY(const EtcdRange there, etcd_.range(own, 1));
  if (there.entries.empty() || there.entries.front().key != own) return {};  // it just ended
  const EtcdEntry& entry = there.entries.front();
  const std::string_view process = std::string_view(entry.value).substr(0, entry.value.find(' '));
  if (process == self.boot_id) {  // by a lease that is over, or a try that had no answer
    swap.create_revision = entry.create_revision;
    HOCKET_TRY(is_rank_, etcd_.swap(swap));
  } else if (logged_holder_ != process) {
    logged_holder_ = process;
    log::info(
        "cluster: etcd has process {} as rank {}; this one, {}, coordinates only once that entry "
        "has ended, {:g} s after its process at the latest",
        shown(process), self.rank, self.boot_id, to_seconds(options_.ttl));
  }
  return {};
}

Result<void> CoordinatorSeat::renew() {
  const TimePoint asked = clock_.now();
  HOCKET_TRY(const EtcdLease lease, etcd_.keep_alive(lease_.id));
  if (lease.ttl_s == 0) {
    lose_lease();
    return get_lease();
  }
  until_ = asked + std::chrono::seconds(lease.ttl_s) - options_.margin;
  renew_at_ = asked + options_.renew;
  return {};
}

// With the lease the seat is gone, if this rank had it; the key is read again.
void CoordinatorSeat::lose_lease() {
  lease_ = {};
  is_rank_ = false;
  until_ = {};
  watching_ = false;
  if (has_seat()) holder_.reset();
}

Result<void> CoordinatorSeat::read_seat() {
  HOCKET_TRY(const EtcdRange read, etcd_.range(key(kSeatKey), 1));
  seen_ = read.revision;
  hold(read.entries);
  return {};
}

Result<void> CoordinatorSeat::look() {
  looked_at_ = clock_.now();
  HOCKET_TRY_VOID(read_seat());
  HOCKET_TRY_VOID(etcd_.watch(key(kSeatKey), seen_ + 1));
  watching_ = true;
  return {};
}

Result<void> CoordinatorSeat::follow() {
  const auto changes = etcd_.changes();
  if (!changes) {
    watching_ = false;
    // A broken watch is no news: the key is read again at once, unless it breaks each time.
    if (clock_.now() < looked_at_ + options_.retry) return fail(changes.error());
    log::debug("cluster: etcd: {}", changes.error().message);
    return look();
  }
  for (const EtcdChange& change : *changes) {
    if (change.entry.key != key(kSeatKey) || change.entry.mod_revision <= seen_) continue;
    seen_ = change.entry.mod_revision;
    hold(change.erased ? std::vector<EtcdEntry>{} : std::vector{change.entry});
  }
  return {};
}

void CoordinatorSeat::hold(const std::vector<EtcdEntry>& read) {
  holder_.reset();
  if (read.empty() || read.front().key != key(kSeatKey)) return;
  holder_ = read_holder(read.front().value);
  holder_term_ = read.front().create_revision;
  if (!holder_) {
    log::error("cluster: etcd: the value of {} is none of hocket's: '{}'", key(kSeatKey),
               shown(read.front().value));
    holder_ = SeatHolder{};  // written by another program: leave the seat alone
  }
}

// Returns false while an older rank is there that disagrees with this one, or another process of
// this rank.
Result<bool> CoordinatorSeat::may_take() {
  if (!is_rank_) return false;  // another process has this rank
  HOCKET_TRY(const EtcdRange there, etcd_.range(key(kRanksKey), kMaxRanks));
  const std::string own = key(fmt::format("{}{}", kRanksKey, options_.self.rank));
  const auto mine = std::ranges::find(there.entries, own, &EtcdEntry::key);
  if (mine == there.entries.end()) return false;  // the lease is over: it is noticed soon
  return std::ranges::none_of(there.entries, [&](const EtcdEntry& one) {
    const auto parts = words(one.value, 3);
    const bool agrees = parts.size() >= 2 && parts[1] == agreed_;
    return !agrees && one.mod_revision < mine->mod_revision;
  });
}

Result<void> CoordinatorSeat::take() {
  HOCKET_TRY(const bool may, may_take());
  if (!may) return {};
  const Identity& self = options_.self;
  const std::string value =
      fmt::format("{} {} {}", self.boot_id, self.rank, to_text(*wanted_address_));
  HOCKET_TRY_VOID(etcd_.swap({.key = key(kSeatKey), .puts = {{key(kSeatKey), value, lease_.id}}}));
  return read_seat();
}

// The key names this rank, perhaps by an earlier try that had no answer.
Result<void> CoordinatorSeat::begin_term() {
  HOCKET_TRY(const uint32_t last, read_epoch());
  term_ = holder_term_;
  floor_ = taken_ = last;
  return {};
}

// Ends the term that this rank knows of, its own or another's; a later one stays.
Result<void> CoordinatorSeat::empty_seat() {
  HOCKET_TRY_VOID(etcd_.swap({.key = key(kSeatKey),
                              .create_revision = holder_term_,
                              .puts = {},
                              .erased = {key(kSeatKey)}}));
  return read_seat();
}

// Only the holder of the seat takes epochs, so this is the last one once the seat is this rank's. A
// number near kMaxEpoch, which another program wrote, would overflow within this term.
Result<uint32_t> CoordinatorSeat::read_epoch() {
  HOCKET_TRY(const EtcdRange read, etcd_.range(key(kEpochKey), 1));
  if (read.entries.empty() || read.entries.front().key != key(kEpochKey)) return 0;
  const std::string& value = read.entries.front().value;
  const auto number = read_number<uint32_t>(value.substr(0, value.find(' ')));
  if (number && *number <= kMaxEpoch - kMaxEpochLead) return *number;
  return fail(
      error(ErrorCode::io, "the value of {} is no epoch: '{}'", key(kEpochKey), shown(value))
          .with_fix("another name behind the / of --cluster-store"));
}

Result<void> CoordinatorSeat::take_epoch() {
  const uint32_t wanted = wanted_epoch_.epoch;
  const std::string value = fmt::format("{} {} {} {}", wanted, options_.self.rank,
                                        options_.self.boot_id, wanted_epoch_.ranks);
  HOCKET_TRY(const bool done, etcd_.swap({.key = key(kSeatKey),
                                          .create_revision = term_,
                                          .puts = {{key(kEpochKey), value}}}));
  if (done)
    taken_ = wanted;
  else
    watching_ = false;  // the seat is lost: read whose it is
  return {};
}

TimePoint CoordinatorSeat::next_deadline() const {
  if (backs_off()) return retry_at_;
  if (lease_.id == 0 || !watching_) return clock_.now();
  return std::min(renew_at_, until_);
}

void CoordinatorSeat::resign() {
  if (lease_.id == 0 || !problem_.empty()) return;  // the lease ends by itself
  if (const auto done = etcd_.revoke(lease_.id); !done)
    log::debug("cluster: etcd: {}", done.error().message);
  lease_ = {};
  is_rank_ = false;
  holder_.reset();
}

}  // namespace hocket
