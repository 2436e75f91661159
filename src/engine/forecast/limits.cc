#include "engine/forecast/limits.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "base/machine.h"
#include "compute/tensor/buffer.h"

namespace hocket {
namespace {

constexpr int kRuns = 32;
// Each worker reads one piece a run. A piece is short, so that some runs are undisturbed; all
// pieces together are larger than any cache.
constexpr int64_t kPieceBytes = int64_t{8} << 20;
constexpr int64_t kMaxReadBytes = int64_t{2} << 30;  // all workers together, at most
constexpr int kLoops = 100'000;  // about 1 ms: short, so that some runs are undisturbed
constexpr int kTileLoops = kLoops / 16;

std::atomic<float> sink;  // takes the sums, else the compiler would drop the loops

// Runs body(worker, run) on all workers at once, several times; each call does `amount` of work.
// Returns the best rate, in amounts a second of all workers together.
template <class Body>
double best_rate(WorkerPool& workers, double amount, Body&& body) {
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    workers.run(workers.size(), [&](int task, int) { body(task, run); });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, amount * workers.size() / seconds.count());
  }
  return best;
}

__attribute__((target("avx512f"))) void read_avx512(const char* from, int64_t bytes) {
  __m512 sums[2] = {};
  for (int64_t i = 0; i < bytes; i += 128) {
    _mm_prefetch(from + i + 2048, _MM_HINT_T1);
    _mm_prefetch(from + i + 2112, _MM_HINT_T1);
    sums[0] = _mm512_add_ps(sums[0], _mm512_loadu_ps(from + i));
    sums[1] = _mm512_add_ps(sums[1], _mm512_loadu_ps(from + i + 64));
  }
  sink = _mm512_cvtss_f32(_mm512_add_ps(sums[0], sums[1]));
}

void read_avx2(const char* from, int64_t bytes) {
  __m256 sums[4] = {};
  for (int64_t i = 0; i < bytes; i += 128) {
    _mm_prefetch(from + i + 2048, _MM_HINT_T1);
    _mm_prefetch(from + i + 2112, _MM_HINT_T1);
    for (int j = 0; j < 4; ++j)
      sums[j] = _mm256_add_ps(sums[j],
                              _mm256_loadu_ps(reinterpret_cast<const float*>(from + i + 32 * j)));
  }
  sink = _mm256_cvtss_f32(
      _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
}

// Independent chains of multiply-adds, enough to keep all units busy in spite of their latency.
constexpr int kChains = 16;

__attribute__((target("avx512f"))) void multiply_avx512() {
  __m512 sums[kChains];
  for (auto& sum : sums) sum = _mm512_set1_ps(1.0f);
  __m512 a = _mm512_set1_ps(0.5f);
  for (int loop = 0; loop < kLoops; ++loop) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_fmadd_ps(sums[i], a, a);
    asm volatile("" : "+v"(a));
  }
  __m512 all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm512_add_ps(all, sums[i]);
  sink = _mm512_cvtss_f32(all);
}

__attribute__((target("avx512f,avx512bf16"))) void multiply_bf16() {
  __m512 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512 a = _mm512_castsi512_ps(_mm512_set1_epi32(0x3f003f00));
  for (int loop = 0; loop < kLoops; ++loop) {
    const auto numbers = __builtin_bit_cast(__m512bh, a);
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], numbers, numbers);
    asm volatile("" : "+v"(a));
  }
  __m512 all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm512_add_ps(all, sums[i]);
  sink = _mm512_cvtss_f32(all);
}

void multiply_avx2() {
  constexpr int kFew = 12;  // AVX2 has 16 registers, and operands need some
  __m256 sums[kFew];
  for (auto& sum : sums) sum = _mm256_set1_ps(1.0f);
  __m256 a = _mm256_set1_ps(0.5f);
  for (int loop = 0; loop < kLoops; ++loop) {
#pragma GCC unroll 16
    for (int i = 0; i < kFew; ++i) sums[i] = _mm256_fmadd_ps(sums[i], a, a);
    asm volatile("" : "+x"(a));
  }
  __m256 all = sums[0];
  for (int i = 1; i < kFew; ++i) all = _mm256_add_ps(all, sums[i]);
  sink = _mm256_cvtss_f32(all);
}

__attribute__((target("avx512f,avx512vnni"))) void multiply_vnni() {
  __m512i sums[kChains];  // all different, else the compiler could merge the chains
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_epi32(i);
  __m512i a = _mm512_set1_epi32(0x01010101);
  for (int loop = 0; loop < kLoops; ++loop) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, a);
    asm volatile("" : "+v"(a));
  }
  __m512i all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm512_add_epi32(all, sums[i]);
  alignas(64) int32_t numbers[16];
  _mm512_store_si512(numbers, all);
  sink = static_cast<float>(numbers[0]);
}

