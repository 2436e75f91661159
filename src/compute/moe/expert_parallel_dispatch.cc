// The dispatch of ExpertParallelDispatcher: which rows go to which rank, and where arrived rows are
// placed.
#include <algorithm>

#include "compute/kernels/combine.h"
#include "compute/kernels/quantized_rows.h"
#include "compute/moe/expert_parallel.h"

namespace hocket {
namespace {

// Restores starts after a counting sort, which moved every start to its end, the next one's start.
void move_back(std::span<int32_t> starts) {
  std::shift_right(starts.begin(), starts.end(), 1);
  starts[0] = 0;
}

}  // namespace

// Gives the experts of all ranks their places in the sequence in which rows leave: by part, rank in
// turn, number on that rank.
void ExpertParallelDispatcher::place_experts() {
  int32_t place = 0;
  for (int part = 0; part < pass_.parts; ++part)
    for (int turn = 1; turn <= num_ranks_; ++turn) {
      const int rank = (rank_ + turn) % num_ranks_, parcel = parcel_of(part, rank);
      const Range experts = experts_of(rank, part);
      parcel_first_[parcel] = place;
      for (const int id : placement_.experts_of(rank).subspan(experts.begin, experts.count))
        leaving_[id] = {place++, parcel};
    }
  parcel_first_[pass_.parts * num_ranks_] = place;
  placed_parts_ = pass_.parts;
}

// Returns where the rows of a part begin in the lists of leaving rows; slotted, where those of the
// half begin.
int64_t ExpertParallelDispatcher::first_sent(const Half& half, int part) const {
  return counted()
             ? (int64_t{half.rows.begin} + rows_of(half, part).begin) * std::min(num_ranks_, top_k_)
             : int64_t{half.rows.begin} * top_k_;
}

// Returns the begins of the leaving rows. Counted: [ranks in turn + 1] for one part; slotted:
// [experts by their place + 1] for all parts.
int32_t* ExpertParallelDispatcher::offsets_of(const WorkBuffers& work, const Half& half,
                                              int part) const {
  return work.exchange.sent_offsets.row(half.index * limits_.exchange.max_parts +
                                        (counted() ? part : 0));
}

// Returns the rows of a part for a rank, relative to first_sent().
ExpertParallelDispatcher::Range ExpertParallelDispatcher::rows_to(const WorkBuffers& work,
                                                                  const Half& half, int part,
                                                                  int rank) const {
  const int32_t* const offsets = offsets_of(work, half, part);
  const int parcel = parcel_of(counted() ? 0 : part, rank);
  const int32_t begin = offsets[counted() ? parcel : parcel_first_[parcel]];
  return {begin, offsets[counted() ? parcel + 1 : parcel_first_[parcel + 1]] - begin};
}

std::span<uint32_t> ExpertParallelDispatcher::counts_for(const WorkBuffers& work, int lane,
                                                         int rank) const {
  std::byte* const head = head_of(work, lane, rank) + kMessageHeadBytes;
  return {reinterpret_cast<uint32_t*>(head + kMessageHeadBytes),
          static_cast<size_t>(experts_of(rank, lane % kMaxParts).count)};
}

void ExpertParallelDispatcher::dispatch_start(const ExchangeSite& site, Half& half) {
  const MatrixView normed = half.state.normed.take();
  half.state.dispatched.set({});
  halves_[half.index].part = 0;
  all_due(half);
  if (error_) return;
  const auto round = [&](const Range& rows) {
    if (limits_.int8_dispatch)
      quantize_rows(site.backend, normed.slice_rows(rows.begin, rows.count),
                    site.work.leaving.slice_rows(half.rows.begin + rows.begin, rows.count));
  };
  if (!counted()) {
    round({0, half.rows.count});
    list_slotted(site.work, half);
  }
  for (int part = 0; part < pass_.parts; ++part) {
    if (counted()) {
      round(rows_of(half, part));
      list_counted(site.work, half, part);
    }
    send_rows(site, half, part);
  }
}

// Lists the leaving rows, counted: rank by rank, each row once, with its slots there:
//
//   sent_from     | rank 2: t0 t3 t4 | rank 0: t1 t3 | own: t0 t2 ...      of rank 1 of 3
//   sent_offsets  0                  3               5
void ExpertParallelDispatcher::list_counted(const WorkBuffers& work, const Half& half, int part) {
  const ExchangeBuffers& lists = work.exchange;
  const Routing& routing = half.state.routing.peek();
  const Range rows = rows_of(half, part);
  const int lane = lane_of(half.index, part);
  const int64_t first = first_sent(half, part);
  const std::span<int32_t> offsets(offsets_of(work, half, part), num_ranks_ + 1);
  for (int rank = 0; rank < num_ranks_; ++rank) std::ranges::fill(counts_for(work, lane, rank), 0u);

  // cursor_ holds the last row that was listed for each rank.
  std::ranges::fill(offsets, 0);
  std::ranges::fill(cursor_, -1);
  for (int t = rows.begin; t < rows.end(); ++t)
    for (int s = 0; s < top_k_; ++s) {
      const int turn = parcel_of(0, placement_.rank_of(routing.ids.row(t)[s]));
      offsets[turn + 1] += std::exchange(cursor_[turn], t) == t ? 0 : 1;
    }
  for (int turn = 0; turn < num_ranks_; ++turn) offsets[turn + 1] += offsets[turn];

  std::ranges::fill(cursor_, -1);
  for (int t = rows.begin; t < rows.end(); ++t)
    for (int s = 0; s < top_k_; ++s) {
      const int id = routing.ids.row(t)[s], rank = placement_.rank_of(id);
      const int turn = parcel_of(0, rank);
      if (std::exchange(cursor_[turn], t) != t) {
        const int32_t row = offsets[turn]++;
        lists.sent_from[first + row] = t;
        std::fill_n(lists.sent_ids.row(first + row), top_k_, -1);
        std::fill_n(lists.sent_weights.row(first + row), top_k_, 0.0f);
      }
      const int64_t row = first + offsets[turn] - 1;
      lists.sent_ids.row(row)[s] = placement_.local_of(id);
      lists.sent_weights.row(row)[s] = routing.weights.row(t)[s];
      ++counts_for(work, lane, rank)[placement_.local_of(id)];
    }
  move_back(offsets);
}

// Lists the leaving rows, slotted: by part, rank and expert, one row for every slot. Sets
// work.expert_position to the number of a slot's row in its parcel.
void ExpertParallelDispatcher::list_slotted(const WorkBuffers& work, const Half& half) {
  const ExchangeBuffers& lists = work.exchange;
  const Routing& routing = half.state.routing.peek();
  const int64_t first = first_sent(half, 0);
  const int num_experts = placement_.num_experts();
  const std::span<int32_t> offsets(offsets_of(work, half, 0), num_experts + 1);
  const View<int32_t> position = work.expert_position.slice_rows(half.rows.begin, half.rows.count);

  std::ranges::fill(offsets, 0);
  for (int t = 0; t < half.rows.count; ++t)
    for (int s = 0; s < top_k_; ++s) ++offsets[leaving_[routing.ids.row(t)[s]].place + 1];
  for (int e = 0; e < num_experts; ++e) offsets[e + 1] += offsets[e];
  for (int part = 0; part < pass_.parts; ++part)
    for (int rank = 0; rank < num_ranks_; ++rank) {
      const int parcel = parcel_of(part, rank);
      const int32_t* const starts = offsets.data() + parcel_first_[parcel];
      const std::span<uint32_t> counts = counts_for(work, lane_of(half.index, part), rank);
      for (size_t e = 0; e < counts.size(); ++e) counts[e] = starts[e + 1] - starts[e];
      cursor_[parcel] = *starts;
    }
  for (int t = 0; t < half.rows.count; ++t)
    for (int s = 0; s < top_k_; ++s) {
      const Leaving& to = leaving_[routing.ids.row(t)[s]];
      const int32_t row = offsets[to.place]++;
      lists.sent_from[first + row] = t;
      position.row(t)[s] = row - static_cast<int32_t>(cursor_[to.parcel]);
    }
  move_back(offsets);
}

// Copies the rows for other ranks into `sent`, where they are contiguous, and sends each rank its
// own.
void ExpertParallelDispatcher::send_rows(const ExchangeSite& site, const Half& half, int part) {
  const WorkBuffers& work = site.work;
  const ExchangeBuffers& lists = work.exchange;
  const int64_t first = first_sent(half, part);
  const int next = (rank_ + 1) % num_ranks_;
  const int64_t begin = first + rows_to(work, half, part, next).begin;
  const int64_t end = first + rows_to(work, half, part, rank_).begin;
  gather_rows(site.backend, work.leaving.slice_rows(half.rows.begin, half.rows.count),
              {lists.sent_from + begin, lists.sent_from + end},
              lists.sent.slice_rows(begin, end - begin));

  const int lane = lane_of(half.index, part);
  for (int peer = 0; peer < num_ranks_; ++peer) {
    pieces_[peer] = {};
    if (peer == rank_) continue;
    const Range rows = rows_to(work, half, part, peer);
    const MessageFormat format = dispatch_format(peer, part);
    std::byte* const head = head_of(work, lane, peer) + kMessageHeadBytes;
    write_head(format, rows.count, head);
    const auto bytes_of = [&](const auto* row, int64_t row_bytes) {
      return std::span(reinterpret_cast<const std::byte*>(row), rows.count * row_bytes);
    };
    const int64_t row = first + rows.begin;
    pieces_[peer][0] = {head, static_cast<size_t>(dispatch_head_bytes(format.num_experts))};
    if (counted()) {
      pieces_[peer][1] = bytes_of(lists.sent_ids.row(row), top_k_ * int64_t{sizeof(int32_t)});
      pieces_[peer][2] = bytes_of(lists.sent_weights.row(row), top_k_ * int64_t{sizeof(float)});
    }
    pieces_[peer][3] = bytes_of(
        static_cast<const std::byte*>(lists.sent.data) + row * leaving_bytes_, leaving_bytes_);
  }
  send(lane, MessageKind::dispatch, site.layer);
}

bool ExpertParallelDispatcher::more_parts(const Half& half) const {
  return !error_ && halves_[half.index].num_due > 0;
}

void ExpertParallelDispatcher::dispatch_wait(const ExchangeSite& site, Half& half) {
  HalfState& state = halves_[half.index];
  if (!half.state.dispatched.empty()) {  // only for the first part
    half.state.dispatched.take();
    std::ranges::fill(state.rows_from, 0);
    state.num_expert_rows = 0;
  }
  const int lane = take_first(state, MessageKind::dispatch, site.layer);
  const bool here = lane >= 0;
  if (here) state.part = lane - lane_of(half.index, 0);
  if (!here || !keep(read_rows(site.work, half))) std::ranges::fill(arrived_, ArrivedRows{});
  half.state.arrived.set(arrange(site, half));
  if (here) exchange_.release(lane, MessageKind::dispatch);
}

// Sets arrived_ from the messages of the part in hand and from this rank's own rows. Errors:
// lost_rank (a message cannot be read, or a rank has sent more rows than a pass can have).
Result<void> ExpertParallelDispatcher::read_rows(const WorkBuffers& work, const Half& half) {
  HalfState& state = halves_[half.index];
  const int most = most_rows(static_cast<int>(placement_.experts_of(rank_).size()));
  for (int peer = 0; peer < num_ranks_; ++peer) {
    if (peer == rank_) {
      arrived_[peer] = own_rows(work, half);
    } else {
      HOCKET_TRY(arrived_[peer], read_dispatch(exchange_.from(lane_of(half.index, state.part),
                                                              MessageKind::dispatch, peer),
                                               dispatch_format(rank_, state.part), peer));
    }
    state.rows_from[peer] += arrived_[peer].num_rows;
    int64_t rows = 0;
    for (const HalfState& any : halves_) rows += any.rows_from[peer];
    if (rows > most)
      return fail(ErrorCode::lost_rank, "rank {} sent {} rows in a pass, more than {}", peer, rows,
                  most);
  }
  return {};
}

// Returns this rank's rows for its own experts, in the form of arrived rows.
ArrivedRows ExpertParallelDispatcher::own_rows(const WorkBuffers& work, const Half& half) const {
  const ExchangeBuffers& lists = work.exchange;
  const int part = halves_[half.index].part;
  const Range rows = rows_to(work, half, part, rank_);
  const int64_t begin = first_sent(half, part) + rows.begin;
  ArrivedRows own = {.num_rows = rows.count,
                     .counts = counts_for(work, lane_of(half.index, part), rank_),
                     .row_bytes = leaving_bytes_,
                     .index = lists.sent_from + begin};
  own.rows =
      static_cast<const std::byte*>(work.leaving.slice_rows(half.rows.begin, half.rows.count).data);
  if (counted()) {
    own.ids = lists.sent_ids.slice_rows(begin, rows.count);
    own.weights = lists.sent_weights.slice_rows(begin, rows.count);
  }
  return own;
}

// Sorts arrived_ by expert, then by source rank; after an error there are no rows:
//
//   segments    e0: r0 | r1 | r2   e1: r0 | r1 | r2   ...   begin of each source's rows
//   offsets     ^ e0               ^ e1                     begin of each expert's rows
ExpertRows ExpertParallelDispatcher::arrange(const ExchangeSite& site, const Half& half) {
  const ExchangeBuffers& lists = site.work.exchange;
  HalfState& state = halves_[half.index];
  const auto [first_expert, experts] = experts_of(rank_, state.part);
  int32_t* const segments = lists.segments.row(half.index);
  const std::span<int32_t> offsets(lists.expert_offsets.row(half.index), experts + 1);
  int32_t at = 0;
  for (int e = 0; e < experts; ++e) {
    offsets[e] = at;
    for (int peer = 0; peer < num_ranks_; ++peer) {
      segments[e * num_ranks_ + peer] = at;
      if (!error_) at += static_cast<int32_t>(arrived_[peer].counts[e]);
    }
  }
  offsets[experts] = segments[experts * num_ranks_] = at;

  if (counted()) {
    list_arrived(site.work, half);
  } else if (!error_) {
    for (int peer = 0; peer < num_ranks_; ++peer)
      for (int e = 0, row = 0; e < experts; ++e) {
        const int32_t* const segment = segments + e * num_ranks_ + peer;
        for (int32_t i = segment[0]; i < segment[1]; ++i)
          lists.sources[i] = arrived_[peer].row(row++);
      }
  }
  // Results of earlier parts are still being sent from x, so each part takes its own place. y is
  // read before the next part comes, so parts share it.
  const auto region = [&](MatrixView all, int64_t taken) {
    const int64_t capacity = lists.shape.expert_rows();
    return all.slice_rows(ExchangeBuffers::region_begin(half.index, capacity, taken, at), at);
  };
  const ExpertRows rows = {.x = region(site.work.expert_x, state.num_expert_rows),
                           .y = region(site.work.expert_y, 0),
                           .offsets = offsets,
                           .first_expert = first_expert};
  state.num_expert_rows += at;
  const std::span<const std::byte* const> sources(lists.sources, at);
  if (limits_.int8_dispatch) {
    dequantize_rows(site.backend, sources, rows.x);
  } else {
    gather_rows(site.backend, sources, rows.x);
  }
  return rows;
}

// Counted: lists for every arrived row, source by source, its slots here and where their expert
// rows are placed. The lists are kept until the sums are made; the messages are not.
void ExpertParallelDispatcher::list_arrived(const WorkBuffers& work, const Half& half) {
  const ExchangeBuffers& lists = work.exchange;
  HalfState& state = halves_[half.index];
  const int experts = static_cast<int>(placement_.experts_of(rank_).size());
  const std::span<int32_t> segments(lists.segments.row(half.index), experts * num_ranks_ + 1);
  state.num_rows = 0;
  for (const ArrivedRows& rows : arrived_) state.num_rows += rows.num_rows;
  state.first_row =
      ExchangeBuffers::region_begin(half.index, lists.shape.arriving_rows(), 0, state.num_rows);
  std::vector<int32_t>& first = state.returned[state.part].first;
  int64_t row = state.first_row;
  int32_t sum = 0;
  for (int peer = 0; peer < num_ranks_; ++peer) {
    const ArrivedRows& rows = arrived_[peer];
    first[peer] = sum;
    for (int64_t i = 0; i < rows.num_rows; ++i, ++row) {
      const int32_t* const ids = rows.ids.row(i);
      std::copy_n(ids, top_k_, lists.ids.row(row));
      std::copy_n(rows.weights.row(i), top_k_, lists.weights.row(row));
      lists.first_sum[row] = sum;
      for (int s = 0; s < top_k_; ++s) {
        lists.position.row(row)[s] = -1;
        if (ids[s] < 0) continue;
        const int32_t place = segments[ids[s] * num_ranks_ + peer]++;
        lists.position.row(row)[s] = place;
        lists.sources[place] = rows.row(i);
        const auto same_group = [&](int32_t id) {
          return id >= 0 && id / group_size_ == ids[s] / group_size_;
        };
        sum += std::any_of(ids, ids + s, same_group) ? 0 : 1;
      }
    }
  }
  first[num_ranks_] = sum;
  move_back(segments);
}

}  // namespace hocket
