#include "compute/weights/loader.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <set>
#include <utility>

#include "compute/weights/matrix_rows.h"
#include "compute/weights/packing_queue.h"
#include "compute/weights/product_spec.h"
#include "compute/weights/random_weights.h"

namespace hocket {

constexpr int64_t kAlignment = 64;
constexpr std::chrono::milliseconds kProgressEvery{50};

struct WeightLoader::State {
  bool measuring = true;
  Fingerprint claimed;
  Options options;
  Buffer memory;
  int64_t used = 0;
  std::optional<Error> error;
  std::set<std::string> narrowed;
  FormatChanges changes;
  bool scales_narrowed = false;
  std::chrono::steady_clock::time_point reported;
  std::optional<PackingQueue> queue;  // if filling()

  bool filling() const { return !measuring && options.packed == nullptr; }
  void* take(int64_t bytes);
  void report();
  template <class Value>
  std::optional<Value> keep(Result<Value> result);
  std::optional<MatrixReader> open(const std::string& name, int n, int k);
  PackedWeight claim(MatrixFormat format, int n, int k);
  PackedWeight load(const ProductSpec& product);
  bool sound(const MatrixReader& reader);
  void take_error();
  void finish();
  void fill_bias(const SourceMatrix& part, float* to);
  void read_floats(const Floats& floats, float* out);
  void check_floats(const Floats& floats);
  template <class Change>
  std::span<const float> load_floats(std::span<const Floats> parts, Change&& change);
  void note_narrowing(const MatrixReader& reader, WeightFormat to);
  LatentHeadWeights claim_heads(int heads, int nope, int value, int rank);
  void fill_heads(const MatrixReader& reader, const LatentHeadWeights& to);
};

template <class Value>
std::optional<Value> WeightLoader::State::keep(Result<Value> result) {
  if (result) return *std::move(result);
  error = std::move(result).error();
  return std::nullopt;
}

void* WeightLoader::State::take(int64_t bytes) {
  if (error) return nullptr;
  const int64_t offset = used;
  used += round_up(bytes, kAlignment);
  claimed.add_all(bytes);
  if (measuring || bytes == 0) return nullptr;
  HOCKET_CHECK(used <= options.bytes);  // loading asks for more than was measured
  // Weights that were packed before are only read: the returned views are const.
  if (!filling()) return const_cast<std::byte*>(options.packed) + offset;
  return (options.memory != nullptr ? options.memory : memory.data()) + offset;
}

void WeightLoader::State::report() {
  if (measuring || error || !options.progress) return;
  const auto now = std::chrono::steady_clock::now();
  const int64_t done = used - (queue ? queue->waiting_bytes() : 0);
  if (done < options.bytes && now - reported < kProgressEvery) return;
  reported = now;
  options.progress({done, options.bytes});
}

std::optional<MatrixReader> WeightLoader::State::open(const std::string& name, int n, int k) {
  if (error) return std::nullopt;
  return keep(options.source == nullptr
                  ? MatrixReader::random(options.seed, options.stored, name, n, k)
                  : MatrixReader::open(*options.source, options.stored, name, n, k));
}

PackedWeight WeightLoader::State::claim(MatrixFormat format, int n, int k) {
  HOCKET_CHECK(n > 0 && k > 0);
  PackedWeight packed{.format = format.format, .n = n, .k = k, .group = format.group};
  packed.data = take(packed.data_bytes());
  packed.scales = static_cast<const std::byte*>(take(packed.scale_bytes()));
  packed.zeros = static_cast<const uint8_t*>(take(packed.zero_bytes()));
  packed.column_scales = static_cast<const float*>(take(packed.column_scale_bytes()));
  return packed;
}

void WeightLoader::State::note_narrowing(const MatrixReader& reader, WeightFormat to) {
  if (reader.kind() == MatrixReader::Kind::plain && to == WeightFormat::bf16 &&
      !reader.is_stored_bf16())
    narrowed.emplace(reader.type_name());
  scales_narrowed |=
      to == WeightFormat::int4 && reader.format().format == to && reader.has_float32_scales();
}

PackedWeight WeightLoader::State::load(const ProductSpec& product) {
  std::vector<MatrixReader> readers;
  std::optional<MatrixFormat> held;
  for (const SourceMatrix& part : product.parts) {
    std::optional<MatrixReader> reader = open(part.name, part.n, product.k);
    if (!reader) return {};
    held = held ? common_format(*held, reader->format()) : reader->format();
    readers.push_back(*std::move(reader));
  }
  const MatrixFormat format = format_in_memory(options, *held, product.k, product.quantized);
  if (block_k(format.format) == kIntegerBlockK && product.k > kMaxIntegerDepth) {
    error = too_deep(product);
    return {};
  }
  describe_to(claimed, product, format);
  for (const MatrixReader& reader : readers) note_narrowing(reader, format.format);
  PackedWeight packed = claim(format, product.n, product.k);
  // Published files hold other matrices plain, whatever config.json says.
  if (options.source != nullptr || product.quantized == ProductSpec::Quantized::allowed)
    note_change(readers, packed.bytes(), format, changes);
  auto* const bias = product.bias == Bias::none
                         ? nullptr
                         : static_cast<float*>(take(round_up(product.n, kPanelN) * 4));
  packed.bias = bias;
  for (size_t i = 0; i < readers.size() && filling() && !error; ++i) {
    if (bias != nullptr) fill_bias(product.parts[i], bias);
    if (!error && sound(readers[i])) queue->add(std::move(readers[i]), product.parts[i], packed);
    take_error();
  }
  for (const SourceMatrix& part : product.parts)
    if (product.bias == Bias::present && !filling()) check_floats(bias_of(part));
  report();
  return packed;
}

bool WeightLoader::State::sound(const MatrixReader& reader) {
  Result<void> checked = reader.check_contents();
  if (!checked) error = std::move(checked).error();
  return !error;
}

void WeightLoader::State::take_error() {
  if (queue && queue->error() && !error) error = queue->error();
}

// Packs what waits. An error that was found before leaves the rest as it is.
void WeightLoader::State::finish() {
  if (!queue || error) return;
  queue->finish();
  take_error();
  report();
}

void WeightLoader::State::fill_bias(const SourceMatrix& part, float* to) {
  std::vector<float> bias(part.n);
  read_floats(bias_of(part), bias.data());
  for (int row = 0; row < part.n; ++row)
    to[part.row_begin + row / kPanelN * part.rows_apart + row % kPanelN] = bias[row];
}

void WeightLoader::State::read_floats(const Floats& floats, float* out) {
  const auto& [name, shapes, n] = floats;
  if (options.source == nullptr) return random_rows(options.seed, name, 0, {out, 1, n});
  if (const auto stored = keep(find_plain(*options.source, name, shapes))) {
    read_vector(*stored, n, out);
    options.source->done_with(*stored);
  }
}

void WeightLoader::State::check_floats(const Floats& floats) {
  if (options.source != nullptr && !error)
    keep(find_plain(*options.source, floats.name, floats.shapes));
}

// Loads the numbers of one or several tensors as fp32 and passes them to change().
template <class Change>
std::span<const float> WeightLoader::State::load_floats(std::span<const Floats> parts,
                                                        Change&& change) {
  int n = 0;
  for (const Floats& part : parts) {
    claimed.add(part.name);
    claimed.add_all(part.n);
    n += part.n;
  }
  HOCKET_CHECK(n > 0);
  auto* const out = static_cast<float*>(take(int64_t{n} * 4));
  if (error) return {};
  float* next = out;
  for (const Floats& part : parts)
    if (filling())
      read_floats(part, std::exchange(next, next + part.n));
    else
      check_floats(part);
  if (filling()) change(std::span(out, static_cast<size_t>(n)));
  if (measuring || error) return {};
  report();
  return {out, static_cast<size_t>(n)};
}

LatentHeadWeights WeightLoader::State::claim_heads(int heads, int nope, int value, int rank) {
  LatentHeadWeights out;
  const MatrixFormat format{options.dtype == DType::f32 ? WeightFormat::f32 : WeightFormat::bf16,
                            0};
  for (int head = 0; head < heads; ++head) {
    out.key_up.push_back(claim(format, nope, rank));
    out.value_up.push_back(claim(format, value, rank));
    out.key_absorb.push_back(claim(format, rank, nope));
  }
  return out;
}

void WeightLoader::State::fill_heads(const MatrixReader& reader, const LatentHeadWeights& to) {
  if (!sound(reader)) return;
  const int heads = static_cast<int>(to.key_up.size());
  const int head_rows = to.key_up[0].n + to.value_up[0].n;
  const int step = tasks_at_once(head_rows * reader.row_bytes(), heads, queue->scratch().size());
  std::atomic<bool> finite = true;
  for (int begin = 0; begin < heads; begin += step) {
    const int end = std::min(begin + step, heads);
    queue->run(end - begin, [&](int task, int worker) {
      const int h = begin + task;
      const LatentHead head{to.key_up[h], to.value_up[h], to.key_absorb[h]};
      if (!pack_latent_head(reader, h * head_rows, head, queue->scratch()[worker])) finite = false;
    });
    reader.done_with(begin * head_rows, end * head_rows);
    report();
  }
  if (!finite) error = not_finite(reader);
}

WeightLoader::WeightLoader() : state_(std::make_unique<State>()) {}
WeightLoader::WeightLoader(WeightLoader&&) noexcept = default;
WeightLoader::~WeightLoader() = default;

WeightLoader WeightLoader::measuring(Options options) {
  HOCKET_CHECK(options.dtype == DType::bf16 || options.dtype == DType::f32);
  WeightLoader loader;
  loader.state_->options = std::move(options);
  describe_to(loader.state_->claimed, loader.state_->options);
  return loader;
}

Result<WeightLoader> WeightLoader::loading(Options options) {
  WeightLoader loader = measuring(std::move(options));
  State& s = *loader.state_;
  s.measuring = false;
  if (!s.filling()) return loader;
  PackingQueue::Options packing{.workers = s.options.workers, .packed = [&s] { s.report(); }};
  if (s.options.memory == nullptr) {
    HOCKET_TRY(s.memory, Buffer::allocate(s.options.bytes));
    packing.pages = PrefaultedMemory({s.memory.data(), static_cast<size_t>(s.options.bytes)});
  }
  s.queue.emplace(std::move(packing));
  return loader;
}

void WeightLoader::keep_eight_bits() {
  if (state_->options.quantize == WeightFormat::int4) state_->options.quantize = WeightFormat::int8;
}

PackedWeight WeightLoader::matrix(const std::string& name, int n, int k, Bias bias) {
  return stacked(std::array{Part{name, n}}, k, bias);
}

PackedWeight WeightLoader::stacked(std::span<const Part> parts, int k, Bias bias) {
  const Stack stack = stack_of(parts);
  return state_->load({.parts = stack.parts, .n = stack.n, .k = k, .bias = bias});
}

std::vector<PackedWeight> WeightLoader::stacked_by_format(std::span<const Part> parts, int k,
                                                          Bias bias) {
  const auto format_of = [&](const Part& part) {
    const std::optional<MatrixReader> reader = state_->open(part.name, part.n, k);
    return reader ? reader->format() : MatrixFormat{};
  };
  std::vector<PackedWeight> out;
  for (size_t begin = 0, end = 1; begin < parts.size(); begin = end++) {
    while (end < parts.size() && are_joined(format_of(parts[begin]), format_of(parts[end]))) ++end;
    out.push_back(stacked(parts.subspan(begin, end - begin), k, bias));
  }
  return out;
}

PackedWeight WeightLoader::plain_matrix(const std::string& name, int n, int k, Bias bias) {
  return plain_stacked(std::array{Part{name, n}}, k, bias);
}

PackedWeight WeightLoader::plain_stacked(std::span<const Part> parts, int k, Bias bias) {
  const Stack stack = stack_of(parts);
  return state_->load({stack.parts, stack.n, k, ProductSpec::Quantized::never, bias});
}

PackedWeight WeightLoader::head(const std::string& name, int n, int k) {
  const SourceMatrix part{name, n, 0, kPanelN};
  return state_->load({{&part, 1}, n, k, ProductSpec::Quantized::to_int8});
}

PackedWeight WeightLoader::embedding(const std::string& name, const ModelConfig& config) {
  const int n = config.vocab_size;
  const SourceMatrix part{name, n, 0, kPanelN};
  return state_->load({{&part, 1}, n, config.hidden_size, embedding_kept(config)});
}

ExpertWeights WeightLoader::swiglu(const SwigluNames& names, int hidden, int intermediate,
                                   Bias bias) {
  const SourceMatrix halves[] = {{names.gate, intermediate, 0, 2 * kPanelN},
                                 {names.up, intermediate, kPanelN, 2 * kPanelN}};
  ExpertWeights out;
  const auto n = static_cast<int>(2 * round_up(intermediate, 2 * kPanelN));
  out.gate_up = state_->load({.parts = halves, .n = n, .k = hidden, .bias = bias});
  out.down = matrix(names.down, hidden, intermediate, bias);
  return out;
}

LatentHeadWeights WeightLoader::latent_heads(const std::string& name, int heads, int nope,
                                             int value, int rank) {
  State& s = *state_;
  HOCKET_CHECK(heads > 0 && nope > 0 && value > 0 && rank > 0);
  const std::optional<MatrixReader> reader = s.open(name, heads * (nope + value), rank);
  if (!reader) return {};
  s.claimed.add(name);
  s.claimed.add_all(heads, nope, value, rank);
  const int64_t before = s.used;
  LatentHeadWeights out = s.claim_heads(heads, nope, value, rank);
  s.note_narrowing(*reader, out.key_up[0].format);
  note_change({&*reader, 1}, s.used - before, {out.key_up[0].format, 0}, s.changes);
  if (s.filling()) s.fill_heads(*reader, out);
  s.report();
  return out;
}

std::span<const float> WeightLoader::vector(const std::string& name, int n, float added) {
  state_->claimed.add_all(added != 0);
  const Floats all{name, {{n}, {1, n}, {1, 1, n, 1}}, n};
  return state_->load_floats({&all, 1}, [=](std::span<float> numbers) {
    for (float& x : numbers) x += added;
  });
}

std::span<const float> WeightLoader::taps(std::span<const Part> parts, int num_taps) {
  std::vector<Floats> all;
  for (const auto& [name, n] : parts) all.push_back({name, {{n, 1, num_taps}}, n * num_taps});
  return state_->load_floats(all, [=](std::span<float> numbers) {
    transpose_taps(numbers, static_cast<size_t>(num_taps));
  });
}

int64_t WeightLoader::bytes() const {
  return state_->used;
}

uint64_t WeightLoader::fingerprint() const {
  return state_->claimed.value();
}

Result<void> WeightLoader::status() const {
  state_->finish();
  return state_->error ? Result<void>(std::unexpected(*state_->error)) : Result<void>();
}

std::vector<std::string> WeightLoader::narrowed_from() const {
  return {state_->narrowed.begin(), state_->narrowed.end()};
}

RoundedScales WeightLoader::rounded_scales() const {
  state_->finish();
  const int64_t changed = state_->queue ? count_changed_scales(state_->queue->scratch()) : 0;
  return {state_->scales_narrowed, changed};
}

FormatChanges WeightLoader::format_changes() const {
  return state_->changes;
}

Buffer WeightLoader::take_memory() {
  state_->finish();
  return std::move(state_->memory);
}

}  // namespace hocket
