#ifdef HOCKET_HAS_UCX

#include "compute/comm/ucx_end.h"

#include <sched.h>

#include <algorithm>

#include "base/check.h"

namespace hocket {

namespace {

constexpr Duration kSpin = std::chrono::microseconds(20);  // polling time before a sleep

}  // namespace

UcxEnd::UcxEnd(const UcxLibrary& ucx, int rank, int num_ranks, const UcxOptions& options)
    : ucx_(ucx), rank_(rank), options_(options), context_(ucx, options) {
  for (int other = 0; other < num_ranks; ++other) peers_.emplace_back(context_, rank_, other);
}

UcxEnd::~UcxEnd() {
  if (!context_.is_open()) return;
  say_goodbye();
  close();
}

Result<void> UcxEnd::open() {
  HOCKET_TRY_VOID(context_.open(num_ranks()));
  HOCKET_TRY(const std::vector<std::byte> bytes, context_.address());
  RankAddress own = address_here();
  own.rank = rank_;
  own.epoch = options_.epoch;
  own.worker = bytes;
  address_ = encode(own);
  return {};
}

UcxPeer& UcxEnd::peer(int rank) {
  HOCKET_CHECK(rank >= 0 && rank < num_ranks());
  HOCKET_CHECK(rank != rank_);
  return peers_[static_cast<size_t>(rank)];
}

TransportCaps UcxEnd::caps() const {
  const UcxSettings& settings = context_.settings();
  // Two lanes share a connection, and each wants room for a message.
  return {.name = settings.name(),
          .moves_by_itself = settings.has_tcp,
          .exact_arrival = false,
          .max_message_bytes = settings.has_tcp ? kernel_buffer_bytes() / 2 : 0};
}

std::string UcxEnd::describe() const {
  return fmt::format("ucx {} | {}", ucx_.ucp_get_version_string(), context_.settings().describe());
}

// Connecting.

void UcxEnd::set_secrets(std::span<const Secret> of_ranks) {
  HOCKET_CHECK(of_ranks.size() == peers_.size());
  for (UcxPeer& p : peers_) p.set_secret(of_ranks[static_cast<size_t>(p.rank())]);
}

std::expected<void, UcxTransport::UnreachableRank> UcxEnd::connect(
    std::span<const std::span<const std::byte>> addresses) {
  HOCKET_CHECK(addresses.size() == peers_.size());
  const Result<RankAddress> own = decode_address(address_);
  HOCKET_CHECK(own.has_value());
  for (UcxPeer& p : peers_) {
    const std::span<const std::byte> address = addresses[static_cast<size_t>(p.rank())];
    if (p.rank() == rank_ || address.empty()) continue;
    if (const auto done = p.connect(*own, address); !done)
      return std::unexpected(
          UnreachableRank{error(ErrorCode::lost_rank, "rank {} cannot reach rank {}: {}", rank_,
                                p.rank(), done.error().message),
                          p.rank()});
  }
  is_connected_ = true;
  return {};
}

// Progress, waits.

bool UcxEnd::progress() {
  if (context_.is_open()) {
    for (int i = 0; i < UcxContext::kMaxTurns && context_.turn(); ++i) context_.note_event();
  }
  if (context_.is_open() && context_.has_events()) drop_messages_of_strangers();
  for (UcxPeer& p : peers_) p.lose_ended();  // only here, so that earlier messages are seen first
  return context_.take_events();
}

void UcxEnd::wait(Duration max_wait) {
  if (context_.has_events() || max_wait.count() <= 0) return;
  const TimePoint start = now(), look = start + std::min(max_wait, kSpin);
  while (context_.is_open()) {
    if (context_.turn()) context_.note_event();
    if (context_.has_events()) return;
    if (now() >= look) break;
    sched_yield();  // the sender may share this core
  }
  const Duration remaining = start + max_wait - now();
  if (remaining.count() <= 0) return;
  if (context_.is_open() && !context_.arm()) return;
  note_ends(context_.sleep(remaining));
}

void UcxEnd::note_ends(const UcxContext::Readable& readable) {
  for (int i = 0; i < readable.num; ++i)
    peers_[static_cast<size_t>(readable.ids[static_cast<size_t>(i)])].note_end();
}

template <class Done>
bool UcxEnd::until(Done done) {
  return context_.until(options_.patience, done,
                        [this](const UcxContext::Readable& readable) { note_ends(readable); });
}

// Closing.

void UcxEnd::withdraw() {
  for (UcxPeer& p : peers_) p.expect_no_more();
  if (context_.is_open()) {
    const auto is_busy = [](const UcxPeer& p) { return p.is_busy(); };
    // A message that arrived in part, or that a silent peer does not take, cannot be cancelled: it
    // ends when the context is closed.
    if (!until([&] { return std::ranges::none_of(peers_, is_busy); })) {
      for (UcxPeer& p : peers_) {
        if (p.rank() != rank_) p.lose(fmt::format("rank {} gave up what was under way", rank_));
      }
      close();
    } else {
      drop_early_messages();
    }
  }
  for (UcxPeer& p : peers_) p.forget_messages();
}

void UcxEnd::drop_early_messages() {
  ucp_tag_recv_info_t info{};
  while (ucp_tag_message_h message = ucx_.ucp_tag_probe_nb(context_.handle(), 0, 0, 1, &info))
    drop(message);
}

bool UcxEnd::is_of_peer(ucp_tag_t tag) const {
  const size_t source = UcxPeer::source_of(tag);
  return source < peers_.size() && std::cmp_not_equal(source, rank_) &&
         peers_[source].may_have_sent(tag);
}

// A peer has at most one early message on a channel, so UCX's queue of unexpected messages stays
// short. Strangers at the port keep to nothing. UCX shows the oldest message only: those behind an
// early one stay until that is received. One turn of the worker may take in thousands, so all that
// are here are dropped; the loop ends, because none comes without another turn.
void UcxEnd::drop_messages_of_strangers() {
  ucp_tag_recv_info_t info{};
  while (is_connected_) {
    if (ucx_.ucp_tag_probe_nb(context_.handle(), 0, 0, 0, &info) == nullptr ||
        is_of_peer(info.sender_tag))
      return;
    drop(ucx_.ucp_tag_probe_nb(context_.handle(), info.sender_tag, ~ucp_tag_t{0}, 1, &info));
  }
}

// Receives it into an empty buffer: UCX then discards it, also one that is not complete yet.
void UcxEnd::drop(ucp_tag_message_h message) {
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  how.cb.recv = on_dropped;
  how.user_data = this;
  ucx_.ucp_tag_msg_recv_nbx(context_.handle(), nullptr, 0, message, &how);
}

void UcxEnd::on_dropped(void* request, ucs_status_t, const ucp_tag_recv_info_t*, void* user) {
  static_cast<UcxEnd*>(user)->ucx_.ucp_request_free(request);
}

void UcxEnd::finish(const std::vector<void*>& requests) {
  until([&] {
    return std::ranges::all_of(requests, [&](void* request) {
      return ucx_.ucp_request_check_status(request) != UCS_INPROGRESS;
    });
  });
  for (void* request : requests) ucx_.ucp_request_free(request);
}

// Says goodbye after all messages; waits until the peers have it, if they take it.
void UcxEnd::say_goodbye() {
  std::vector<void*> requests;
  for (UcxPeer& p : peers_) p.say_goodbye(requests);
  finish(requests);
}

// Afterwards no slot or part is read or written.
void UcxEnd::close() {
  for (UcxPeer& p : peers_) p.expect_no_more();
  drop_early_messages();
  std::vector<void*> requests;
  for (UcxPeer& p : peers_) p.begin_close(requests);
  finish(requests);
  context_.close();
  for (UcxPeer& p : peers_) p.end_close();
}

}  // namespace hocket

#endif
