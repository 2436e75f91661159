// The part of a service in prefill apart from decode (--disaggregation-mode). It may change while
// the service runs: by set(), or with `automatic` by the load that it notes itself. Requests that
// are under way end as they began.
// Owner: shared by the ranks of a process, and those who change it. Thread: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"

namespace hocket {

// null: computes prompts and answers of its own. prefill: also prompts of others. decode: others
// compute its prompts. automatic: as prefill; and as decode while its prompts would take much of
// its time beside answers.
enum class Disaggregation : uint8_t { null, prefill, decode, automatic };
// Errors: bad_value.
Result<Disaggregation> parse_disaggregation(std::string_view name);
std::string_view disaggregation_name(Disaggregation mode);

class PrefillRole {
 public:
  // Shares of a service's time that its prompts would take, over kMeasured: from kMuch on they are
  // sent away, until they need less than kLittle.
  static constexpr double kMuch = 0.25, kLittle = 0.1;
  static constexpr Duration kMeasured = std::chrono::seconds(10);

  struct Options {
    Disaggregation mode = Disaggregation::null;
    bool can_prefill = false;  // it has an address at which it offers pages
    bool can_decode = false;   // it knows services that compute prompts
  };
  explicit PrefillRole(const Options& options) : options_(options), mode_(options.mode) {}

  // Errors: bad_value, if the service was started without what the mode needs.
  Result<void> check(Disaggregation mode) const;
  // Changes the mode, and announces it. Errors: those of check().
  Result<void> set(Disaggregation mode);
  Disaggregation mode() const { return mode_; }

  // True while this service computes prompts of others.
  bool takes_prompts() const;
  // True while others compute the prompts of this one.
  bool sends_prompts() const;
  // Notes a prompt that would take so long here, whoever computes it, beside so many answers.
  void note_prompt(Duration to_compute, int num_answers, TimePoint now);

 private:
  const Options options_;
  std::atomic<Disaggregation> mode_;
  std::atomic<bool> has_much_{false};
  Mutex mutex_;
  double prompt_seconds_ HOCKET_GUARDED_BY(mutex_) = 0;  // older ones count less
  TimePoint noted_ HOCKET_GUARDED_BY(mutex_){};
};

}  // namespace hocket
