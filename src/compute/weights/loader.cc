#include "compute/weights/loader.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <set>

#include "compute/weights/random_weights.h"

namespace hocket {
namespace {

constexpr int64_t kAlignment = 64;
// Source bytes packed before their file pages are given back: what loading needs beyond the packed
// bytes.
constexpr int64_t kReleaseBytes = int64_t{32} << 20;
constexpr std::chrono::milliseconds kProgressEvery{50};

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t length : shape)
    text += (text.size() == 1 ? "" : ", ") + std::to_string(length);
  return text + "]";
}

template <class T>
void convert(StoredType type, const std::byte* from, int64_t count, T* to) {
  if (type == StoredType::f32) {
    for (int64_t i = 0; i < count; ++i) {
      float x;  // the file promises no alignment
      std::memcpy(&x, from + i * 4, 4);
      to[i] = from_float<T>(x);
    }
    return;
  }
  if (std::is_same_v<T, Bf16> && type == StoredType::bf16) {
    std::memcpy(to, from, count * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + i * 2, 2);
    to[i] = from_float<T>(type == StoredType::bf16 ? to_float(Bf16{bits}) : f16_to_float(bits));
  }
}

// One matrix of the files (or of the generator) on its way into a packed one.
struct Job {
  const std::string& name;
  int n = 0, k = 0;
  int row_begin = 0;         // in the packed matrix
  int rows_apart = kPanelN;  // packed rows between its panels: 2 panels where gate and up alternate
  void* packed = nullptr;

  // Its rows lie in pieces, one a packed panel; the first is short where it begins inside a panel.
  int first_piece() const { return kPanelN - row_begin % kPanelN; }
  int pieces() const {
    return n <= first_piece()
               ? 1
               : 1 + static_cast<int>(round_up(n - first_piece(), kPanelN)) / kPanelN;
  }
  int piece_begin(int piece) const {
    return piece == 0 ? 0 : std::min(n, first_piece() + (piece - 1) * kPanelN);
  }
  int packed_row(int piece) const {
    return piece == 0 ? row_begin : row_begin / kPanelN * kPanelN + piece * rows_apart;
  }
};

}  // namespace

struct WeightLoader::State {
  bool measuring = true;
  Options options;
  Buffer memory;
  int64_t used = 0, done = 0;
  std::optional<Error> error;
  std::set<std::string> narrowed;
  std::chrono::steady_clock::time_point reported;
  std::vector<std::vector<std::byte>> scratch;  // one a worker: a panel's rows, converted

  void* take(int64_t bytes);
  void report();
  std::optional<StoredTensor> find(const std::string& name, std::vector<int64_t> shape);
  PackedWeight claim(int n, int k);
  void fill(const Job& job);
  template <class T>
  void fill_pieces(const Job& job, const StoredTensor* source, int begin, int end);
  template <class T>
  T* scratch_of(int worker, int64_t count);
  template <class Body>
  void run(int tasks, Body body);
};

void* WeightLoader::State::take(int64_t bytes) {
  if (error) return nullptr;
  const int64_t offset = used;
  used += round_up(bytes, kAlignment);
  if (measuring) return nullptr;
  HOCKET_CHECK(used <= memory.bytes());  // the plan and the loading asked for different things
  return memory.data() + offset;
}

void WeightLoader::State::report() {
  if (measuring || error || !options.progress) return;
  const auto now = std::chrono::steady_clock::now();
  if (done < options.bytes && now - reported < kProgressEvery) return;
  reported = now;
  options.progress({done, options.bytes});
}

std::optional<StoredTensor> WeightLoader::State::find(const std::string& name,
                                                      std::vector<int64_t> shape) {
  Result<StoredTensor> found = options.source->find(name);
  if (!found) {
    error = std::move(found).error();
    return std::nullopt;
  }
  if (found->shape != shape) {
    error =
        hocket::error(ErrorCode::wrong_shape, "{} has the shape {}, but config.json asks for {}",
                      name, shape_text(found->shape), shape_text(shape))
            .with_fix("config.json and the weights are of different models: download both again");
    return std::nullopt;
  }
  const StoredType type = found->type;
  if (type != StoredType::f32 && type != StoredType::f16 && type != StoredType::bf16) {
    error =
        hocket::error(ErrorCode::unsupported_model, "{} is stored as {}, which is not supported",
                      name, stored_type_name(type))
            .with_fix("use a copy of the model in bfloat16, float16 or float32");
    return std::nullopt;
  }
  return *found;
}

template <class Body>
void WeightLoader::State::run(int tasks, Body body) {
  if (options.workers != nullptr) {
    options.workers->run(tasks, body);
  } else {
    for (int task = 0; task < tasks; ++task) body(task, 0);
  }
}

template <class T>
T* WeightLoader::State::scratch_of(int worker, int64_t count) {
  std::vector<std::byte>& bytes = scratch[worker];
  if (bytes.size() < count * sizeof(T)) bytes.resize(count * sizeof(T));
  return reinterpret_cast<T*>(bytes.data());
}

template <class T>
void WeightLoader::State::fill_pieces(const Job& job, const StoredTensor* source, int begin,
                                      int end) {
  run(end - begin, [&](int task, int worker) {
    const int piece = begin + task;
    const int row = job.piece_begin(piece);
    const int rows = job.piece_begin(piece + 1) - row;
    const int64_t count = int64_t{rows} * job.k;
    T* converted;
    if (source != nullptr) {
      converted = scratch_of<T>(worker, count);
      const int64_t offset = int64_t{row} * job.k * stored_type_size(source->type);
      convert(source->type, source->data + offset, count, converted);
    } else {
      // Room for the numbers as made and as converted.
      auto* made = scratch_of<float>(worker, 2 * count);
      random_rows(options.seed, job.name, row, {made, rows, job.k});
      converted = reinterpret_cast<T*>(made + count);
      for (int64_t i = 0; i < count; ++i) converted[i] = from_float<T>(made[i]);
    }
    pack_rows<T>(View<const T>(converted, rows, job.k), job.packed_row(piece),
                 static_cast<T*>(job.packed));
  });
}

