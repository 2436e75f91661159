// The role of a service, by --disaggregation-mode: whether it computes prompts for others, and
// others its own. It may change while the service runs: by set(), or with `automatic` by the load
// of each rank (prefill_load.h). Requests that are under way end as they began.
// Owner: shared by the ranks of a process, and those who change it. Thread: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/mutex.h"
#include "base/result.h"
#include "core/model_config.h"

namespace hocket {

// Returns the number of tokens that a request for a prompt alone samples; they are dropped. The
// model's own module computes its rows of a chunk behind the chunk's step, and of requests that
// continue only.
inline int num_prefill_tokens(const ModelConfig& model) {
  return model.num_mtp_loaded > 0 ? 2 : 1;
}

// null: computes prompts and answers of its own. prefill: also prompts of others. decode: others
// compute its prompts. automatic: as prefill; and each rank as decode while its load says so.
enum class Disaggregation : uint8_t { null, prefill, decode, automatic };
// Errors: bad_value.
Result<Disaggregation> parse_disaggregation(std::string_view name);
std::string_view disaggregation_name(Disaggregation mode);

// A mode and the number of the change that set it. Numbers count the changes of a service, and all
// its ranks keep the one that is largest, so a change that arrives late changes nothing.
struct RoleChange {
  Disaggregation mode = Disaggregation::null;
  static constexpr uint64_t kMaxNumber = uint64_t{1} << 62;
  uint64_t number = 0;  // 0: the mode of the start; at most kMaxNumber if another rank says it

  // Two changes that were made at the same time have one number, and the modes decide.
  bool is_before(const RoleChange& other) const {
    return number != other.number ? number < other.number : mode < other.mode;
  }
};

class PrefillRole {
 public:
  struct Options {
    Disaggregation mode = Disaggregation::null;
    bool can_prefill = false;  // it has an address at which it offers pages
    bool can_decode = false;   // it knows services that compute prompts
  };
  explicit PrefillRole(const Options& options)
      : options_(options), mode_(options.mode), last_{.mode = options.mode} {}

  // Errors: bad_value, if the service was started without what the mode needs.
  Result<void> check(Disaggregation mode) const;
  // Changes the mode, with the next number, and announces it. Errors: those of check(); bad_value
  // if no number is left.
  Result<void> set(Disaggregation mode);
  // Makes a change that another rank of the service sent; one that is not after the last is left
  // alone. Errors: those of check(); bad_value (a number over kMaxNumber).
  Result<void> take(const RoleChange& change);
  Disaggregation mode() const { return mode_; }
  RoleChange last_change() const;
  // True if another mode than null is possible.
  bool has_roles() const { return options_.can_prefill || options_.can_decode; }

  // True while this service computes prompts of others.
  bool takes_prompts() const;
  // True while others compute the prompts of this one, or with `automatic` those of one of its
  // ranks.
  bool sends_prompts() const;
  // A rank sends its prompts away because of its load, or does so no longer.
  void count_sending_rank(bool sends) { num_sending_ranks_ += sends ? 1 : -1; }

 private:
  void change_to(const RoleChange& change) HOCKET_REQUIRES(mutex_);

  const Options options_;
  std::atomic<Disaggregation> mode_;  // that of last_, read without the lock
  mutable Mutex mutex_;
  RoleChange last_ HOCKET_GUARDED_BY(mutex_);
  std::atomic<int> num_sending_ranks_{0};
};

}  // namespace hocket
