// Pages of other services (engine/pages/page_server.h), asked for over TCP by key.
//
//   cache     a peer is asked which pages it has; those that it lacks are computed here
//   prefill   a peer computes the prompt if asked to; pages arrive chunk by chunk
//
// A peer may have pages of another size (regrouped_pages.h).
//
// Peers take turns; of those that compute prompts, the one with the fewest tokens under way for
// this service comes first. The tokens of a prefix that a peer computed before count against that,
// so the next turn of a conversation goes to the peer that has the others (prefix_peers.h). One
// that does not answer, or has another model or form, is left alone for 30 s. One that refuses a
// prompt is well and stays in use; the next one is asked.
// Thread: any.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/log_limit.h"
#include "base/mutex.h"
#include "base/timed_calls.h"
#include "engine/pages/page_forms.h"
#include "engine/pages/page_link.h"
#include "engine/pages/page_source.h"
#include "engine/pages/prefix_peers.h"
#include "engine/stats/cache_tier_stats.h"

namespace hocket {

enum class PeerUse : uint8_t { cache, prefill };

class PeerSource final : public PageSource {
 public:
  static constexpr size_t kMaxPeers = 64;  // bits of PagesWanted::tried
  // Limit of the wait for an answer of a peer that computes nothing for it. Meanwhile the peer says
  // every second that it is there. One that computes the prompt, or has it in line, is awaited
  // until is_over(): the prompt's own limit ends that (PagePrefetch::max_hold).
  static constexpr Duration kMaxWait = std::chrono::seconds(300);
  static constexpr Duration kLeftAlone = std::chrono::seconds(30);
  // Limit of the wait for the system's resolver, which may hang.
  static constexpr Duration kResolveLimit = std::chrono::seconds(5);
  // Time between two lines about refusals in the log.
  static constexpr Duration kRefusalInterval = std::chrono::seconds(60);

  struct Options {
    std::vector<HostPort> peers;  // 1 to kMaxPeers
    PeerUse use = PeerUse::cache;
    std::string token;  // the cluster's; empty: none
    PageTls tls;
    std::shared_ptr<const PageForms> forms;  // never null
  };
  explicit PeerSource(Options options);

  PageTier tier() const override { return PageTier::peer; }
  bool computes() const override { return options_.use == PeerUse::prefill; }
  int num_tries() const override { return static_cast<int>(options_.peers.size()); }
  Result<std::unique_ptr<PromptPages>> open(const PagesWanted& wanted) override;
  PeerCounters counts() const { return counts_.read(kPeerCounters); }

 private:
  friend class PeerPromptPages;
  // The tokens of a prompt that a peer is to compute, in the sum of that peer while this lives.
  class SentTokens {
   public:
    SentTokens(std::atomic<int64_t>& sum, int64_t num_tokens) : sum_(&sum), num_(num_tokens) {
      *sum_ += num_;
    }
    SentTokens(SentTokens&& other) noexcept
        : sum_(other.sum_), num_(std::exchange(other.num_, 0)) {}
    SentTokens& operator=(SentTokens&&) = delete;
    ~SentTokens() { *sum_ -= num_; }

   private:
    std::atomic<int64_t>* sum_;
    int64_t num_;
  };
  // Returns true if the peer is to compute the prompt.
  bool sends(const PagesWanted& wanted) const { return computes() && wanted.computes; }
  std::vector<size_t> order_for(const PagesWanted& wanted);
  Result<Fd> connect_to_peer(const HostPort& peer, const std::function<bool()>& is_over);
  // Returns null if the peer refuses.
  Result<std::unique_ptr<PromptPages>> open_at(size_t peer, const PagesWanted& wanted);
  void avoid(size_t peer);
  void note_refusal(const Error& why);

  const Options options_;
  AtomicCounts<PeerCounters> counts_;
  std::atomic<size_t> next_{0};
  // By peer: tokens of prompts that it computes for this service now.
  std::array<std::atomic<int64_t>, kMaxPeers> num_sent_{};
  PrefixPeers prefixes_;
  TimedCalls resolver_;
  LogLimit refusals_{kRefusalInterval};
  Mutex mutex_;
  std::vector<TimePoint> avoid_until_ HOCKET_GUARDED_BY(mutex_);
};

// Returns the order in which peers are asked: those with the smallest load first, in tokens, and
// equal ones in turn from peer `first` on.
std::vector<size_t> order_of_peers(size_t first, std::span<const int64_t> loads);

// Parses "h0:5000,h1:5000" of the flag `param`. Errors: bad_value.
Result<std::vector<HostPort>> parse_peers(std::string_view text, std::string_view param);

}  // namespace hocket
