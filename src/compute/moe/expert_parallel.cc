#include "compute/moe/expert_parallel.h"

#include <algorithm>
#include <bit>

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

bool is_number_of_parts(int parts) {
  return parts >= 1 && parts <= kMaxParts && std::has_single_bit(static_cast<unsigned>(parts));
}

int ceil_div(int n, int by) {
  return (n + by - 1) / by;
}

}  // namespace

ExchangeLimits ExpertParallelDispatcher::exchange_limits(const Placement& placement,
                                                         int max_slotted_rows, int max_parts) {
  return {.num_ranks = placement.num_ranks(),
          .rank_experts = placement.most_experts(),
          .max_slotted_rows = max_slotted_rows,
          .max_parts = max_parts};
}

std::array<MessageSizes, kMaxLanes> ExpertParallelDispatcher::most_bytes(const Options& options) {
  const MoeConfig& moe = options.model.moe;
  const ExchangeLimits& limits = options.limits.exchange;
  const int all_experts = options.placement.most_experts();
  const int group_size = moe.num_experts / options.combine_groups;
  std::array<MessageSizes, kMaxLanes> lanes{};
  for (int part = 0; part < limits.max_parts; ++part) {
    // A pass that has this part has at least `parts` parts.
    const int parts = static_cast<int>(std::bit_ceil(static_cast<unsigned>(part) + 1));
    const int64_t rows = ceil_div(options.limits.max_rows, parts);
    const int experts = ceil_div(all_experts, parts);
    const int64_t slotted_rows = int64_t{limits.max_slotted_rows} * std::min(moe.top_k, experts);
    MessageFormat format = {.mode = ExchangeMode::counted,
                            .num_experts = all_experts,
                            .top_k = moe.top_k,
                            .row_bytes = leaving_bytes_of(options)};
    int64_t dispatch = format.dispatch_bytes(rows);
    format.mode = ExchangeMode::slotted;
    format.num_experts = experts;
    dispatch = std::max(dispatch, format.dispatch_bytes(slotted_rows));
    // A row has one partial sum on a rank for each of its groups there.
    const int64_t sums = rows * std::min(moe.top_k, ceil_div(all_experts, group_size));
    format.row_bytes = row_bytes_of(options.model, options.dtype);
    const int64_t combine = format.combine_bytes(std::max(sums, slotted_rows));
    for (int half = 0; half < kMaxHalves; ++half) {
      MessageSizes& sizes = lanes.at(static_cast<size_t>(lane_of(half, part)));
      sizes[static_cast<size_t>(MessageKind::dispatch)] = static_cast<size_t>(dispatch);
      sizes[static_cast<size_t>(MessageKind::combine)] = static_cast<size_t>(combine);
    }
  }
  return lanes;
}

Result<std::unique_ptr<ExpertParallelDispatcher>> ExpertParallelDispatcher::create(
    const Options& options, AllToAll& exchange) {
  HOCKET_CHECK(options.model.moe.num_experts > 0);
  HOCKET_CHECK(options.placement.num_experts() == options.model.moe.num_experts);
  HOCKET_CHECK(options.placement.num_ranks() == exchange.num_ranks());
  HOCKET_CHECK(options.limits.exchange.num_ranks == exchange.num_ranks());
  HOCKET_CHECK(options.placement.most_experts() <= kMostRankExperts);
  HOCKET_CHECK(is_number_of_parts(options.limits.exchange.max_parts));
  HOCKET_TRY_VOID(options.placement.check_groups(options.combine_groups));
  return std::unique_ptr<ExpertParallelDispatcher>(new ExpertParallelDispatcher(options, exchange));
}

