// Parts of matrices that wait to be packed, in the order in which a model asks for them. The pages
// of the files are asked for when a part is added and released when it is packed. Up to
// kAheadBytes of the files wait between the two, so the kernel reads while the workers pack, and
// one loop of the workers packs parts of several matrices:
//
//   files   |  released  | packed by one loop |  asked for, perhaps read  | not asked for
//                        kLoopBytes           up to kAheadBytes
//
// Private to the room.   Thread: the one that loads; the workers inside a call.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/worker_pool.h"
#include "compute/weights/matrix_reader.h"
#include "compute/weights/prefaulted_memory.h"
#include "compute/weights/quantize.h"
#include "compute/weights/source_matrix.h"

namespace hocket {

class PackingQueue {
 public:
  struct Options {
    WorkerPool* workers = nullptr;  // null: the caller alone
    PrefaultedMemory pages;         // memory that was never used, if the parts are packed there
    std::function<void()> packed;   // called after each loop
  };
  explicit PackingQueue(Options options);

  // Adds a part of the product `to`, and packs what was added first if too much waits.
  void add(MatrixReader reader, const SourceMatrix& part, const PackedWeight& to);
  // Packs all that waits.
  void finish();
  // Returns the bytes of products that are not packed yet.
  int64_t waiting_bytes() const { return waiting_bytes_; }
  // Returns the first error: a number that is not finite. After it nothing is packed.
  const std::optional<Error>& error() const { return error_; }

  // Runs body(task, worker) by the workers.
  void run(int tasks, const std::function<void(int task, int worker)>& body);
  // The workers' memory, which body may use.
  std::span<RowScratch> scratch() { return scratch_; }

 private:
  struct Entry {
    MatrixReader reader;
    SourceMatrix part;
    PackedWeight to;
    bool finite = true;
  };
  // Some pieces of an entry.
  struct PieceRange {
    std::shared_ptr<Entry> of;
    int begin = 0, end = 0;
    int64_t file_bytes = 0;
    int first_row() const { return of->part.piece_begin(begin); }
    int last_row() const { return of->part.piece_begin(end); }
    int64_t packed_bytes() const {
      return (last_row() - first_row()) * (of->to.bytes() / of->to.n);
    }
  };
  void pack_first();  // by one loop
  void pack(std::span<const PieceRange> pieces);

  Options options_;
  std::vector<RowScratch> scratch_;  // one for each worker
  std::deque<PieceRange> waiting_;
  int64_t ahead_bytes_ = 0, waiting_bytes_ = 0;
  std::optional<Error> error_;
};

}  // namespace hocket
