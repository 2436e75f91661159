#include "engine/pages/peer_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/pages/connect.h"
#include "engine/pages/file_store.h"
#include "engine/pages/regrouped_pages.h"

namespace hocket {
namespace {

std::string_view bytes_of(std::span<const PageKey> keys) {
  return {reinterpret_cast<const char*>(keys.data()), keys.size_bytes()};
}

}  // namespace

class PeerPromptPages final : public PromptPages {
 public:
  PeerPromptPages(PeerSource& source, size_t peer, Fd socket, const PagesWanted& wanted,
                  PeerSource::SentTokens sent)
      : source_(source),
        peer_(peer),
        link_(std::move(socket), fmt::format("the peer {}", to_text(source.options_.peers[peer])),
              wanted.is_over),
        sent_(std::move(sent)) {}

  Result<void> begin(const PagesWanted& wanted) {
    const PeerSource::Options& o = source_.options_;
    const bool sends = source_.sends(wanted);
    if (sends) HOCKET_TRY_VOID(check_size(wanted.prompt));
    HOCKET_TRY_VOID(link_.client_handshake(o.token, o.tls));
    HOCKET_TRY_VOID(link_.send(PageFrame::form, bytes_of(std::span(&o.forms->form(), 1))));
    HOCKET_TRY(const std::string_view consent, take_consent());
    HOCKET_TRY_VOID(read_size(consent));
    if (!sends) return {};
    std::string text(sizeof(CacheNamespace), '\0');
    std::memcpy(text.data(), &wanted.name_space, sizeof(CacheNamespace));
    HOCKET_TRY_VOID(link_.send(PageFrame::prefill, text, std::as_bytes(wanted.prompt)));
    is_asked_ = true;
    HOCKET_TRY_VOID(take_consent());
    source_.counts_.add(&PeerCounters::peer_prefills_total);
    return {};
  }

  // True if the peer is well, but does not serve this prompt now.
  bool is_refused() const { return is_refused_; }
  // Returns the size of the peer's pages, in tokens.
  int page_tokens() const { return page_tokens_; }

  // The last key is that of the state with which the peer ends the prompt, so the prompt is short
  // without it, also if the peer has an earlier one.
  Result<size_t> last_held(std::span<const PageKey> keys) override {
    const size_t num_keys = keys.size();
    while (!keys.empty()) {
      const auto some = keys.last(std::min(keys.size(), PageLink::kMaxKeys));
      HOCKET_TRY_VOID(watch(link_.send(PageFrame::exist, bytes_of(some))));
      PageLink::Frame answer{.type = PageFrame::waiting};
      const TimePoint until = end_of_wait();
      while (answer.type == PageFrame::waiting && RealClock().now() < until) {
        HOCKET_TRY(answer, watch(link_.receive(PageLink::kSilence, PageLink::kMaxKeys)));
      }
      if (answer.type == PageFrame::waiting) return watch<size_t>(too_slow());
      if (answer.type != PageFrame::exist || answer.payload.size() != some.size())
        return watch<size_t>(stray());
      keys = keys.first(keys.size() - some.size());
      const auto last = answer.payload.find_last_not_of('\0');
      if (last == std::string_view::npos) continue;
      const size_t num_held = keys.size() + last + 1;
      if (num_held < num_keys) note_short();
      return num_held;
    }
    if (num_keys > 0) note_short();
    return 0;
  }

  Result<void> expect(std::span<const PageKey> keys, PageKind kind) override {
    expected_.assign(keys.begin(), keys.end());
    num_asked_ = num_got_ = 0;
    kind_ = kind;
    return {};
  }

  void note_room(size_t num_pages) override { room_ = num_pages; }

  Result<bool> get(const PageKey& key, std::span<std::byte> page) override {
    if (num_got_ == expected_.size() || expected_[num_got_] != key) return false;
    if (num_got_ == num_asked_) HOCKET_TRY_VOID(watch(ask_more()));
    const TimePoint until = end_of_wait();
    while (RealClock().now() < until) {
      // The peer may read it from a file, which takes as long as FileStore allows.
      HOCKET_TRY(const PageLink::Frame answer,
                 watch(link_.receive(PageLink::kSilence + FileStore::time_of(page.size()),
                                     sizeof(PageKey) + page.size())));
      if (answer.type == PageFrame::waiting && answer.payload.empty()) continue;
      if (answer.type == PageFrame::absent && answer.payload.empty()) {
        expected_.clear();
        num_asked_ = num_got_ = 0;
        note_short();
        return false;
      }
      if (answer.type != PageFrame::page || answer.payload.size() != sizeof key + page.size() ||
          std::memcmp(answer.payload.data(), key.data(), key.size()) != 0)
        return watch<bool>(stray());
      std::memcpy(page.data(), answer.payload.data() + key.size(), page.size());
      ++num_got_;
      source_.counts_.add(&PeerCounters::peer_pages_total);
      return true;
    }
    return watch<bool>(too_slow());
  }