void WeightLoader::State::fill(const Job& job) {
  std::optional<StoredTensor> source;
  if (options.source != nullptr) {
    source = find(job.name, {job.n, job.k});
    if (!source) return;
    if (options.dtype == DType::bf16 && source->type != StoredType::bf16)
      narrowed.emplace(stored_type_name(source->type));
  }
  const int64_t row_bytes = int64_t{job.k} * (source ? stored_type_size(source->type) : 4);
  const int step =
      static_cast<int>(std::clamp<int64_t>(kReleaseBytes / (kPanelN * row_bytes), 1, job.pieces()));
  for (int begin = 0; begin < job.pieces(); begin += step) {
    const int end = std::min(begin + step, job.pieces());
    with_dtype(options.dtype, [&](auto t) {
      fill_pieces<decltype(t)>(job, source ? &*source : nullptr, begin, end);
    });
    const int64_t first = job.piece_begin(begin), rows = job.piece_begin(end) - first;
    if (source)
      options.source->done_with(
          {source->type, {rows, job.k}, source->data + first * row_bytes, rows * row_bytes});
    done += rows * job.k * size_of(options.dtype);
    report();
  }
}

PackedWeight WeightLoader::State::claim(int n, int k) {
  HOCKET_CHECK(n > 0 && k > 0);
  PackedWeight packed{
      .format = options.dtype == DType::f32 ? WeightFormat::f32 : WeightFormat::bf16,
      .n = n,
      .k = k};
  packed.data = take(packed.bytes());
  return packed;
}

WeightLoader::WeightLoader() : state_(std::make_unique<State>()) {}
WeightLoader::WeightLoader(WeightLoader&&) noexcept = default;
WeightLoader::~WeightLoader() = default;

WeightLoader WeightLoader::measuring(Options options) {
  HOCKET_CHECK(options.dtype == DType::bf16 || options.dtype == DType::f32);
  WeightLoader loader;
  loader.state_->options = std::move(options);
  return loader;
}

Result<WeightLoader> WeightLoader::loading(Options options) {
  WeightLoader loader = measuring({.dtype = options.dtype});
  State& s = *loader.state_;
  s.measuring = false;
  s.options = std::move(options);
  s.scratch.resize(s.options.workers == nullptr ? 1 : s.options.workers->size());
  HOCKET_TRY(s.memory, Buffer::allocate(s.options.bytes));
  return loader;
}

PackedWeight WeightLoader::matrix(const std::string& name, int n, int k, Bias) {
  const Part part{name, n};
  return stacked({&part, 1}, k);
}

PackedWeight WeightLoader::stacked(std::span<const Part> parts, int k, Bias) {
  State& s = *state_;
  int n = 0;
  for (const Part& part : parts) n += part.n;
  const PackedWeight packed = s.claim(n, k);
  if (s.measuring) return packed;
  int row = 0;
  for (const Part& part : parts) {
    if (s.error) break;
    s.fill({part.name, part.n, k, row, kPanelN, const_cast<void*>(packed.data)});
    row += part.n;
  }
  s.done = s.error ? s.done : s.used;  // the padding counts
  s.report();
  return packed;
}

ExpertWeights WeightLoader::swiglu(const std::string& gate, const std::string& up,
                                   const std::string& down, int hidden, int intermediate, Bias) {
  State& s = *state_;
  ExpertWeights out;
  out.gate_up = s.claim(static_cast<int>(2 * round_up(intermediate, 32)), hidden);
  void* packed = const_cast<void*>(out.gate_up.data);
  for (const auto& [name, begin] : {std::pair(&gate, 0), std::pair(&up, kPanelN)})
    if (!s.measuring && !s.error) s.fill({*name, intermediate, hidden, begin, 2 * kPanelN, packed});
  out.down = matrix(down, hidden, intermediate);
  return out;
}

PackedWeight WeightLoader::plain_matrix(const std::string& name, int n, int k) {
  return matrix(name, n, k);
}

LatentHeadWeights WeightLoader::latent_heads(const std::string&, int, int, int, int) {
  return {};
}

std::span<const float> WeightLoader::vector(const std::string& name, int n) {
  State& s = *state_;
  HOCKET_CHECK(n > 0);
  auto* out = static_cast<float*>(s.take(int64_t{n} * 4));
  if (s.measuring || s.error) return {};
  if (s.options.source == nullptr) {
    random_rows(s.options.seed, name, 0, {out, 1, n});
  } else if (const std::optional<StoredTensor> source = s.find(name, {n})) {
    convert(source->type, source->data, n, out);
    s.options.source->done_with(*source);
  }
  if (s.error) return {};
  s.done = s.used;
  s.report();
  return {out, static_cast<size_t>(n)};
}

int64_t WeightLoader::bytes() const {
  return state_->used;
}

Result<void> WeightLoader::status() const {
  if (state_->error) return std::unexpected(*state_->error);
  return {};
}

std::vector<std::string> WeightLoader::narrowed_from() const {
  return {state_->narrowed.begin(), state_->narrowed.end()};
}

Buffer WeightLoader::take_memory() {
  return std::move(state_->memory);
}

}  // namespace hocket