ExpertParallelDispatcher::ExpertParallelDispatcher(const Options& options, AllToAll& exchange)
    : placement_(options.placement),
      rank_(exchange.rank()),
      num_ranks_(exchange.num_ranks()),
      top_k_(options.model.moe.top_k),
      group_size_(options.model.moe.num_experts / options.combine_groups),
      output_scale_(static_cast<float>(options.model.moe.output_scale)),
      limits_(options.limits),
      dtype_(options.dtype),
      row_bytes_(row_bytes_of(options.model, options.dtype)),
      leaving_bytes_(leaving_bytes_of(options)),
      exchange_(exchange),
      leaving_(options.model.moe.num_experts),
      parcel_first_(limits_.exchange.max_parts * num_ranks_ + 1),
      arrived_(num_ranks_),
      pieces_(num_ranks_),
      messages_(num_ranks_),
      cursor_(limits_.exchange.max_parts * num_ranks_),
      results_(limits_.exchange.max_parts * num_ranks_) {
  for (HalfState& state : halves_) {
    state.rows_from.resize(num_ranks_);
    for (Returned& part : state.returned) part.first.resize(num_ranks_ + 1);
  }
}

void ExpertParallelDispatcher::begin_pass(const PassId& pass, int num_rows) {
  pass_ = pass;
  pass_.parts = num_ranks_ == 1 ? 1 : std::min(pass.parts, limits_.exchange.max_parts);
  HOCKET_CHECK(num_rows <= (counted() ? limits_.max_rows : limits_.exchange.max_slotted_rows));
  HOCKET_CHECK(is_number_of_parts(pass_.parts));
  for (HalfState& state : halves_) std::ranges::fill(state.rows_from, 0);
  if (!counted() && pass_.parts != placed_parts_) place_experts();
}

int ExpertParallelDispatcher::most_rows(int num_experts) const {
  return counted() ? limits_.max_rows
                   : limits_.exchange.max_slotted_rows * std::min(top_k_, num_experts);
}

ExpertParallelDispatcher::Range ExpertParallelDispatcher::experts_of(int rank, int part) const {
  const int all = static_cast<int>(placement_.experts_of(rank).size());
  if (counted()) return {0, all};
  const int begin = part * all / pass_.parts;
  return {begin, (part + 1) * all / pass_.parts - begin};
}

// Returns the rows of a part, as places in the half.
ExpertParallelDispatcher::Range ExpertParallelDispatcher::rows_of(const Half& half,
                                                                  int part) const {
  if (!counted()) return {0, half.rows.count};
  const auto cut = [&](int64_t p) { return static_cast<int>(p * half.rows.count / pass_.parts); };
  return {cut(part), cut(part + 1) - cut(part)};
}

MessageFormat ExpertParallelDispatcher::dispatch_format(int to, int part) const {
  const int num_experts = experts_of(to, part).count;
  return {.mode = pass_.mode,
          .dtype = limits_.int8_dispatch ? DType::int8 : dtype_,
          .num_experts = num_experts,
          .top_k = top_k_,
          .most_rows = most_rows(num_experts),
          .row_bytes = leaving_bytes_};
}

MessageFormat ExpertParallelDispatcher::combine_format() const {
  return {.mode = pass_.mode, .dtype = dtype_, .top_k = top_k_, .row_bytes = row_bytes_};
}

// Keeps the first error. Returns true if there was none so far.
bool ExpertParallelDispatcher::keep(Result<void> result) {
  if (!result && !error_) error_ = std::move(result).error();
  return !error_;
}

void ExpertParallelDispatcher::all_due(const Half& half) {
  HalfState& state = halves_[half.index];
  state.num_due = pass_.parts;
  for (int part = 0; part < pass_.parts; ++part) state.due[part] = lane_of(half.index, part);
}

// Waits for the first of the due parts to arrive and removes it from them. Returns its lane; -1
// after an error.
int ExpertParallelDispatcher::take_first(HalfState& state, MessageKind kind, int layer) {
  if (error_) return -1;
  const Stamp stamp = {pass_.step, static_cast<uint16_t>(layer)};
  const std::span<int> due(state.due.data(), static_cast<size_t>(state.num_due));
  HOCKET_CHECK(!due.empty());
  Result<int> lane = due.size() > 1 ? exchange_.wait_any(due, kind, stamp) : due[0];
  if (lane)
    if (auto here = exchange_.wait(*lane, kind, stamp); !here) lane = fail(std::move(here).error());
  if (!lane) {
    keep(fail(std::move(lane).error()));
    return -1;
  }
  state.num_due -= static_cast<int>(std::ranges::remove(due, *lane).size());
  return *lane;
}

