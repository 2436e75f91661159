// The dispatch of ExpertParallelDispatcher: which rows go where, and how those that came stand
// together.
#include <algorithm>

#include "compute/kernels/combine.h"
#include "compute/kernels/quantized_rows.h"
#include "compute/moe/expert_parallel.h"

namespace hocket {
namespace {

// Placing things in order moved every start to its end, which is the next one's start.
void move_back(std::span<int32_t> starts) {
  std::shift_right(starts.begin(), starts.end(), 1);
  starts[0] = 0;
}

}  // namespace

// Where a half's part of the lists of what leaves begins.
int64_t ExpertParallelDispatcher::first_sent(const Half& half) const {
  return int64_t{half.rows.begin} * (counted() ? std::min(num_ranks_, top_k_) : top_k_);
}

// Of the rows that leave, where those for a rank begin: by rank, or by rank and expert.
int ExpertParallelDispatcher::first_to(const WorkBuffers& work, int half, int rank) const {
  return work.exchange.sent_offsets.row(half)[counted() ? rank : placement_.first_of(rank)];
}

int ExpertParallelDispatcher::rows_to(const WorkBuffers& work, int half, int rank) const {
  return first_to(work, half, rank + 1) - first_to(work, half, rank);
}

std::span<uint32_t> ExpertParallelDispatcher::counts_for(const WorkBuffers& work, int half,
                                                         int rank) const {
  // After the heads of a combine and a dispatch.
  std::byte* const head = work.exchange.heads.row(half * num_ranks_ + rank) + kMessageHeadBytes;
  return {reinterpret_cast<uint32_t*>(head + kMessageHeadBytes),
          placement_.experts_of(rank).size()};
}

void ExpertParallelDispatcher::dispatch_start(const ExchangeSite& site, Half& half) {
  const MatrixView normed = half.state.normed.take();
  half.state.dispatched.set({});
  if (error_) return;
  if (counted()) {
    list_counted(site.work, half);
  } else {
    list_slotted(site.work, half);
  }
  if (limits_.int8_dispatch)
    quantize_rows(site.backend, normed,
                  site.work.leaving.slice_rows(half.rows.begin, half.rows.count));
  send_rows(site, half);
}

// By rank, each row once, with what it wants there.
void ExpertParallelDispatcher::list_counted(const WorkBuffers& work, const Half& half) {
  const ExchangeBuffers& lists = work.exchange;
  const Routing& routing = half.state.routing.peek();
  const int64_t first = first_sent(half);
  const std::span<int32_t> offsets(lists.sent_offsets.row(half.index), num_ranks_ + 1);
  for (int rank = 0; rank < num_ranks_; ++rank)
    std::ranges::fill(counts_for(work, half.index, rank), 0u);

  // cursor_: the last row that went to a rank.
  std::ranges::fill(offsets, 0);
  std::ranges::fill(cursor_, -1);
  for (int64_t t = 0; t < half.rows.count; ++t)
    for (int s = 0; s < top_k_; ++s) {
      const int rank = placement_.rank_of(routing.ids.row(t)[s]);
      offsets[rank + 1] += std::exchange(cursor_[rank], t) == t ? 0 : 1;
    }
  for (int rank = 0; rank < num_ranks_; ++rank) offsets[rank + 1] += offsets[rank];

  std::ranges::fill(cursor_, -1);
  for (int64_t t = 0; t < half.rows.count; ++t)
    for (int s = 0; s < top_k_; ++s) {
      const int id = routing.ids.row(t)[s], rank = placement_.rank_of(id);
      if (std::exchange(cursor_[rank], t) != t) {
        const int32_t row = offsets[rank]++;
        lists.sent_from[first + row] = static_cast<int32_t>(t);
        std::fill_n(lists.sent_ids.row(first + row), top_k_, -1);
        std::fill_n(lists.sent_weights.row(first + row), top_k_, 0.0f);
      }
      const int64_t row = first + offsets[rank] - 1;
      lists.sent_ids.row(row)[s] = placement_.local_of(id);
      lists.sent_weights.row(row)[s] = routing.weights.row(t)[s];
      ++counts_for(work, half.index, rank)[placement_.local_of(id)];
    }
  move_back(offsets);
}

// By rank and expert, a row for every slot. Sets work.expert_position: which of a rank's rows is a
// slot's.
void ExpertParallelDispatcher::list_slotted(const WorkBuffers& work, const Half& half) {
  const ExchangeBuffers& lists = work.exchange;
  const Routing& routing = half.state.routing.peek();
  const int64_t first = first_sent(half);
  const int num_experts = placement_.num_experts();
  const std::span<int32_t> offsets(lists.sent_offsets.row(half.index), num_experts + 1);
  const View<int32_t> position = work.expert_position.slice_rows(half.rows.begin, half.rows.count);

  std::ranges::fill(offsets, 0);
  for (int64_t t = 0; t < half.rows.count; ++t)
    for (int s = 0; s < top_k_; ++s) ++offsets[placement_.place_of(routing.ids.row(t)[s]) + 1];
  for (int e = 0; e < num_experts; ++e) offsets[e + 1] += offsets[e];
  for (int rank = 0; rank < num_ranks_; ++rank) {
    cursor_[rank] = offsets[placement_.first_of(rank)];
    const std::span<uint32_t> counts = counts_for(work, half.index, rank);
    const int32_t* const starts = offsets.data() + placement_.first_of(rank);
    for (size_t e = 0; e < counts.size(); ++e) counts[e] = starts[e + 1] - starts[e];
  }
  for (int64_t t = 0; t < half.rows.count; ++t)
    for (int s = 0; s < top_k_; ++s) {
      const int id = routing.ids.row(t)[s];
      const int32_t row = offsets[placement_.place_of(id)]++;
      lists.sent_from[first + row] = static_cast<int32_t>(t);
      position.row(t)[s] = row - static_cast<int32_t>(cursor_[placement_.rank_of(id)]);
    }
  move_back(offsets);
}

void ExpertParallelDispatcher::send_rows(const ExchangeSite& site, const Half& half) {
  const WorkBuffers& work = site.work;
  const ExchangeBuffers& lists = work.exchange;
  const MatrixView leaving = work.leaving.slice_rows(half.rows.begin, half.rows.count);
  const int64_t first = first_sent(half);
  const auto gather = [&](int begin, int end) {
    gather_rows(site.backend, leaving,
                {lists.sent_from + first + begin, lists.sent_from + first + end},
                lists.sent.slice_rows(first + begin, end - begin));
  };
  gather(0, first_to(work, half.index, rank_));
  gather(first_to(work, half.index, rank_ + 1), first_to(work, half.index, num_ranks_));

  for (int peer = 0; peer < num_ranks_; ++peer) {
    pieces_[peer] = {};
    if (peer == rank_) continue;
    const int64_t begin = first + first_to(work, half.index, peer);
    const int count = rows_to(work, half.index, peer);
    const MessageFormat format = dispatch_format(peer);
    std::byte* const head = lists.heads.row(half.index * num_ranks_ + peer) + kMessageHeadBytes;
    write_head(format, count, head);
    const auto bytes_of = [&](const auto* row, int64_t row_bytes) {
      return std::span(reinterpret_cast<const std::byte*>(row), count * row_bytes);
    };
    pieces_[peer][0] = {head, static_cast<size_t>(dispatch_head_bytes(format.num_experts))};
    if (counted()) {
      pieces_[peer][1] = bytes_of(lists.sent_ids.row(begin), top_k_ * int64_t{sizeof(int32_t)});
      pieces_[peer][2] = bytes_of(lists.sent_weights.row(begin), top_k_ * int64_t{sizeof(float)});
    }
    pieces_[peer][3] = bytes_of(
        static_cast<const std::byte*>(lists.sent.data) + begin * leaving_bytes_, leaving_bytes_);
  }
  send(half, MessageKind::dispatch, site.layer);
}

void ExpertParallelDispatcher::dispatch_wait(const ExchangeSite& site, Half& half) {
  half.state.dispatched.take();
  const bool here = wait(half, MessageKind::dispatch, site.layer);
  if (!here || !keep(read_rows(site.work, half))) std::ranges::fill(arrived_, ArrivedRows{});
  half.state.arrived.set(arrange(site, half));
  if (here) exchange_.release(half.index, MessageKind::dispatch);
}

Result<void> ExpertParallelDispatcher::read_rows(const WorkBuffers& work, const Half& half) {
  HalfState& state = halves_[half.index];
  for (int peer = 0; peer < num_ranks_; ++peer) {
    if (peer == rank_) {
      arrived_[peer] = own_rows(work, half);
    } else {
      HOCKET_TRY(arrived_[peer],
                 read_dispatch(exchange_.from(half.index, MessageKind::dispatch, peer),
                               dispatch_format(rank_), peer));
    }
    state.rows_from[peer] = arrived_[peer].num_rows;
    int64_t rows = 0;
    for (const HalfState& any : halves_) rows += any.rows_from[peer];
    if (rows > most_rows())
      return fail(ErrorCode::lost_rank, "rank {} sent {} rows in a pass, more than {}", peer, rows,
                  most_rows());
  }
  return {};
}

// What this rank has for its own experts, as if it had come.
ArrivedRows ExpertParallelDispatcher::own_rows(const WorkBuffers& work, const Half& half) const {
  const ExchangeBuffers& lists = work.exchange;
  const int64_t begin = first_sent(half) + first_to(work, half.index, rank_);
  const int count = rows_to(work, half.index, rank_);
  ArrivedRows own = {.num_rows = count,
                     .counts = counts_for(work, half.index, rank_),
                     .row_bytes = leaving_bytes_,
                     .index = lists.sent_from + begin};
  own.rows =
      static_cast<const std::byte*>(work.leaving.slice_rows(half.rows.begin, half.rows.count).data);
  if (counted()) {
    own.ids = lists.sent_ids.slice_rows(begin, count);
    own.weights = lists.sent_weights.slice_rows(begin, count);
  }
  return own;
}

// arrived_ as the experts want it; after an error nothing.
ExpertRows ExpertParallelDispatcher::arrange(const ExchangeSite& site, const Half& half) {
  const ExchangeBuffers& lists = site.work.exchange;
  const int experts = static_cast<int>(placement_.experts_of(rank_).size());
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
  const int64_t first =
      ExchangeBuffers::region_begin(half.index, lists.shape.expert_rows(), offsets[experts]);
  const ExpertRows rows = {.x = site.work.expert_x.slice_rows(first, at),
                           .y = site.work.expert_y.slice_rows(first, at),
                           .offsets = offsets,
                           .position = {}};
  const std::span<const std::byte* const> sources(lists.sources, at);
  if (limits_.int8_dispatch) {
    dequantize_rows(site.backend, sources, rows.x);
  } else {
    gather_rows(site.backend, sources, rows.x);
  }
  return rows;
}

// Counted: what every row that came wants of the experts here, source by source, and where it gets
// it. Kept until the sums are made; the messages are not.
void ExpertParallelDispatcher::list_arrived(const WorkBuffers& work, const Half& half) {
  const ExchangeBuffers& lists = work.exchange;
  HalfState& state = halves_[half.index];
  const int experts = static_cast<int>(placement_.experts_of(rank_).size());
  const std::span<int32_t> segments(lists.segments.row(half.index), experts * num_ranks_ + 1);
  state.num_rows = 0;
  for (const ArrivedRows& rows : arrived_) state.num_rows += rows.num_rows;
  state.first_row =
      ExchangeBuffers::region_begin(half.index, lists.shape.arriving_rows(), state.num_rows);
  int64_t row = state.first_row;
  int32_t part = 0;
  for (int peer = 0; peer < num_ranks_; ++peer) {
    const ArrivedRows& rows = arrived_[peer];
    state.parts_from[peer] = part;
    for (int64_t i = 0; i < rows.num_rows; ++i, ++row) {
      const int32_t* const ids = rows.ids.row(i);
      std::copy_n(ids, top_k_, lists.ids.row(row));
      std::copy_n(rows.weights.row(i), top_k_, lists.weights.row(row));
      lists.first_part[row] = part;
      for (int s = 0; s < top_k_; ++s) {
        lists.position.row(row)[s] = -1;
        if (ids[s] < 0) continue;
        const int32_t place = segments[ids[s] * num_ranks_ + peer]++;
        lists.position.row(row)[s] = place;
        lists.sources[place] = rows.row(i);
        const auto same_group = [&](int32_t id) {
          return id >= 0 && id / group_size_ == ids[s] / group_size_;
        };
        part += std::any_of(ids, ids + s, same_group) ? 0 : 1;
      }
    }
  }
  state.parts_from[num_ranks_] = part;
  move_back(segments);
}

}  // namespace hocket