 private:
  TimePoint end_of_wait() const {
    return is_asked_ ? TimePoint::max() : RealClock().now() + PeerSource::kMaxWait;
  }
  // A peer that fails is avoided for a while. It has not failed if no request waits for it any
  // more. Failures of begin() are those of open_at().
  template <class T>
  Result<T> watch(Result<T> result) {
    if (!result && !link_.is_over()) source_.avoid(peer_);
    return result;
  }
  // Something lacks of a prompt that the peer was to compute. It has not failed: its folder may be
  // full, or its role another one by now.
  void note_short() {
    if (is_asked_ && !std::exchange(is_short_, true))
      source_.counts_.add(&PeerCounters::peer_short_prompts_total);
  }
  std::unexpected<Error> stray() const {
    return fail(error(ErrorCode::io, "{} sent an unexpected reply", link_.name())
                    .with_fix("run the same version of hocket on both sides"));
  }
  std::unexpected<Error> too_slow() const {
    return fail(error(ErrorCode::io, "{} has sent no page for {:.0f} s", link_.name(),
                      to_seconds(PeerSource::kMaxWait))
                    .with_fix("look at its disk, and at how many others ask it for pages"));
  }
  Result<void> check_size(std::span<const TokenId> prompt) {
    constexpr size_t kMaxTokens =
        (PageLink::kMaxAskedBytes - sizeof(CacheNamespace)) / sizeof(TokenId);
    if (prompt.size() <= kMaxTokens) return {};
    is_refused_ = true;
    return fail(error(ErrorCode::io, "a prompt of {} tokens is longer than {} takes, {}",
                      prompt.size(), link_.name(), kMaxTokens)
                    .with_fix("no action needed: the prompt is computed here"));
  }
  Result<void> read_size(std::string_view consent) {
    uint32_t size = 0;
    if (consent.size() != sizeof size) return stray();
    std::memcpy(&size, consent.data(), sizeof size);
    if (!PageForms::is_size(size)) return stray();
    page_tokens_ = static_cast<int>(size);
    return {};
  }
  // Returns what came with the consent.
  Result<std::string_view> take_consent() {
    HOCKET_TRY(const PageLink::Frame answer, link_.receive(PageLink::kSilence, 1024));
    if (answer.type == PageFrame::ok) return answer.payload;
    if (answer.type == PageFrame::busy) {
      is_refused_ = true;
      return fail(error(ErrorCode::io, "{} has no connection free", link_.name())
                      .with_fix("no action needed: the prompt is computed here; or add services "
                                "that offer their pages"));
    }
    if (answer.type != PageFrame::no) return stray();
    is_refused_ = is_asked_;
    return fail(error(ErrorCode::io, "{} refused: {}", link_.name(), in_one_line(answer.payload))
                    .with_fix(is_asked_ ? "no action needed: the prompt is computed here"
                                        : "start both services with the same model and form"));
  }
  // Asks for as many pages as have buffers. The peer would have to hold others until the engine has
  // taken some, which is after its step, and would end the connection before.
  Result<void> ask_more() {
    const size_t most = std::clamp<size_t>(room_, 1, PageLink::kMaxKeys);
    const auto some = std::span<const PageKey>(expected_).subspan(
        num_asked_, std::min(expected_.size() - num_asked_, most));
    num_asked_ += some.size();
    const char kind = static_cast<char>(kind_);
    return link_.send(PageFrame::get, {&kind, 1}, std::as_bytes(some));
  }