void ExpertParallelDispatcher::progress() {
  if (!error_) exchange_.progress();
}

Result<void> ExpertParallelDispatcher::status() const {
  if (error_) return fail(*error_);
  return {};
}

// Sends the message to every rank from pieces_, which the caller has filled.
void ExpertParallelDispatcher::send(int lane, MessageKind kind, int layer) {
  for (int peer = 0; peer < num_ranks_; ++peer) messages_[peer] = pieces_[peer];
  keep(exchange_.start(lane, kind, {pass_.step, static_cast<uint16_t>(layer)}, messages_));
}

// Returns the memory for the head of a combine; that for a dispatch follows it.
std::byte* ExpertParallelDispatcher::head_of(const WorkBuffers& work, int lane, int rank) const {
  const int half = lane / kMaxParts, part = lane % kMaxParts;
  return work.exchange.heads.row((half * limits_.exchange.max_parts + part) * num_ranks_ + rank);
}

void ExpertParallelDispatcher::combine_start(const ExchangeSite& site, Half& half) {
  const ExpertRows rows = half.state.computed.take();
  if (!more_parts(half)) half.state.combining.set(rows);
  if (error_) return;
  HalfState& state = halves_[half.index];
  Returned& returned = state.returned[state.part];
  // The experts have read their rows, so the results overwrite them in x.
  returned.rows = static_cast<const std::byte*>(rows.x.data);
  if (counted()) {
    sum_groups(site, half, rows);
  } else {
    collect_rows(site, half, rows);
  }
  const int lane = lane_of(half.index, state.part);
  for (int peer = 0; peer < num_ranks_; ++peer) {
    pieces_[peer] = {};
    if (peer == rank_) continue;
    const int first = returned.first[peer], count = returned.first[peer + 1] - first;
    std::byte* const head = head_of(site.work, lane, peer);
    write_head(combine_format(), count, head);
    pieces_[peer][0] = {head, kMessageHeadBytes};
    pieces_[peer][1] = {returned.rows + first * row_bytes_,
                        static_cast<size_t>(count * row_bytes_)};
  }
  send(lane, MessageKind::combine, site.layer);
}

// Counted: writes one row for each combine group of each row that came.
void ExpertParallelDispatcher::sum_groups(const ExchangeSite& site, const Half& half,
                                          const ExpertRows& rows) {
  const ExchangeBuffers& lists = site.work.exchange;
  const HalfState& state = halves_[half.index];
  combine_partly(site.backend,
                 {.y = rows.y,
                  .ids = lists.ids.slice_rows(state.first_row, state.num_rows),
                  .position = lists.position.slice_rows(state.first_row, state.num_rows),
                  .weights = lists.weights.slice_rows(state.first_row, state.num_rows),
                  .first = {lists.first_sum + state.first_row, static_cast<size_t>(state.num_rows)},
                  .group_size = group_size_,
                  .out = rows.x});
}