constexpr int kWordChains = 8;  // each takes two of the 16 registers, a sum and a product

void multiply_words() {
  __m256i sums[kWordChains];
  for (int i = 0; i < kWordChains; ++i) sums[i] = _mm256_set1_epi32(i);
  __m256i a = _mm256_set1_epi16(1);
  for (int loop = 0; loop < kLoops; ++loop) {
#pragma GCC unroll 16
    for (int i = 0; i < kWordChains; ++i)
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(sums[i], a));
    asm volatile("" : "+x"(a));
  }
  __m256i all = sums[0];
  for (int i = 1; i < kWordChains; ++i) all = _mm256_add_epi32(all, sums[i]);
  sink = static_cast<float>(_mm256_extract_epi32(all, 0));
}

// Configures eight tiles of 16 rows of 64 bytes and sets them to zero.
__attribute__((target("amx-tile"))) void open_tiles() {
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  const Config config;
  asm volatile("ldtilecfg %0" : : "m"(config));
  asm volatile(
      "tilezero %tmm0\n tilezero %tmm1\n tilezero %tmm2\n tilezero %tmm3\n"
      "tilezero %tmm4\n tilezero %tmm5\n tilezero %tmm6\n tilezero %tmm7\n");
}

// Multiplies tiles into four sums; all operands stay in tile registers.
__attribute__((target("amx-tile,amx-bf16"))) void multiply_tiles() {
  open_tiles();
  for (int loop = 0; loop < kTileLoops; ++loop)
    asm volatile(
        "tdpbf16ps %tmm6, %tmm4, %tmm0\n tdpbf16ps %tmm7, %tmm4, %tmm1\n"
        "tdpbf16ps %tmm6, %tmm5, %tmm2\n tdpbf16ps %tmm7, %tmm5, %tmm3\n");
  asm volatile("tilerelease");
}

__attribute__((target("amx-tile,amx-int8"))) void multiply_integer_tiles() {
  open_tiles();
  for (int loop = 0; loop < kTileLoops; ++loop)
    asm volatile(
        "tdpbusd %tmm6, %tmm4, %tmm0\n tdpbusd %tmm7, %tmm4, %tmm1\n"
        "tdpbusd %tmm6, %tmm5, %tmm2\n tdpbusd %tmm7, %tmm5, %tmm3\n");
  asm volatile("tilerelease");
}

}  // namespace

double measured_read_bandwidth(WorkerPool& workers) {
  const int pieces = static_cast<int>(
      std::clamp<int64_t>(kMaxReadBytes / (workers.size() * kPieceBytes), 2, kRuns));
  std::vector<Buffer> buffers;
  for (int i = 0; i < workers.size(); ++i) {
    auto buffer = Buffer::allocate(pieces * kPieceBytes);
    if (!buffer) return 0;
    std::fill_n(buffer->data(), pieces * kPieceBytes, std::byte{1});
    buffers.push_back(*std::move(buffer));
  }
  const auto read = detect_isa() >= Isa::avx512 ? read_avx512 : read_avx2;
  return best_rate(workers, kPieceBytes, [&](int i, int run) {
    read(reinterpret_cast<const char*>(buffers[i].data() + run % pieces * kPieceBytes),
         kPieceBytes);
  });
}

double measured_integer_peak(Isa isa, WorkerPool& workers) {
  if (isa == Isa::amx && has_feature("amx_int8"))
    return best_rate(workers, 2.0 * 16 * 16 * 64 * 4 * kTileLoops,
                     [](int, int) { multiply_integer_tiles(); });
  if (isa >= Isa::avx512 && has_feature("avx512_vnni"))
    return best_rate(workers, 2.0 * 64 * kChains * kLoops, [](int, int) { multiply_vnni(); });
  return best_rate(workers, 2.0 * 16 * kWordChains * kLoops, [](int, int) { multiply_words(); });
}

std::string_view bf16_peak_name(Isa isa) {
  return isa == Isa::amx ? "AMX" : isa == Isa::avx512_bf16 ? "bf16" : "FMA";
}

double measured_bf16_peak(Isa isa, WorkerPool& workers) {
  if (isa == Isa::amx)
    return best_rate(workers, 2.0 * 16 * 16 * 32 * 4 * kTileLoops,
                     [](int, int) { multiply_tiles(); });
  if (isa == Isa::avx512_bf16)
    return best_rate(workers, 2.0 * 32 * kChains * kLoops, [](int, int) { multiply_bf16(); });
  if (isa >= Isa::avx512)
    return best_rate(workers, 2.0 * 16 * kChains * kLoops, [](int, int) { multiply_avx512(); });
  return best_rate(workers, 2.0 * 8 * 12 * kLoops, [](int, int) { multiply_avx2(); });
}

}  // namespace hocket