  PeerSource& source_;
  const size_t peer_;
  PageLink link_;
  const PeerSource::SentTokens sent_;
  std::vector<PageKey> expected_;
  PageKind kind_ = PageKind::page;
  size_t num_asked_ = 0, num_got_ = 0;  // in expected_
  size_t room_ = 1;                     // pages that have buffers, the next one included
  bool is_asked_ = false, is_refused_ = false;
  bool is_short_ = false;  // note_short() has counted the prompt
  int page_tokens_ = 0;
};

PeerSource::PeerSource(Options options)
    : options_(std::move(options)),
      resolver_({.name = "kv_resolve",
                 .target = "the resolver of this host",
                 .limit = kResolveLimit,
                 .fix = "look at the name service of this host, or name an address"}) {
  HOCKET_CHECK((!options_.peers.empty() && options_.peers.size() <= kMaxPeers));
  const MutexLock lock(mutex_);
  avoid_until_.resize(options_.peers.size());
}

// Connects to the first address of the name that answers.
Result<Fd> PeerSource::connect_to_peer(const HostPort& peer, const std::function<bool()>& is_over) {
  using Addresses = std::vector<SocketAddress>;
  // An address needs no name service, so it does not wait for names that hang.
  const auto addresses = is_address(peer.host)
                             ? resolve(peer)
                             : resolver_.run<Addresses>([peer] { return resolve(peer); });
  if (!addresses)
    return fail(error(ErrorCode::io, "the peer {}: {}", to_text(peer), addresses.error().message)
                    .with_fix("look at its name, and at the name service of this host"));
  auto socket = connect_to_first(*addresses, PageLink::kConnect, is_over);
  if (socket) return socket;
  return fail(
      error(ErrorCode::io, "the peer {} cannot be reached: {}", to_text(peer),
            socket.error().message)
          .with_fix("look whether that service runs, and whether it has --kv-cache-listen"));
}

void PeerSource::avoid(size_t peer) {
  counts_.add(&PeerCounters::peer_failures_total);
  const MutexLock lock(mutex_);
  avoid_until_[peer] = RealClock().now() + kLeftAlone;
}

// Peers refuse under ordinary load, too, so that is no fault.
void PeerSource::note_refusal(const Error& why) {
  counts_.add(&PeerCounters::peer_refusals_total);
  if (const auto num_more = refusals_.admit(RealClock().now()))
    log::info(
        "stored prefixes: {}, so the next peer is asked, or the prompt is computed here ({} more "
        "since the last such line)",
        why.message, *num_more);
}

Result<std::unique_ptr<PromptPages>> PeerSource::open_at(size_t peer, const PagesWanted& wanted) {
  // Its tokens count from here on, since the name and the connection may take seconds.
  SentTokens sent(num_sent_[peer], sends(wanted) ? std::ssize(wanted.prompt) : 0);
  auto socket = connect_to_peer(options_.peers[peer], wanted.is_over);
  if (!socket) {
    if (!wanted.is_over()) avoid(peer);
    return fail(std::move(socket.error()));
  }
  auto pages =
      std::make_unique<PeerPromptPages>(*this, peer, *std::move(socket), wanted, std::move(sent));
  if (auto begun = pages->begin(wanted); !begun) {
    if (pages->is_refused()) {
      note_refusal(begun.error());
      return nullptr;
    }
    if (!wanted.is_over()) avoid(peer);
    return fail(std::move(begun.error()));
  }
  if (sends(wanted)) prefixes_.note(wanted.keys, peer);
  const int page_tokens = pages->page_tokens();
  if (page_tokens == options_.forms->page_tokens()) return pages;
  return std::make_unique<RegroupedPages>(std::move(pages), *options_.forms, page_tokens, wanted);
}

std::vector<size_t> order_of_peers(size_t first, std::span<const int64_t> loads) {
  std::vector<size_t> order(loads.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = (first + i) % order.size();
  std::ranges::stable_sort(order, {}, [&](size_t peer) { return loads[peer]; });
  return order;
}

// A peer that the client named comes first, and then those behind it. Elsewhere the load of peers
// counts where they compute, less the tokens that one need not compute again. So a conversation
// stays with its peer unless that has much more to do than another one.
std::vector<size_t> PeerSource::order_for(const PagesWanted& wanted) {
  std::vector<int64_t> loads(options_.peers.size());
  if (wanted.peer >= 0) return order_of_peers(static_cast<size_t>(wanted.peer), loads);
  if (sends(wanted)) {
    std::copy_n(num_sent_.begin(), loads.size(), loads.begin());
    if (const auto known = prefixes_.find(wanted.keys))
      loads[known->peer] -= static_cast<int64_t>(known->num_pages) * options_.forms->page_tokens();
  }
  return order_of_peers(next_++, loads);
}

Result<std::unique_ptr<PromptPages>> PeerSource::open(const PagesWanted& wanted) {
  Error last;
  bool failed = false;
  for (const size_t peer : order_for(wanted)) {
    if (wanted.is_over()) break;
    if (wanted.tried != nullptr) {
      const uint64_t bit = uint64_t{1} << peer;
      if ((*wanted.tried & bit) != 0) continue;
      *wanted.tried |= bit;
    }
    {
      const MutexLock lock(mutex_);
      if (RealClock().now() < avoid_until_[peer]) continue;
    }
    auto reading = open_at(peer, wanted);
    if (reading && *reading) return reading;
    if (reading) continue;
    last = std::move(reading.error());
    failed = true;
  }
  if (failed) return fail(std::move(last));
  return nullptr;
}

Result<std::vector<HostPort>> parse_peers(std::string_view text, std::string_view param) {
  std::vector<HostPort> peers;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    auto peer = parse_host_port(text.substr(0, end));
    if (!peer || peer->port == 0 || peers.size() == PeerSource::kMaxPeers)
      return fail(error(ErrorCode::bad_value, "--{}: '{}' is not one of at most {} peers", param,
                        text.substr(0, end), PeerSource::kMaxPeers)
                      .with_fix("a list such as h0:8998,h1:8998")
                      .with_param(std::string(param)));
    peers.push_back(*std::move(peer));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return peers;
}

}  // namespace hocket