// Slotted: copies the result rows, rank by rank, in the sequence in which their rows came.
void ExpertParallelDispatcher::collect_rows(const ExchangeSite& site, const Half& half,
                                            const ExpertRows& rows) {
  const ExchangeBuffers& lists = site.work.exchange;
  const int32_t* const segments = lists.segments.row(half.index);
  const int experts = static_cast<int>(rows.offsets.size()) - 1;
  HalfState& state = halves_[half.index];
  std::vector<int32_t>& first = state.returned[state.part].first;
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

// Waits for all parts and adds their results to the residual: counted, the rows of each part when
// it arrives; slotted, all rows when all parts are here.
void ExpertParallelDispatcher::combine_wait(const ExchangeSite& site, Half& half) {
  half.state.combining.take();
  const Routing routing = half.state.routing.take();
  const View<float> shared =
      half.state.shared_y.empty() ? View<float>() : half.state.shared_y.take();
  const auto add_up = [&](int part) {
    const Range rows = rows_of(half, part);
    find_results(site.work, half, routing, part);
    const auto of_rows = [&](auto view) {
      return view.rows > 0 ? view.slice_rows(rows.begin, rows.count) : view;
    };
    combine_placed(
        site.backend,
        {.dtype = dtype_,
         .rows = {site.work.exchange.results, rows.count, top_k_},
         .ids = of_rows(routing.ids),
         .weights = counted() ? View<const float>() : View<const float>(of_rows(routing.weights)),
         .group_size = group_size_,
         .output_scale = output_scale_,
         .shared = of_rows(shared),
         .residual = site.work.results.slice_rows(half.rows.begin + rows.begin, rows.count)});
  };
  HalfState& state = halves_[half.index];
  all_due(half);
  while (state.num_due > 0) {
    const int lane = take_first(state, MessageKind::combine, site.layer);
    if (lane < 0) return;
    const int part = lane - lane_of(half.index, 0);
    if (!keep(read_results(site.work, half, routing, part))) return;
    if (!counted()) continue;  // the sum of a row needs every part
    add_up(part);
    exchange_.release(lane, MessageKind::combine);
  }
  if (counted()) return;
  add_up(0);
  for (int part = 0; part < pass_.parts; ++part)
    exchange_.release(lane_of(half.index, part), MessageKind::combine);
}

// Sets results_, the begin of each parcel's results. Counted: also sets work.expert_position.
Result<void> ExpertParallelDispatcher::read_results(const WorkBuffers& work, const Half& half,
                                                    const Routing& routing, int part) {
  if (counted()) number_sums(work, half, routing, part);
  const Returned& own = halves_[half.index].returned[part];
  for (int peer = 0; peer < num_ranks_; ++peer) {
    const std::byte*& rows = results_[parcel_of(part, peer)];
    if (peer == rank_) {
      rows = own.rows + own.first[rank_] * row_bytes_;
      continue;
    }
    const int due = counted() ? static_cast<int>(cursor_[parcel_of(part, peer)])
                              : rows_to(work, half, part, peer).count;
    HOCKET_TRY(rows,
               read_combine(exchange_.from(lane_of(half.index, part), MessageKind::combine, peer),
                            combine_format(), due, peer));
  }
  return {};
}

// Sets the address of every slot's result: counted, for the rows of one part; slotted, for all
// rows. Counted, one slot of a group gets the address of the group's sum, its other slots null.
void ExpertParallelDispatcher::find_results(const WorkBuffers& work, const Half& half,
                                            const Routing& routing, int part) {
  const Range rows = rows_of(half, part);
  const std::byte** to = work.exchange.results;
  for (int t = rows.begin; t < rows.end(); ++t)
    for (int s = 0; s < top_k_; ++s) {
      const int id = routing.ids.row(t)[s];
      const int64_t at = work.expert_position.row(half.rows.begin + t)[s];
      const int parcel = counted() ? parcel_of(part, placement_.rank_of(id)) : leaving_[id].parcel;
      *to++ = at < 0 ? nullptr : results_[parcel] + at * row_bytes_;
    }
}

// Numbers the partial sums of a part's rows as the ranks send them: token by token, groups
// ascending. Sets work.expert_position (-1 for all slots of a group but one) and, in cursor_, the
// number of sums of each parcel:
//
//   token   experts (group)     sums from the rank of group 0 and 1, of group 2
//   t0      5 (2), 1 (0), 0(0)  0: t0 group 0                       0: t0 group 2
//   t1      2 (1), 1 (0), 4(2)  1: t1 group 0, 2: t1 group 1        1: t1 group 2
void ExpertParallelDispatcher::number_sums(const WorkBuffers& work, const Half& half,
                                           const Routing& routing, int part) {
  const Range rows = rows_of(half, part);
  for (int rank = 0; rank < num_ranks_; ++rank) cursor_[parcel_of(part, rank)] = 0;
  for (int t = rows.begin; t < rows.end(); ++t) {
    const int32_t* const ids = routing.ids.row(t);
    int32_t* const place = work.expert_position.row(half.rows.begin + t);
    std::fill_n(place, top_k_, -1);
    std::array<int, kMaxSlots> slots;  // one slot of each group, groups ascending
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
      place[slot] = static_cast<int32_t>(cursor_[parcel_of(part, placement_.rank_of(ids[slot]))]++);
  }
}

}  // namespace hocket
