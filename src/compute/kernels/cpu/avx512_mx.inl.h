// mxfp4, mxfp8 and nvfp4 for any step (avx512_step.h): numbers become fp32, are multiplied by their
// scale, which is exact, and are put into the operands of the step. With VBMI a table does that for
// mxfp4 (avx512_vbmi_mxfp4.inl.h).
//   up to 8 rows   one panel at a time, widened in registers; numbers of mxfp4 stay unscaled where
//                  the sum of a k-block may be multiplied by the scale instead (ScaleRange)
//   more rows      two panels at a time, in chunks of k that are widened once for all rows
#pragma once

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/avx512_product.inl.h"
#include "compute/kernels/cpu/row_counts.h"

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

constexpr int kMxAhead = 2048;  // bytes by which weights are fetched ahead

// Returns sixteen e4m3 numbers times 2^-8, from the upper bytes of 16 bits: shifted right by one
// and read as fp16. This conversion ignores DAZ.
inline __m512 e4m3_times_2_to_minus_8(__m256i uppers) {
  const auto kept = static_cast<int16_t>(0xbf80);
  return _mm512_cvtph_ps(_mm256_and_si256(_mm256_srai_epi16(uppers, 1), _mm256_set1_epi16(kept)));
}

// A quad of k of sixteen columns, as fp32.
struct QuadNumbers {
  __m512 k[4];
};

// Returns a register with the bf16 numbers of `upper` in the upper halves and those of `lower` in
// the lower halves.
inline __m512 halves(__m512 upper, __m512 lower) {
  const __m512i shifted = _mm512_srli_epi32(_mm512_castps_si512(lower), 16);
  return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(upper), shifted));
}

template <class Step>
inline QuadOperands<Step> operands_of(const QuadNumbers& from) {
  const auto& k = from.k;
  if constexpr (Step::kStepK == 4) {
    return {{{halves(k[0], k[2]), halves(k[1], k[3])}}};
  } else {
    return {{{k[0], k[1]}, {k[2], k[3]}}};
  }
}

// The scales of mxfp4, as stored, that may multiply the sum of a k-block instead of its numbers. A
// scale is a power of two, which changes no rounding as long as no sum overflows or is rounded to
// zero, scaled or not: these scales are so far from both ends. A scale of zero is allowed, too.
struct ScaleRange {
  int least = 1, most = 0;

  bool holds(const std::byte* scales, int groups) const {
    __mmask16 outside = 0;
    for (int group = 0; group < groups; ++group, scales += kPanelN) {
      const __m128i stored = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales));
      const __mmask16 beyond =
          _mm_cmplt_epu8_mask(stored, _mm_set1_epi8(static_cast<char>(least))) |
          _mm_cmpgt_epu8_mask(stored, _mm_set1_epi8(static_cast<char>(most)));
      outside |= beyond & _mm_test_epi8_mask(stored, stored);
    }
    return outside == 0;
  }
};

// x has exponents from a to b: a number of x is a multiple of 2^(a - 7), and one of mxfp4 of 1/2,
// so a sum is zero or at least 2^(a - 8). A sum of a block is below 32 * 8 * 2^(b + 1).
inline ScaleRange range_of_scaled_sums(const ScaledProduct<Bf16>& p) {
  constexpr int kBias = 127;
  __m512i least = _mm512_set1_epi16(0x7fff), most = _mm512_setzero_si512();
  for (int row = 0; row < p.rows; ++row)
    for (int k = 0; k < p.k_blocks * kBlockK; k += kBlockK) {
      const __m512i bits = _mm512_loadu_si512(p.x + row * p.x_stride + k);
      const __m512i exponents = _mm512_srli_epi16(_mm512_slli_epi16(bits, 1), 8);
      const __mmask32 nonzero = _mm512_test_epi16_mask(exponents, exponents);
      least = _mm512_mask_min_epu16(least, nonzero, least, exponents);
      most = _mm512_max_epu16(most, exponents);
    }
  const auto folded = [](__m512i halves, auto&& fold) {
    alignas(kLine) uint16_t each[kBlockK];
    _mm512_store_si512(each, halves);
    int result = each[0];
    for (const uint16_t one : each) result = fold(result, int{one});
    return result;
  };
  const int a = folded(least, [](int x, int y) { return x < y ? x : y; }) - kBias;
  const int b = folded(most, [](int x, int y) { return x > y ? x : y; }) - kBias;
  if (a - 8 < 1 - kBias || b + 9 > kBias) return {};
  const int lowest = 1 - (a - 8), highest = 2 * kBias - (b + 9);
  return {lowest < 1 ? 1 : lowest, highest > 255 ? 255 : highest};
}

