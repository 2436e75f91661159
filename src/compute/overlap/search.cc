#include "compute/overlap/search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "compute/forward/split.h"

namespace hocket {
namespace {

constexpr int kEndless = std::numeric_limits<int>::max();
// If transfers take less than this fraction of a step, there is nothing to hide.
constexpr double kLittle = 0.02;

// Makes the order of three halves in turn: attention of a, b, c, then experts of a, b, c. A combine
// is waited for right before the next attention of its half.
Order make_three_halves() {
  Order order{"three halves", 3, {}};
  for (uint8_t half = 0; half < 3; ++half) {
    order.slots.push_back({half, Op::combine_wait, 1});
    for (const Op op : {Op::attn_in, Op::attn_core, Op::mlp, Op::gate, Op::dispatch_start})
      order.slots.push_back({half, op, 0});
  }
  for (uint8_t half = 0; half < 3; ++half)
    for (const Op op : {Op::shared, Op::dispatch_wait, Op::experts, Op::combine_start})
      order.slots.push_back({half, op, 0});
  return order;
}

const Order& three_halves() {
  static const Order order = make_three_halves();
  return order;
}

// Returns the gain as a fraction of the time of `none`: "+12 %", "-4 %", "0 %".
std::string gain(double us, double none_us) {
  const auto percent = none_us > 0 ? std::lround(100 * (none_us - us) / none_us) : 0;
  return percent == 0 ? "0 %" : fmt::format("{:+} %", percent);
}

}  // namespace

std::optional<std::array<Bucket, 2>> halves_of(const Bucket& bucket, int share, int row_tile) {
  if (bucket.rows < 2) return std::nullopt;
  const int first = wished_rows(bucket.rows, {.share = share, .row_tile = row_tile});
  std::array<Bucket, 2> halves = {bucket, bucket};
  halves[0].rows = first;
  halves[0].kv_tokens = bucket.kv_tokens * first / bucket.rows;
  halves[1].rows = bucket.rows - first;
  halves[1].kv_tokens = bucket.kv_tokens - halves[0].kv_tokens;
  return halves;
}

namespace {

// Returns the predictor of the halves that the plan cuts the bucket into.
Predictor predictor_of(const SearchQuestion& question, const Plan& plan) {
  const int num_halves = question.orders.at(plan.order).num_halves;
  std::array<StageTimes, 2> times{};
  if (num_halves == 1) {
    times[0] = question.model.at(question.bucket);
  } else if (const auto halves = halves_of(question.bucket, plan.share, question.row_tile)) {
    times = {question.model.at((*halves)[0]), question.model.at((*halves)[1])};
  } else {  // the second half is empty
    Bucket nothing = question.bucket;
    nothing.rows = 0, nothing.kv_tokens = 0;
    times = {question.model.at(question.bucket), question.model.at(nothing)};
  }
  return {std::span(times).first(static_cast<size_t>(num_halves)), plan.parts, question.layers};
}

}  // namespace

Prediction predict_plan(const SearchQuestion& question, const Plan& plan) {
  return predictor_of(question, plan).predict(question.orders.at(plan.order));
}

double predict_step_us(const SearchQuestion& question, const Plan& plan) {
  return predictor_of(question, plan).step_us(question.orders.at(plan.order));
}

Searcher::Searcher(const OrderTable& orders) : orders_(orders) {
  for (int order = 0; order < orders.size(); ++order) {
    if (orders.at(order).num_halves == 1) one_half_.push_back(order);
    if (orders.at(order).num_halves == 2) two_halves_.push_back(order);
  }
  answer_.leaders.reserve(SearchAnswer::kLeaders + 1);
  answer_.common.reserve(3 * (one_half_.size() + static_cast<size_t>(orders.found_begin())));
}

void Searcher::begin(const SearchQuestion& question) {
  HOCKET_CHECK(&question.orders == &orders_);
  model_ = &question.model;
  layers_ = question.layers, bucket_ = question.bucket;
  row_tile_ = question.row_tile, most_parts_ = question.most_parts;
  single_batch_ = question.single_batch, two_batch_ = question.two_batch;
  share_ = 0, order_ = 0, parts_ = 0;
  predictor_.reset();
  answer_.leaders.clear();
  answer_.none = answer_.best = answer_.best_single = answer_.best_two = {};
  answer_.common.clear();
  answer_.lower_bound_us = Predictor::kNoLimit;
  answer_.three_halves_us = 0;
  answer_.reason = {};
  answer_.why.clear();
}

SearchQuestion Searcher::question() const {
  return {.model = *model_,
          .orders = orders_,
          .layers = layers_,
          .bucket = bucket_,
          .row_tile = row_tile_,
          .single_batch = single_batch_,
          .two_batch = two_batch_,
          .most_parts = most_parts_};
}

// Returns the time [us] that a candidate must stay below to matter.
double Searcher::limit_us() const {
  if (answer_.best_two.step_us == 0) return Predictor::kNoLimit;
  if (!two_batch_) return answer_.best_two.step_us;
  if (std::ssize(answer_.leaders) < SearchAnswer::kLeaders) return Predictor::kNoLimit;
  return std::max(answer_.best_two.step_us, answer_.leaders.back().step_us);
}

// Notes a candidate if it is the best of its kind, the best allowed one, or one of the leaders (one
// per order, the fastest first).
void Searcher::consider(const Candidate& candidate, PlanKind kind) {
  const auto keep_better = [&](Candidate& best) {
    if (best.step_us == 0 || candidate.step_us < best.step_us) best = candidate;
  };
  if (kind == PlanKind::none) keep_better(answer_.none);
  if (kind == PlanKind::single_batch) keep_better(answer_.best_single);
  if (kind == PlanKind::two_batch) keep_better(answer_.best_two);
  if (kind == PlanKind::single_batch && !single_batch_) return;
  if (kind == PlanKind::two_batch && !two_batch_) return;
  keep_better(answer_.best);

  auto& leaders = answer_.leaders;
  const auto same = std::ranges::find_if(
      leaders, [&](const Candidate& c) { return c.plan.order == candidate.plan.order; });
  if (same != leaders.end()) {
    if (same->step_us <= candidate.step_us) return;
    leaders.erase(same);
  }
  const auto after = std::ranges::find_if(
      leaders, [&](const Candidate& c) { return c.step_us > candidate.step_us; });
  leaders.insert(after, candidate);
  if (std::ssize(leaders) > SearchAnswer::kLeaders) leaders.pop_back();
}

// Predicts all plans of one half, and three halves in turn.
void Searcher::look_at_whole() {
  const StageTimes whole = model_->at(bucket_);
  for (int parts = 1; parts <= most_parts_; parts *= 2) {
    const Predictor predictor({&whole, 1}, parts, layers_);
    answer_.lower_bound_us = std::min(answer_.lower_bound_us, predictor.lower_bound_us());
    for (const int order : one_half_) {
      // Orders of one half differ only in the place of the shared expert.
      if (order != 0 && !layers_.has_shared) continue;
      const Plan plan{.order = order, .parts = parts};
      const double step_us = predictor.step_us(orders_.at(order));
      answer_.common.push_back({plan, step_us});
      consider({plan, step_us}, kind_of(plan, orders_));
    }
  }
  if (bucket_.rows < 3) return;
  Bucket third = bucket_;
  third.rows = (bucket_.rows + 2) / 3, third.kv_tokens = bucket_.kv_tokens / 3;
  std::array<StageTimes, 3> thirds{};
  thirds.fill(model_->at(third));
  answer_.three_halves_us = Predictor(thirds, 1, layers_).step_us(three_halves());
}

// Goes to the next share and parts; returns false at the end. It passes over shares that are cut as
// an earlier one, and those whose lower bound is not below the limit:
//
//   share 32: 1, 2, 4 parts | share 30: 1, 2, 4 parts | share 34: ..
bool Searcher::next_halves() {
  order_ = 0;
  predictor_.reset();
  if (two_halves_.empty()) return false;
  while (share_ < kSearchShares.size()) {
    parts_ = parts_ == 0 ? 1 : 2 * parts_;
    if (parts_ > most_parts_) {
      parts_ = 0;
      ++share_;
      continue;
    }
    const auto halves = halves_of(bucket_, kSearchShares[share_], row_tile_);
    if (!halves) return false;
    // If several shares give the same cut, only the first one is searched.
    const auto cut_alike = [&](int share) {
      return (*halves_of(bucket_, share, row_tile_))[0].rows == (*halves)[0].rows;
    };
    if (std::any_of(kSearchShares.begin(), kSearchShares.begin() + share_, cut_alike)) continue;
    const std::array times = {model_->at((*halves)[0]), model_->at((*halves)[1])};
    predictor_.emplace(times, parts_, layers_);
    const double bound = predictor_->lower_bound_us();
    answer_.lower_bound_us = std::min(answer_.lower_bound_us, bound);
    if (share_ == 0 || bound < limit_us()) return true;
  }
  return false;
}

bool Searcher::advance(int num_candidates) {
  if (answer_.none.step_us == 0 && answer_.leaders.empty()) look_at_whole();
  for (int i = 0; i < num_candidates; ++i) {
    if ((!predictor_ || order_ == two_halves_.size()) && !next_halves()) {
      finish();
      return true;
    }
    const Plan plan{two_halves_[order_++], parts_, kSearchShares[share_]};
    const bool common = is_common(plan, orders_);
    const double limit = common ? Predictor::kNoLimit : limit_us();
    const double step_us = predictor_->step_us(orders_.at(plan.order), limit);
    if (common) answer_.common.push_back({plan, step_us});
    if (step_us < Predictor::kNoLimit) consider({plan, step_us}, PlanKind::two_batch);
  }
  return false;
}

void Searcher::finish() {
  SearchReason& reason = answer_.reason;
  const StageTimes whole = model_->at(bucket_);
  reason.none = predict_plan(question(), answer_.none.plan);
  reason.latency_us = layers_.num_moe * (whole.dispatch.latency_us + whole.combine.latency_us);
  if (answer_.best_two.step_us == 0) return;
  reason.two = predict_plan(question(), answer_.best_two.plan);
  const auto halves = halves_of(bucket_, answer_.best_two.plan.share, row_tile_);
  const StageTimes half = model_->at((*halves)[1]);
  reason.experts_us = half.of(Op::experts);
  reason.attn_us = half.of(Op::attn_in) + half.of(Op::attn_core) + half.of(Op::gate);
}

SearchAnswer search(const SearchQuestion& question) {
  Searcher searcher(question.orders);
  searcher.begin(question);
  searcher.advance(kEndless);
  SearchAnswer answer = searcher.answer();
  answer.why = explain(answer, question.orders);
  return answer;
}

std::string why_not_two(const SearchReason& reason) {
  const auto& [none, two, latency_us, experts_us, attn_us] = reason;
  if (none.exposed_us < kLittle * none.step_us)
    return fmt::format("nothing to hide, the exchange is {:.1f} % of the step",
                       100 * none.exposed_us / none.step_us);
  const double costs = two.compute_us - none.compute_us, hides = none.exposed_us - two.exposed_us;
  const double half = 0.5 * none.exposed_us;
  if (costs > 0 && (costs >= half || hides >= half))
    return fmt::format("splitting costs {:.0f} %, hides {:.0f} %", 100 * costs / none.step_us,
                       100 * std::max(hides, 0.0) / none.step_us);
  if (latency_us >= half)
    return fmt::format("{:.0f} % of the exchange is latency", 100 * latency_us / none.exposed_us);
  const bool is_dispatch = two.dispatch_exposed_us >= two.combine_exposed_us;
  return fmt::format("{} too small to cover {}", experts_us < attn_us ? "experts" : "attention",
                     is_dispatch ? "dispatch" : "combine");
}

std::string explain(const SearchAnswer& answer, const OrderTable& orders) {
  const double none_us = answer.none.step_us;
  const PlanKind kind = kind_of(answer.best.plan, orders);
  if (kind == PlanKind::two_batch) {
    const auto& [none, two, latency_us, experts_us, attn_us] = answer.reason;
    return fmt::format("the exchange is {:.0f} % of a step without overlap, {:.0f} % of it hidden",
                       100 * none.exposed_us / none.step_us,
                       100 * (none.exposed_us - two.exposed_us) / none.exposed_us);
  }
  std::string one;
  if (kind == PlanKind::single_batch)
    one = fmt::format("one half predicted {}, ", gain(answer.best.step_us, none_us));
  if (answer.best_two.step_us == 0) return one + "too few rows for two halves";
  return fmt::format("{}two halves predicted {}: {}", one, gain(answer.best_two.step_us, none_us),
                     why_not_two(answer.reason));
}

}  // namespace hocket
