#include "compute/weights/packing_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "compute/tensor/buffer.h"
#include "compute/weights/matrix_rows.h"

namespace hocket {
namespace {

constexpr int kQueuedRows = 70, kQueuedCols = 96;
constexpr int64_t kHugePage = int64_t{2} << 20;

// A matrix of random numbers, packed in float32.
struct PackedAlone {
  PackedAlone() {
    weight.format = WeightFormat::f32;
    weight.n = kQueuedRows, weight.k = kQueuedCols;
    memory = *Buffer::allocate(weight.bytes());
    weight.data = memory.data();
  }
  Buffer memory;
  PackedWeight weight;
};

MatrixReader reader_of(int number) {
  return *MatrixReader::random(5, {}, std::to_string(number) + ".weight", kQueuedRows, kQueuedCols);
}

TEST(PackingQueue, PacksSmallMatricesTogether) {
  constexpr int kCount = 20;
  WorkerPool workers({.num_workers = 2, .cpus = {}});
  int loops = 0;
  PackingQueue queue({.workers = &workers, .pages = {}, .packed = [&] { ++loops; }});
  std::vector<PackedAlone> packed(kCount), want(kCount);
  RowScratch scratch;
  for (int i = 0; i < kCount; ++i) {
    queue.add(reader_of(i), {"", kQueuedRows, 0, kPanelN}, packed[i].weight);
    ASSERT_TRUE(pack_matrix_rows(reader_of(i), {0, kQueuedRows, 0}, want[i].weight, scratch));
  }
  EXPECT_EQ(loops, 0);
  EXPECT_EQ(queue.waiting_bytes(), kCount * (packed[0].weight.bytes() / kQueuedRows * kQueuedRows));
  queue.finish();
  EXPECT_EQ(loops, 1);
  EXPECT_EQ(queue.waiting_bytes(), 0);
  EXPECT_FALSE(queue.error());
  for (int i = 0; i < kCount; ++i)
    EXPECT_EQ(std::memcmp(packed[i].memory.data(), want[i].memory.data(), want[i].memory.bytes()),
              0)
        << i;
}

// A matrix of zeros, under every name.
class NotingSource final : public WeightSource {
 public:
  NotingSource(int64_t n, int64_t k) : zeros_(static_cast<size_t>(n * k)), n_(n), k_(k) {}
  bool has(std::string_view) const override { return true; }
  Result<StoredTensor> find(std::string_view) const override {
    return StoredTensor{
        StoredType::f32, {n_, k_}, reinterpret_cast<const std::byte*>(zeros_.data()), n_ * k_ * 4};
  }
  std::vector<std::string> names() const override { return {}; }
  void will_read(const StoredTensor& tensor) const override {
    asked_for += tensor.bytes;
    most_ahead = std::max(most_ahead, asked_for - released);
  }
  void done_with(const StoredTensor& tensor) const override { released += tensor.bytes; }

  // Bytes; most_ahead: that were asked for and not given back.
  mutable int64_t asked_for = 0, released = 0, most_ahead = 0;

 private:
  std::vector<float> zeros_;
  int64_t n_, k_;
};

// The next matrix is asked for before the last is packed, but no more than 64 MiB and a chunk.
TEST(PackingQueue, AsksForBytesAheadOfThePacking) {
  constexpr int kCount = 5, kLong = 2500, kWide = 2048;  // 20 MB each
  constexpr int64_t kAll = int64_t{kCount} * kLong * kWide * 4;
  constexpr int64_t kAhead = int64_t{64} << 20, kChunk = int64_t{1} << 20;
  const NotingSource source(kLong, kWide);
  PackedWeight to{.format = WeightFormat::bf16, .n = kLong, .k = kWide};
  const Buffer memory = *Buffer::allocate(to.bytes());
  to.data = memory.data();
  PackingQueue queue(PackingQueue::Options{});
  for (int i = 0; i < kCount; ++i)
    queue.add(*MatrixReader::open(source, {}, "w.weight", kLong, kWide), {"", kLong, 0, kPanelN},
              to);
  queue.finish();
  EXPECT_EQ(source.asked_for, kAll);
  EXPECT_EQ(source.released, kAll);
  EXPECT_GT(source.most_ahead, kAhead - kChunk);
  EXPECT_LE(source.most_ahead, kAhead + kChunk);
}

TEST(PrefaultedMemory, AreTouchedOnceSomePagesAheadAndKeepWhatStandsThere) {
  constexpr int kPages = 30;
  WorkerPool workers({.num_workers = 2, .cpus = {}});
  const Buffer memory = *Buffer::allocate(kPages * kHugePage + 100);
  std::byte* const data = memory.data();
  for (int page = 0; page < kPages; ++page) data[page * kHugePage] = std::byte{7};
  PrefaultedMemory pages({data, static_cast<size_t>(memory.bytes())});
  pages.prefault(data + 5, &workers);
  EXPECT_EQ(pages.touched(), 9 * kHugePage);  // one, and four for each worker
  pages.prefault(data + 9 * kHugePage, &workers);
  EXPECT_EQ(pages.touched(), 9 * kHugePage);
  pages.prefault(data + 9 * kHugePage + 1, &workers);
  EXPECT_EQ(pages.touched(), 18 * kHugePage);
  pages.prefault(data + memory.bytes(), &workers);
  EXPECT_EQ(pages.touched(), memory.bytes());
  for (int page = 0; page < kPages; ++page) ASSERT_EQ(data[page * kHugePage], std::byte{7}) << page;
}

TEST(PrefaultedMemory, OfOtherMemoryAreNotTouched) {
  WorkerPool workers({.num_workers = 1, .cpus = {}});
  const Buffer memory = *Buffer::allocate(kHugePage), other = *Buffer::allocate(kHugePage);
  PrefaultedMemory none, pages({memory.data(), static_cast<size_t>(memory.bytes())});
  none.prefault(other.data() + 1, &workers);
  pages.prefault(other.data() + kHugePage + 64, &workers);
  pages.prefault(memory.data() + 1, nullptr);
  EXPECT_EQ(none.touched(), 0);
  EXPECT_EQ(pages.touched(), 0);
}

}  // namespace
}  // namespace hocket