template <WeightFormat kFormat>
struct Mx {
  using Factors = __m512;
  static constexpr bool kFp8 = kFormat == WeightFormat::mxfp8;
  static constexpr int kGroups = kFormat == WeightFormat::nvfp4 ? 2 : 1;  // in a block
  static constexpr int kQuadsAGroup = kQuads / kGroups;
  static constexpr int kBytes = kFp8 ? kTileElements : kTileElements / 2;  // a tile
  static constexpr bool kScalesSums = kFormat == WeightFormat::mxfp4;

  // Returns the factors of sixteen columns: their scales, times 2^8 for mxfp8.
  static __m512 factors(const std::byte* scales) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales));
    if constexpr (kFormat == WeightFormat::nvfp4) {
      const __m256i uppers = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8);
      return _mm512_mul_ps(e4m3_times_2_to_minus_8(uppers), _mm512_set1_ps(0x1p8f));
    } else {
      const __m512i stored = _mm512_cvtepu8_epi32(bytes);
      const __mmask16 nonzero = _mm512_test_epi32_mask(stored, stored);
      const __m512i exponents =
          _mm512_maskz_add_epi32(nonzero, stored, _mm512_set1_epi32(kFp8 ? 8 : 0));
      return _mm512_castsi512_ps(_mm512_slli_epi32(exponents, 23));
    }
  }

  // Returns the numbers of a quad without their scale, those of mxfp8 times 2^-8.
  static QuadNumbers numbers(const std::byte* tile, int quad) {
    QuadNumbers to;
    if constexpr (kFp8) {
      const __m512i line = _mm512_loadu_si512(tile + quad * kLine);
      const __m512i even = _mm512_slli_epi16(line, 8);
      to.k[0] = e4m3_times_2_to_minus_8(_mm512_castsi512_si256(even));
      to.k[1] = e4m3_times_2_to_minus_8(_mm512_castsi512_si256(line));
      to.k[2] = e4m3_times_2_to_minus_8(_mm512_extracti64x4_epi64(even, 1));
      to.k[3] = e4m3_times_2_to_minus_8(_mm512_extracti64x4_epi64(line, 1));
    } else {
      const __m512 table =
          _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
      const __m512i eights = _mm512_loadu_si512(tile + quad / 2 * kLine);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)  // the permute reads the lowest four bits
        to.k[i] = _mm512_permutexvar_ps(_mm512_srli_epi32(eights, 4 * (quad % 2 * 4 + i)), table);
    }
    return to;
  }
  static QuadNumbers widen(const std::byte* tile, int quad, __m512 factors) {
    QuadNumbers to = numbers(tile, quad);
#pragma GCC unroll 4
    for (__m512& k : to.k) k = _mm512_mul_ps(k, factors);
    return to;
  }

  template <class Step>
  static QuadOperands<Step> operands(const std::byte* tile, int quad, __m512 factors) {
    return operands_of<Step>(widen(tile, quad, factors));
  }
};

// Format: Mx, or a class with the same members; numbers() is needed only if kScalesSums.
template <class Step, class Format>
struct MxProduct {
  using Plain = AnyProduct<Step>;
  using Quad = QuadOperands<Step>;

