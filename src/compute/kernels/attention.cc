#include "compute/kernels/attention.h"

#include <algorithm>
#include <cstring>

#include "compute/kernels/attention_run.h"
#include "compute/kernels/block_tiles.h"
#include "compute/kernels/reference_operations.h"

namespace hocket {
namespace {

// A source over pages that hold activations; their tiles are read in place.
template <class T>
struct PageSource {
  const KvLayer& kv;
  std::span<const PageId> pages;
  int head = 0;

  static constexpr bool kReadsPages = true;
  void load(int, int) {}
  TileRun<T> keys(int token, int block_end) const {
    const int page_tokens = kv.shape.page_tokens, in_page = token % page_tokens;
    return {kv.keys<T>(pages[token / page_tokens], head) + kv.shape.key_offset(in_page, 0),
            kPanelN * round_up(kv.shape.key_dim, kBlockK),
            std::min(block_end, token - in_page + page_tokens)};
  }
  TileRun<T> values(int token, int block_end) const {
    const int page_tokens = kv.shape.page_tokens, in_page = token % page_tokens;
    return {kv.values<T>(pages[token / page_tokens], head) + kv.shape.value_offset(in_page, 0),
            kTileElements, std::min(block_end, token + kBlockK)};
  }
};

// A source over int8 pages; it makes the tiles of a block from round(q * scale).
template <class T>
struct Int8Source {
  const KvLayer& kv;
  std::span<const PageId> pages;
  int head = 0;
  BlockTiles<T> tiles;

  void load(int block, int block_end) {
    const int page_tokens = kv.shape.page_tokens;
    for (int token = block; token < block_end; token += kBlockK) {
      const PageId page = pages[token / page_tokens];
      const int in_page = token % page_tokens;
      const float* const scales = kv.scales(page, head) + in_page;
      load_keys(kv.keys<int8_t>(page, head) + kv.shape.key_offset(in_page, 0), scales,
                token - block);
      load_values(kv.values<int8_t>(page, head) + kv.shape.value_offset(in_page, 0),
                  scales + page_tokens, token - block);
    }
  }
  TileRun<T> keys(int, int block_end) const { return tiles.key_run(block_end); }
  TileRun<T> values(int, int block_end) const { return tiles.value_run(block_end); }

 private:
  void load_keys(const int8_t* q, const float* scales, int token) const {
    for (int panel = 0; panel < kBlockK; panel += kPanelN) {
      float of_lane[2 * kPanelN];  // each pair of dims takes the scales of 16 keys
      for (int i = 0; i < 2 * kPanelN; ++i) of_lane[i] = scales[panel + i / 2];
      dequantize(q, int64_t{kPanelN} * tiles.q_dim, of_lane, tiles.key_panel(token + panel));
      q += int64_t{kPanelN} * tiles.q_dim;
    }
  }
  void load_values(const int8_t* q, const float* scales, int token) const {
    float of_lane[kTileElements];  // each dim takes the scales of a pair of keys
    for (int i = 0; i < kTileElements; ++i) of_lane[i] = scales[i / (2 * kPanelN) * 2 + i % 2];
    for (int panel = 0; panel < tiles.v_dim / kPanelN; ++panel, q += kTileElements) {
      T* const tile = tiles.value_tile(token, panel);
      for (int pair = 0; pair < kTileElements; pair += 2 * kPanelN)
        dequantize(q + pair, 2 * kPanelN, of_lane + pair, tile + pair);
    }
  }
};

// A source over pages of few tokens; it gathers the tiles of a block from their rows.
template <class T>
struct RowSource {
  const KvLayer& kv;
  std::span<const PageId> pages;
  int head = 0;
  BlockTiles<T> tiles;
  T* rows = nullptr;  // [32][q_dim or v_dim]

  void lay(Layout& scratch) {
    tiles.lay(scratch);
    rows = scratch.array<T>(int64_t{kBlockK} * std::max(tiles.q_dim, tiles.v_dim));
  }
  void load(int block, int block_end) const {
    const KvShape& shape = kv.shape;
    for (int token = block; token < block_end; token += kBlockK) {
      gather(token, tiles.q_dim, 0, 0);
      tiles.pack_keys(token - block, rows, tiles.q_dim);
      gather(token, tiles.v_dim, shape.key_elements(), shape.page_tokens);
      tiles.pack_values(token - block, rows, tiles.v_dim);
    }
  }
  TileRun<T> keys(int, int block_end) const { return tiles.key_run(block_end); }
  TileRun<T> values(int, int block_end) const { return tiles.value_run(block_end); }

