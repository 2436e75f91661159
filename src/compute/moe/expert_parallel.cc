#include "compute/moe/expert_parallel.h"

#include <algorithm>

#include "compute/kernels/combine.h"
#include "compute/kernels/quantized_rows.h"

namespace hocket {
namespace {

int64_t row_bytes_of(const ModelConfig& model, DType dtype) {
  return round_up(model.hidden_size, kBlockK) * size_of(dtype);
}

int64_t leaving_bytes_of(const ExpertParallelDispatcher::Options& options) {
  return options.limits.int8_dispatch ? quantized_columns(options.model.hidden_size)
                                      : row_bytes_of(options.model, options.dtype);
}

}  // namespace

ExchangeLimits ExpertParallelDispatcher::exchange_limits(const Placement& placement,
                                                         int max_slotted_rows) {
  return {.num_ranks = placement.num_ranks(),
          .rank_experts = placement.most_experts(),
          .max_slotted_rows = max_slotted_rows};
}

std::array<size_t, kNumMessageKinds> ExpertParallelDispatcher::most_bytes(const Options& options) {
  const int experts = options.placement.most_experts();
  const int64_t experts_a_row = std::min(options.model.moe.top_k, experts);
  const int64_t slotted_rows = options.limits.exchange.max_slotted_rows * experts_a_row;
  MessageFormat format = {.mode = ExchangeMode::counted,
                          .num_experts = experts,
                          .top_k = options.model.moe.top_k,
                          .row_bytes = leaving_bytes_of(options)};
  int64_t dispatch = format.dispatch_bytes(options.limits.max_rows);
  format.mode = ExchangeMode::slotted;
  dispatch = std::max(dispatch, format.dispatch_bytes(slotted_rows));
  // A row has no more partial sums on a rank than it has experts there.
  const int64_t part_rows = options.limits.max_rows * experts_a_row;
  format.row_bytes = row_bytes_of(options.model, options.dtype);
  const int64_t combine = format.combine_bytes(std::max(part_rows, slotted_rows));
  std::array<size_t, kNumMessageKinds> bytes{};
  bytes[static_cast<size_t>(MessageKind::dispatch)] = dispatch;
  bytes[static_cast<size_t>(MessageKind::combine)] = combine;
  return bytes;
}

Result<std::unique_ptr<ExpertParallelDispatcher>> ExpertParallelDispatcher::create(
    const Options& options, AllToAll& exchange) {
  HOCKET_CHECK(options.model.moe.num_experts > 0);
  HOCKET_CHECK(options.placement.num_experts() == options.model.moe.num_experts);
  HOCKET_CHECK(options.placement.num_ranks() == exchange.num_ranks());
  HOCKET_CHECK(options.limits.exchange.num_ranks == exchange.num_ranks());
  HOCKET_CHECK(options.placement.most_experts() <= kMostRankExperts);
  HOCKET_TRY_VOID(options.placement.check_groups(options.combine_groups));
  return std::unique_ptr<ExpertParallelDispatcher>(new ExpertParallelDispatcher(options, exchange));
}

ExpertParallelDispatcher::ExpertParallelDispatcher(const Options& options, AllToAll& exchange)
    : placement_(options.placement),
      rank_(exchange.rank()),
      num_ranks_(exchange.num_ranks()),
      top_k_(options.model.moe.top_k),
      group_size_(options.model.moe.num_experts / options.combine_groups),
      limits_(options.limits),
      dtype_(options.dtype),
      row_bytes_(row_bytes_of(options.model, options.dtype)),
      leaving_bytes_(leaving_bytes_of(options)),
      exchange_(exchange),
      arrived_(num_ranks_),
      pieces_(num_ranks_),
      parts_(num_ranks_),
      cursor_(num_ranks_) {
  for (HalfState& state : halves_) {
    state.rows_from.resize(num_ranks_);
    state.parts_from.resize(num_ranks_ + 1);
  }
}

void ExpertParallelDispatcher::begin_pass(const PassId& pass, int num_rows) {
  pass_ = pass;
  HOCKET_CHECK(num_rows <= (counted() ? limits_.max_rows : limits_.exchange.max_slotted_rows));
  for (HalfState& state : halves_) std::ranges::fill(state.rows_from, 0);
}

int ExpertParallelDispatcher::most_rows() const {
  if (counted()) return limits_.max_rows;
  const int experts = static_cast<int>(placement_.experts_of(rank_).size());
  return limits_.exchange.max_slotted_rows * std::min(top_k_, experts);
}

MessageFormat ExpertParallelDispatcher::dispatch_format(int to) const {
  return {.mode = pass_.mode,
          .dtype = limits_.int8_dispatch ? DType::int8 : dtype_,
          .num_experts = static_cast<int>(placement_.experts_of(to).size()),
          .top_k = top_k_,
          .most_rows = most_rows(),
          .row_bytes = leaving_bytes_};
}

MessageFormat ExpertParallelDispatcher::combine_format() const {
  MessageFormat format = dispatch_format(rank_);
  format.num_experts = 0;
  format.dtype = dtype_;
  format.row_bytes = row_bytes_;
  return format;
}

// Whether it is no error.
bool ExpertParallelDispatcher::keep(Result<void> result) {
  if (!result && !error_) error_ = std::move(result).error();
  return !error_;
}

bool ExpertParallelDispatcher::wait(const Half& half, MessageKind kind, int layer) {
  return !error_ &&
         keep(exchange_.wait(half.index, kind, {pass_.step, static_cast<uint16_t>(layer)}));
}

void ExpertParallelDispatcher::progress() {
  if (!error_) exchange_.progress();
}

Result<void> ExpertParallelDispatcher::status() const {
  if (error_) return fail(*error_);
  return {};
}

// The pieces of every rank, which the caller has named.
void ExpertParallelDispatcher::send(const Half& half, MessageKind kind, int layer) {
  for (int peer = 0; peer < num_ranks_; ++peer) parts_[peer] = pieces_[peer];
  keep(exchange_.start(half.index, kind, {pass_.step, static_cast<uint16_t>(layer)}, parts_));
}

void ExpertParallelDispatcher::combine_start(const ExchangeSite& site, Half& half) {
  const ExpertRows rows = half.state.computed.take();
  half.state.combining.set(rows);
  if (error_) return;
  // The experts have read their rows: what goes back takes their place.
  if (counted()) {
    sum_parts(site, half, rows);
  } else {
    collect_rows(site, half, rows);
  }
  const std::vector<int32_t>& first = halves_[half.index].parts_from;
  for (int peer = 0; peer < num_ranks_; ++peer) {
    pieces_[peer] = {};
    if (peer == rank_) continue;
    const int count = first[peer + 1] - first[peer];
    std::byte* const head = site.work.exchange.heads.row(half.index * num_ranks_ + peer);
    write_head(combine_format(), count, head);
    pieces_[peer][0] = {head, kMessageHeadBytes};
    pieces_[peer][1] = {static_cast<const std::byte*>(rows.x.data) + first[peer] * row_bytes_,
                        static_cast<size_t>(count * row_bytes_)};
  }
  send(half, MessageKind::combine, site.layer);
}

// Counted: a row for each combine group of each row that came.
void ExpertParallelDispatcher::sum_parts(const ExchangeSite& site, const Half& half,
                                         const ExpertRows& rows) {
  const ExchangeBuffers& lists = site.work.exchange;
  const HalfState& state = halves_[half.index];
  combine_partly(
      site.backend,
      {.y = rows.y,
       .ids = lists.ids.slice_rows(state.first_row, state.num_rows),
       .position = lists.position.slice_rows(state.first_row, state.num_rows),
       .weights = lists.weights.slice_rows(state.first_row, state.num_rows),
       .first = {lists.first_part + state.first_row, static_cast<size_t>(state.num_rows)},
       .group_size = group_size_,
       .out = rows.x});
}

// Slotted: the rows as they are, rank by rank, in the order they came.
void ExpertParallelDispatcher::collect_rows(const ExchangeSite& site, const Half& half,
                                            const ExpertRows& rows) {
  const ExchangeBuffers& lists = site.work.exchange;
  const int32_t* const segments = lists.segments.row(half.index);
  const int experts = static_cast<int>(placement_.experts_of(rank_).size());
  std::vector<int32_t>& first = halves_[half.index].parts_from;
  int32_t at = 0;
  for (int peer = 0; peer < num_ranks_; ++peer) {
    first[peer] = at;
    for (int e = 0; e < experts; ++e) {
      const int32_t* const segment = segments + e * num_ranks_ + peer;
      for (int32_t row = segment[0]; row < segment[1]; ++row)
        lists.sources[at++] = static_cast<const std::byte*>(rows.y.data) + row * row_bytes_;
    }
  }
  first[num_ranks_] = at;
  gather_rows(site.backend, std::span(lists.sources, at), rows.x);
}

void ExpertParallelDispatcher::combine_wait(const ExchangeSite& site, Half& half) {
  const ExpertRows rows = half.state.combining.take();
  const Routing routing = half.state.routing.take();
  const View<float> shared =
      half.state.shared_y.empty() ? View<float>() : half.state.shared_y.take();
  if (!wait(half, MessageKind::combine, site.layer)) return;
  if (keep(find_results(site.work, half, rows, routing)))
    combine_placed(site.backend,
                   {.dtype = dtype_,
                    .rows = {site.work.exchange.results, half.rows.count, top_k_},
                    .ids = routing.ids,
                    .weights = counted() ? View<const float>() : View<const float>(routing.weights),
                    .group_size = group_size_,
                    .shared = shared,
                    .residual = site.work.residual.slice_rows(half.rows.begin, half.rows.count)});
  exchange_.release(half.index, MessageKind::combine);
}

// Where the result of every slot stands. Counted: the sum of its group, for one slot of the group;
// nothing for its others.
Result<void> ExpertParallelDispatcher::find_results(const WorkBuffers& work, const Half& half,
                                                    const ExpertRows& rows,
                                                    const Routing& routing) {
  if (counted()) number_parts(work, half, routing);
  for (int peer = 0; peer < num_ranks_; ++peer) {
    if (peer == rank_) continue;
    const int due = counted() ? static_cast<int>(cursor_[peer]) : rows_to(work, half.index, peer);
    HOCKET_TRY(arrived_[peer].rows,
               read_combine(exchange_.from(half.index, MessageKind::combine, peer),
                            combine_format(), due, peer));
  }
  arrived_[rank_].rows = static_cast<const std::byte*>(rows.x.data) +
                         halves_[half.index].parts_from[rank_] * row_bytes_;
  const View<int32_t> place = work.expert_position.slice_rows(half.rows.begin, half.rows.count);
  const std::byte** to = work.exchange.results;
  for (int64_t t = 0; t < half.rows.count; ++t)
    for (int s = 0; s < top_k_; ++s) {
      const int64_t at = place.row(t)[s];
      const std::byte* const from = arrived_[placement_.rank_of(routing.ids.row(t)[s])].rows;
      *to++ = at < 0 ? nullptr : from + at * row_bytes_;
    }
  return {};
}

// The partial sums of a rank, numbered as it sends them: token by token, groups ascending. Sets
// work.expert_position, -1 for all but one slot of a group, and cursor_ to how many there are.
void ExpertParallelDispatcher::number_parts(const WorkBuffers& work, const Half& half,
                                            const Routing& routing) {
  std::ranges::fill(cursor_, 0);
  for (int64_t t = 0; t < half.rows.count; ++t) {
    const int32_t* const ids = routing.ids.row(t);
    int32_t* const place = work.expert_position.row(half.rows.begin + t);
    std::fill_n(place, top_k_, -1);
    std::array<int, kMaxSlots> slots;  // one of each group, groups ascending
    int num_groups = 0;
    for (int s = 0; s < top_k_; ++s) {
      const auto of_group = [&](int slot) { return ids[slot] / group_size_; };
      int* const end = slots.data() + num_groups;
      int* const at = std::lower_bound(slots.data(), end, of_group(s),
                                       [&](int slot, int g) { return of_group(slot) < g; });
      if (at != end && of_group(*at) == of_group(s)) continue;
      std::copy_backward(at, end, end + 1);
      *at = s;
      ++num_groups;
    }
    for (const int slot : std::span(slots.data(), num_groups))
      place[slot] = static_cast<int32_t>(cursor_[placement_.rank_of(ids[slot])]++);
  }
}

}  // namespace hocket