  // Multiplies one panel, which is fetched ahead, with R rows.
  template <int R, bool kScalesSums>
  static void stream(const ScaledProduct<Bf16>& p, const float* x, int panel) {
    const std::byte* w = p.w + panel * p.panel_bytes;
    const std::byte* scales = scales_of(p, panel);
    __m512 c[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) c[r] = _mm512_setzero_ps();
    for (int block = 0; block < p.k_blocks;
         ++block, x += R * kRowOperands<Step>, w += Format::kBytes) {
      __m512 e[R], o[R];
      typename Format::Factors factors{};
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) e[r] = o[r] = _mm512_setzero_ps();
#pragma GCC unroll 8
      for (int line = 0; line < Format::kBytes; line += kLine) prefetch_l2(w + kMxAhead + line);
#pragma GCC unroll 8
      for (int quad = 0; quad < kQuads; ++quad) {
        if (quad % Format::kQuadsAGroup == 0) {
          factors = Format::factors(scales);
          scales += kPanelN;
        }
        Quad b;
        if constexpr (kScalesSums) {
          b = operands_of<Step>(Format::numbers(w, quad));
        } else {
          b = Format::template operands<Step>(w, quad, factors);
        }
#pragma GCC unroll 2
        for (int step = 0; step < Quad::kSteps; ++step) {
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            const float* const a = x + r * kRowOperands<Step> + (quad * Quad::kSteps + step) * 2;
            e[r] = Step::multiply_add(_mm512_set1_ps(a[0]), b.steps[step].e, e[r]);
            o[r] = Step::multiply_add(_mm512_set1_ps(a[1]), b.steps[step].o, o[r]);
          }
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512 sum = _mm512_add_ps(e[r], o[r]);
        if constexpr (kScalesSums) {
          c[r] = _mm512_fmadd_ps(sum, factors, c[r]);
        } else {
          c[r] = _mm512_add_ps(c[r], sum);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) _mm512_storeu_ps(p.y + r * p.y_stride + panel * kPanelN, c[r]);
  }

  static const std::byte* scales_of(const ScaledProduct<Bf16>& p, int panel) {
    return p.scales + int64_t{panel} * p.groups * kPanelN;
  }

  // Multiplies few rows with all panels.
  static void stream_panels(const ScaledProduct<Bf16>& p) {
    const auto x = Plain::prepare_rows(p, 0, p.rows);
    ScaleRange summed;
    if constexpr (Format::kScalesSums) summed = range_of_scaled_sums(p);
    for (int panel = 0; panel < p.panels; ++panel)
      with_rows<kStreamRows>(p.rows, [&](auto r) {
        if constexpr (Format::kScalesSums) {
          if (summed.holds(scales_of(p, panel), p.groups))
            return stream<r(), true>(p, x.operands, panel);
        }
        stream<r(), false>(p, x.operands, panel);
      });
  }

  // Multiplies all rows of x with N panels from `panel` on.
  template <int N>
  static void multiply_panels(const ScaledProduct<Bf16>& p, const typename Plain::Rows& x,
                              int panel, float* y) {
    typename Plain::template Chunk<N> chunk;
    const std::byte* const w = p.w + panel * p.panel_bytes;
    const int row_groups = (x.rows + x.most - 1) / x.most;
    for (int block = 0; block < p.k_blocks; block += chunk.blocks) {
      chunk.blocks = std::min(Plain::kChunkBlocks, p.k_blocks - block);
      chunk.first = block == 0;
      for (int n = 0; n < N; ++n) fill(p, panel + n, block, n, chunk);
      const int next = block + chunk.blocks;
      typename Plain::PrefetchLines ahead(
          next < p.k_blocks ? w + int64_t{next} * Format::kBytes : w + N * p.panel_bytes,
          p.panel_bytes, int64_t{chunk.blocks} * Format::kBytes, row_groups * chunk.blocks);
      x.for_each_group([&](int row, int rows, const float* operands) {
        with_rows<kTwoPanelRows>(rows, [&](auto r) {
          Plain::template multiply_chunk<r()>(chunk,
                                              operands + int64_t{block} * r() * kRowOperands<Step>,
                                              y + row * p.y_stride, p.y_stride, ahead);
        });
      });
    }
  }

  // Widens the blocks of a chunk of one panel, from `block` on, into place n of the chunk.
  template <class Chunk>
  static void fill(const ScaledProduct<Bf16>& p, int panel, int block, int n, Chunk& chunk) {
    const std::byte* w = p.w + panel * p.panel_bytes + int64_t{block} * Format::kBytes;
    const std::byte* scales =
        p.scales + (int64_t{panel} * p.groups + block * Format::kGroups) * kPanelN;
    for (int i = 0, step = 0; i < chunk.blocks; ++i, w += Format::kBytes)
      for (int group = 0; group < Format::kGroups; ++group, scales += kPanelN) {
        const typename Format::Factors factors = Format::factors(scales);
        for (int quad = 0; quad < Format::kQuadsAGroup; ++quad) {
          const Quad b =
              Format::template operands<Step>(w, group * Format::kQuadsAGroup + quad, factors);
          for (const ColumnOperands& columns : b.steps) chunk.set(step++, n, columns);
        }
      }
  }

  static void run(const ScaledProduct<Bf16>& p) {
    if (p.rows == 0) return;
    if (p.rows <= kStreamRows) return stream_panels(p);
    const int most = rows_together(p.k_blocks), parts = (p.rows + most - 1) / most;
    for (int part = 0, row = 0; part < parts; ++part) {
      const int end = p.rows * (part + 1) / parts;
      const auto x = Plain::prepare_rows(p, row, end - row);
      float* const y = p.y + row * p.y_stride;
      int panel = 0;
      for (; panel + 2 <= p.panels; panel += 2)
        multiply_panels<2>(p, x, panel, y + panel * kPanelN);
      if (panel < p.panels) multiply_panels<1>(p, x, panel, y + panel * kPanelN);
      row = end;
    }
  }
};

template <class Step, class Mxfp4 = Mx<WeightFormat::mxfp4>>
void product_mx(const ScaledProduct<Bf16>& p) {
  switch (p.format) {
    case WeightFormat::mxfp4:
      return MxProduct<Step, Mxfp4>::run(p);
    case WeightFormat::mxfp8:
      return MxProduct<Step, Mx<WeightFormat::mxfp8>>::run(p);
    default:  // nvfp4
      return MxProduct<Step, Mx<WeightFormat::nvfp4>>::run(p);
  }
}

}  // namespace
}  // namespace hocket::cpu
