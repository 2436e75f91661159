#include "engine/lockstep/cluster_network.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "cluster/token_proof.h"
#include "compute/comm/ucx_settings.h"

namespace hocket {
namespace {

constexpr Duration kPublishAgain = std::chrono::seconds(1);  // after a failure
constexpr Duration kPoll = std::chrono::milliseconds(5);

std::string_view nonce_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

uint64_t secret_of_rows(const Proof& key, uint32_t epoch, const RankNonce& from,
                        const RankNonce& to) {
  const Proof proof =
      sign(nonce_text(key), fmt::format("{}/{}/{}/{}{}", epoch, from.rank, to.rank,
                                        nonce_text(from.nonce), nonce_text(to.nonce)));
  uint64_t secret = 0;
  std::memcpy(&secret, proof.data(), sizeof secret);
  return secret;
}

Result<std::unique_ptr<ClusterNetwork>> ClusterNetwork::create(ControlPlane& control,
                                                               Options options) {
  HOCKET_TRY(std::string version, ucx_version());
  return std::unique_ptr<ClusterNetwork>(
      new ClusterNetwork(control, std::move(options), std::move(version)));
}

ClusterNetwork::ClusterNetwork(ControlPlane& control, Options options, std::string version)
    : control_(control),
      options_(std::move(options)),
      version_(std::move(version)),
      addresses_(static_cast<size_t>(control.self().num_ranks)),
      nonces_(addresses_.size()) {}

std::string ClusterNetwork::describe() const {
  MutexLock lock(mutex_);
  return transport_ ? transport_->describe()
                    : fmt::format("ucx {} | {}", version_, ucx_settings(options_.ucx).describe());
}

std::string ClusterNetwork::key(uint32_t epoch, int rank) const {
  return fmt::format("addr/{}/{}", epoch, rank);
}

Result<std::optional<RankSet>> ClusterNetwork::members(Duration max_wait) {
  control_.own_heartbeat().ready(options_.terms);
  if (auto why = refusal()) return fail(*std::move(why));
  const auto view = control_.wait_epoch(max_wait);
  if (view) return view->present();
  if (auto failure = control_.failure()) return fail(*std::move(failure));
  return std::nullopt;
}

Result<std::optional<RankNetwork::Link>> ClusterNetwork::join(const RankSet& ranks,
                                                              Duration max_wait) {
  const TimePoint until = RealClock().now() + max_wait;
  const auto view = control_.wait_epoch(max_wait);
  if (!view || view->present() != ranks) return std::nullopt;
  if (transport() != nullptr && epoch_ != view->epoch) close();
  // Failures below mean that a rank has left meanwhile, except if terms differ.
  const auto not_yet = [this](const Error& why) -> Result<std::optional<Link>> {
    log::debug("network: {}", why.message);
    close();
    if (auto refused = refusal()) return fail(*std::move(refused));
    return std::nullopt;
  };
  if (transport() == nullptr) HOCKET_TRY_VOID(open(view->epoch));
  if (RealClock().now() >= publish_at_) {
    // Others may know the address already, so the transport is lost only if the address was never
    // sent.
    const bool is_first = publish_at_ == TimePoint{};
    if (auto published = publish_address(); !published && is_first)
      return not_yet(published.error());
  }
  const Result<bool> all_known = read_addresses(ranks, until);
  if (!all_known) return not_yet(all_known.error());
  if (!*all_known) return std::nullopt;
  const std::vector<std::span<const std::byte>> places = [this] {
    std::vector<std::span<const std::byte>> all;
    for (const std::string& address : addresses_) all.push_back(std::as_bytes(std::span(address)));
    return all;
  }();
  transport()->set_secrets(secrets());
  if (auto connected = transport()->connect(places); !connected) {
    control_.report_unreachable(epoch_, connected.error().rank, connected.error().message);
    return not_yet(connected.error());
  }
  if (auto entered = control_.enter(epoch_); !entered) return not_yet(entered.error());
  MutexLock lock(mutex_);
  linked_ = true;
  return Link{.transport = transport_.get(), .epoch = epoch_, .ranks = ranks};
}

Result<void> ClusterNetwork::open(uint32_t epoch) {
  UcxOptions ucx = options_.ucx;
  ucx.epoch = epoch;
  HOCKET_TRY(auto transport, UcxTransport::create(rank(), num_ranks(), ucx));
  if (epoch_ != 0) static_cast<void>(control_.erase(key(epoch_, rank())));
  const std::span<const std::byte> address = transport->address();
  addresses_.assign(static_cast<size_t>(num_ranks()), "");
  addresses_[static_cast<size_t>(rank())] =
      std::string(reinterpret_cast<const char*>(address.data()), address.size());
  nonces_[static_cast<size_t>(rank())] = make_nonce();
  publish_at_ = {};
  MutexLock lock(mutex_);
  transport_ = std::move(transport);
  epoch_ = epoch;
  return {};
}

// The address is needed until all ranks are connected: a rank that leaves the epoch later ends it.
Result<void> ClusterNetwork::publish_address() {
  publish_at_ = RealClock().now() + options_.address_lifetime / 2;
  const std::string said =
      fmt::format("{}\n{}{}", options_.terms, nonce_text(nonces_[static_cast<size_t>(rank())]),
                  addresses_[static_cast<size_t>(rank())]);
  const auto known = control_.set(key(epoch_, rank()), said, options_.address_lifetime);
  if (known) return {};
  publish_at_ = RealClock().now() + kPublishAgain;
  return fail(ErrorCode::lost_rank, "the ranks' store does not take this rank's address: {}",
              known.error().message);
}

Result<bool> ClusterNetwork::read_addresses(const RankSet& ranks, TimePoint until) {
  for (int rank = 0; rank < num_ranks(); ++rank) {
    std::string& address = addresses_[static_cast<size_t>(rank)];
    if (!address.empty() || !ranks.has(rank)) continue;
    {
      MutexLock lock(mutex_);
      awaited_ = rank;
    }
    const Duration remaining = until - RealClock().now();
    const auto said = control_.wait(key(epoch_, rank), std::max(remaining, Duration{}));
    if (!said) {
      if (said.error().code == ErrorCode::timed_out) return false;
      return fail(said.error());
    }
    const size_t end = said->find('\n');
    Nonce& nonce = nonces_[static_cast<size_t>(rank)];
    if (end == std::string::npos || said->size() <= end + 1 + nonce.size())
      return fail(ErrorCode::lost_rank, "rank {} does not say where it is", rank);
    const std::string_view terms = std::string_view(*said).substr(0, end);
    if (terms != options_.terms) return refuse(rank, rank == ranks.first(), terms, until);
    std::memcpy(nonce.data(), said->data() + end + 1, nonce.size());
    address = said->substr(end + 1 + nonce.size());
  }
  MutexLock lock(mutex_);
  awaited_ = -1;
  return true;
}

std::vector<UcxTransport::Secret> ClusterNetwork::secrets() const {
  const Proof key = control_.key_for("hocket rows 1");
  std::vector<UcxTransport::Secret> all(addresses_.size());
  const RankNonce own{.rank = rank(), .nonce = nonces_[static_cast<size_t>(rank())]};
  for (int other = 0; other < num_ranks(); ++other) {
    const RankNonce theirs{.rank = other, .nonce = nonces_[static_cast<size_t>(other)]};
    all[static_cast<size_t>(other)] = {.in = secret_of_rows(key, epoch_, theirs, own),
                                       .out = secret_of_rows(key, epoch_, own, theirs)};
  }
  return all;
}

// The lowest rank is right: a rank that differs from it must stop, and the others wait for its
// replacement.
Result<bool> ClusterNetwork::refuse(int rank, bool is_right, std::string_view terms,
                                    TimePoint until) {
  if (!is_right) {
    std::this_thread::sleep_until(until);
    return false;
  }
  MutexLock lock(mutex_);
  refused_ = other_terms(control_.view().members[static_cast<size_t>(rank)].identity, terms,
                         control_.self(), options_.terms);
  return fail(*refused_);
}

std::string ClusterNetwork::name_of_rank(int rank) const {
  return name_of(control_.view().members[static_cast<size_t>(rank)].identity);
}

void ClusterNetwork::close() {
  std::unique_ptr<UcxTransport> gone;
  MutexLock lock(mutex_);
  linked_ = false;
  gone = std::move(transport_);
}

void ClusterNetwork::leave() {
  close();
}

void ClusterNetwork::report_lost(int peer, const Error& why) {
  const TimePoint until = RealClock().now() + options_.verdict;
  while (control_.aborted().load(std::memory_order_acquire) == 0 && RealClock().now() < until)
    std::this_thread::sleep_for(kPoll);
  if (control_.aborted().load(std::memory_order_acquire) != 0) return;
  if (peer >= 0)
    control_.report_lost(peer, why.message);
  else
    control_.abort(why.message);
}

std::optional<Error> ClusterNetwork::refusal() const {
  const MutexLock lock(mutex_);
  return refused_;
}

UcxTransport* ClusterNetwork::transport() const {
  const MutexLock lock(mutex_);
  return transport_.get();
}

std::optional<Error> ClusterNetwork::failure() const {
  if (auto refused = refusal()) return refused;
  return control_.failure();
}

std::optional<Error> ClusterNetwork::lost() const {
  int awaited = -1;
  bool leaves_step = false;
  {
    MutexLock lock(mutex_);
    if (refused_) return refused_;
    if (linked_ && control_.aborted().load(std::memory_order_acquire) == 0) return std::nullopt;
    awaited = awaited_;
    leaves_step = linked_;
  }
  if (auto failure = control_.failure()) return failure;
  const ClusterView view = control_.view();
  const Member& self = view.members[static_cast<size_t>(rank())];
  std::string why = missing(view);
  if (why.empty() && leaves_step) why = view.why;  // the lost rank is back already
  if (self.state != MemberState::member && !leaves_step)
    why = "this rank is being joined to the others";
  if (why.empty() && awaited >= 0)
    why = fmt::format("{} is not ready: it loads the model or experts, or leaves its last step",
                      name_of_rank(awaited));
  if (why.empty()) why = "the ranks are still connecting";
  return error(ErrorCode::lost_rank, "{}", why).with_fix("try again later");
}

// Without --tolerate-ranks the service never counts as begun: there the ranks may load for long.
bool ClusterNetwork::serves_soon() const {
  const ClusterView view = control_.view();
  return view.began && view.serves() && view.present().has(rank()) && !failure();
}

void ClusterNetwork::wake() {
  MutexLock lock(mutex_);
  if (transport_) transport_->wake();
}

}  // namespace hocket
