#include "compute/weights/packing_queue.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "compute/weights/matrix_rows.h"
#include "compute/weights/product_spec.h"

namespace hocket {
namespace {

// Bytes of the files that one loop packs: memory that loading needs beyond the packed bytes. It may
// be more, to keep all workers busy.
constexpr int64_t kLoopBytes = int64_t{8} << 20;
constexpr int64_t kMinTasksAWorker = 2;
constexpr int64_t kRangeBytes = int64_t{1} << 20;
// Enough for disks and network file systems to read many blocks at once.
constexpr int64_t kAheadBytes = int64_t{64} << 20;

}  // namespace

PackingQueue::PackingQueue(Options options)
    : options_(std::move(options)),
      scratch_(options_.workers == nullptr ? 1 : options_.workers->size()) {}

void PackingQueue::run(int tasks, const std::function<void(int task, int worker)>& body) {
  if (options_.workers != nullptr) {
    options_.workers->run(tasks, body);
  } else {
    for (int task = 0; task < tasks; ++task) body(task, 0);
  }
}

void PackingQueue::add(MatrixReader reader, const SourceMatrix& part, const PackedWeight& to) {
  const int64_t piece_bytes = std::max<int64_t>(kPanelN * reader.row_bytes(), 1);
  const auto step = static_cast<int>(std::max<int64_t>(kRangeBytes / piece_bytes, 1));
  const auto entry = std::make_shared<Entry>(Entry{std::move(reader), part, to});
  for (int begin = 0; begin < part.pieces() && !error_; begin += step) {
    PieceRange range{entry, begin, std::min(begin + step, part.pieces())};
    range.file_bytes = (range.end - begin) * piece_bytes;
    entry->reader.will_read(range.first_row(), range.last_row());
    ahead_bytes_ += range.file_bytes;
    waiting_bytes_ += range.packed_bytes();
    waiting_.push_back(std::move(range));
    while (ahead_bytes_ > kAheadBytes && !error_) pack_first();
  }
}

void PackingQueue::finish() {
  while (!waiting_.empty() && !error_) pack_first();
}

void PackingQueue::pack_first() {
  const int64_t min_tasks = kMinTasksAWorker * std::ssize(scratch_);
  std::vector<PieceRange> pieces;
  int64_t bytes = 0, tasks = 0;
  while (!waiting_.empty() && (bytes < kLoopBytes || tasks < min_tasks)) {
    pieces.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    bytes += pieces.back().file_bytes;
    tasks += pieces.back().end - pieces.back().begin;
  }
  pack(pieces);
  ahead_bytes_ -= bytes;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const PieceRange& first = pieces[i];
    while (i + 1 < pieces.size() && pieces[i + 1].of == first.of) ++i;
    first.of->reader.done_with(first.first_row(), pieces[i].last_row());
  }
  for (const PieceRange& range : pieces) waiting_bytes_ -= range.packed_bytes();
  if (options_.packed && !error_) options_.packed();
}

void PackingQueue::pack(std::span<const PieceRange> pieces) {
  struct Task {
    Entry* of;
    int piece;
  };
  std::vector<Task> tasks;
  for (const PieceRange& range : pieces) {
    const PackedWeight& to = range.of->to;
    const int last = range.of->part.packed_row(range.end - 1) / kPanelN;
    options_.pages.prefault(to.panel(last) + to.panel_bytes(), options_.workers);
    for (int piece = range.begin; piece < range.end; ++piece)
      tasks.push_back({range.of.get(), piece});
  }
  run(static_cast<int>(tasks.size()), [&](int task, int worker) {
    Entry& of = *tasks[task].of;
    const int piece = tasks[task].piece, row = of.part.piece_begin(piece);
    const RowMove move{row, of.part.piece_begin(piece + 1) - row, of.part.packed_row(piece)};
    if (!pack_matrix_rows(of.reader, move, of.to, scratch_[worker]))
      std::atomic_ref(of.finite).store(false);
  });
  for (const PieceRange& range : pieces)
    if (!range.of->finite && !error_) error_ = not_finite(range.of->reader);
}

}  // namespace hocket