 private:
  // Gathers `dim` numbers of each of 32 tokens. In a page of the head, the numbers begin at `begin`
  // and their scales at `scales`. Rows beyond the last page are zero.
  void gather(int token, int dim, int64_t begin, int scales) const {
    const int page_tokens = kv.shape.page_tokens;
    const int end = static_cast<int>(pages.size()) * page_tokens;
    for (int t = 0; t < kBlockK; ++t, ++token) {
      T* const row = rows + int64_t{t} * dim;
      if (token >= end) {
        std::fill_n(row, dim, T{});
        continue;
      }
      const PageId page = pages[token / page_tokens];
      const int64_t in_page = token % page_tokens;
      if (kv.shape.dtype == DType::int8) {
        dequantize_row(kv.keys<int8_t>(page, head) + begin + in_page * dim, dim,
                       kv.scales(page, head)[scales + in_page], row);
      } else {
        std::memcpy(row, kv.keys<T>(page, head) + begin + in_page * dim, dim * sizeof(T));
      }
    }
  }
};

template <class T>
struct PageSources {
  const KvLayer& kv;
  PageSource<T> source(const AttentionSequence& sequence, int head, Layout&) const {
    return {kv, sequence.pages, head};
  }
};

template <class T>
struct Int8Sources {
  const KvLayer& kv;
  int q_dim, v_dim;
  Int8Source<T> source(const AttentionSequence& sequence, int head, Layout& scratch) const {
    Int8Source<T> source{kv, sequence.pages, head, {.q_dim = q_dim, .v_dim = v_dim}};
    source.tiles.lay(scratch);
    return source;
  }
};

template <class T>
struct RowSources {
  const KvLayer& kv;
  int q_dim, v_dim;
  RowSource<T> source(const AttentionSequence& sequence, int head, Layout& scratch) const {
    RowSource<T> source{kv, sequence.pages, head, {.q_dim = q_dim, .v_dim = v_dim}};
    source.lay(scratch);
    return source;
  }
};

template <class T>
AttentionForm<T> form_of(int num_heads, const KvShape& shape) {
  AttentionForm<T> form;
  form.num_heads = num_heads;
  form.heads_per_item = num_heads / shape.num_heads;
  form.q_dim = static_cast<int>(round_up(shape.key_dim, kBlockK));
  form.value_dim = form.out_dim = shape.value_dim;
  form.max_rows = std::max(kManyQueryRows, form.heads_per_item);
  return form;
}

// Calls f(form, sources) with the sources for this kind of pages.
template <class T, class F>
auto with_sources(const AttentionForm<T>& form, const KvLayer& kv, F&& f) {
  if (kv.shape.in_rows()) return f(RowSources<T>{kv, form.q_dim, form.v_dim()});
  if (kv.shape.dtype == DType::int8) return f(Int8Sources<T>{kv, form.q_dim, form.v_dim()});
  return f(PageSources<T>{kv});
}

void check_shapes(const AttentionCall& call) {
  const MatrixView &q = call.q, &out = call.out;
  const AttentionPlan& plan = call.plan;
  const KvShape& shape = call.kv.shape;
  const int64_t q_dim = round_up(shape.key_dim, kBlockK);
  HOCKET_CHECK(shape.kind == KvShape::Kind::heads);
  HOCKET_CHECK(q.dtype == out.dtype && (q.dtype == shape.dtype || shape.dtype == DType::int8));
  HOCKET_CHECK(q.cols % (q_dim * shape.num_heads) == 0);
  HOCKET_CHECK(out.cols == q.cols / q_dim * shape.value_dim);
  HOCKET_CHECK((call.sinks.empty() || std::ssize(call.sinks) == q.cols / q_dim));
  HOCKET_CHECK((call.visible.window >= 0 && call.visible.chunk >= 0 && call.soft_cap >= 0));
  HOCKET_CHECK(shape.has_known_pages());
  for (const AttentionSequence& s : plan.sequences) {
    HOCKET_CHECK(s.row_begin + s.num_rows <= q.rows && s.row_begin + s.num_rows <= out.rows);
    const int64_t tokens = s.first_position + s.num_rows;
    HOCKET_CHECK(static_cast<int64_t>(s.pages.size()) * shape.page_tokens >= tokens);
  }
}

}  // namespace

int64_t attention_scratch_bytes(int num_heads, const KvShape& shape) {
  const auto bytes = [&](auto t) {
    using T = decltype(t);
    const KvLayer kv = {shape, nullptr};
    const AttentionForm<T> form = form_of<T>(num_heads, shape);
    return with_sources(form, kv, [&](const auto& sources) {
      return BatchRun<T, std::decay_t<decltype(sources)>>::scratch_bytes(form, sources);
    });
  };
  // int8 pages may be read as either type.
  return std::max(shape.dtype == DType::f32 ? 0 : bytes(Bf16{}),
                  shape.dtype == DType::bf16 ? 0 : bytes(float{}));
}

void attention(Backend& backend, const AttentionCall& call) {
  check_shapes(call);
  if (backend.isa() == Isa::ref) return ref::attention(backend, call);
  with_dtype(call.q.dtype, [&](auto t) {
    using T = decltype(t);
    const KvShape& shape = call.kv.shape;
    const auto num_heads = static_cast<int>(call.q.cols / round_up(shape.key_dim, kBlockK));
    AttentionForm<T> form = form_of<T>(num_heads, shape);
    form.q = call.q.as<T>();
    form.out = call.out.as<T>();
    form.scale = call.scale;
    form.visible = call.visible;
    form.soft_cap = call.soft_cap;
    form.sinks = call.sinks;
    with_sources(form, call.kv, [&](const auto& sources) {
      BatchRun(backend, call.plan, std::span(call.plan.tasks), form, sources).run();
    });
  });
}

}  // namespace hocket
