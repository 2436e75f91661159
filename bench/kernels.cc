#include "bench/kernels.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "bench/delta_net_case.h"
#include "compute/kernels/choose.h"
#include "compute/kernels/experts.h"
#include "compute/kernels/linear.h"
#include "engine/forecast/limits.h"

namespace hocket {
namespace {

// Weights lie in one buffer so large that each call reads a part that no cache holds.
constexpr int64_t kWeightBytes = int64_t{320} << 20;

constexpr int kHidden = 1024, kIntermediate = 512, kNumExperts = 32, kTopK = 4;
constexpr int kMaxRows = 512, kMaxK = 2048, kMaxN = 4096;
constexpr int kRoutings = 8;

struct KernelLimits {
  double read = 0, bf16 = 0, int8 = 0, fma = 0;  // bytes a second, operations a second
  std::string_view bf16_name;                    // the instruction
};

double best_seconds_of(const std::function<void()>& body) {
  double best = seconds_of(body);
  for (int run = 0; run < 4; ++run) best = std::min(best, seconds_of(body));
  return best;
}

struct LinearShape {
  int rows, k, n;
  WeightFormat format = WeightFormat::bf16;

  // Returns the values of k that share a scale: all k of a channel for int8, 128 for fp8 and int4,
  // 16 for nvfp4, 0 for bf16.
  int group() const {
    if (format == WeightFormat::nvfp4) return kNvfp4Group;
    if (format == WeightFormat::q8_0 || has_block_scales(format)) return kGgufGroup;
    return format == WeightFormat::bf16 ? 0 : format == WeightFormat::int8 ? k : kFp8Group;
  }
  std::string name() const {
    return fmt::format("linear rows={} k={} n={} {}", rows, k, n,
                       format == WeightFormat::bf16 ? "bf16" : weight_format_name(format));
  }
};

// Owns the memory and the backends that all cases share.
class KernelBench {
 public:
  static Result<KernelBench> create(Isa isa, WorkerPool& workers);

  Result<std::vector<KernelCase>> cases();

 private:
  KernelBench() = default;
  KernelCase linear_case(const LinearShape& shape);
  KernelCase experts_case(int tokens);
  double check_linear(const LinearShape& shape);
  double check_experts(const std::vector<int32_t>& offsets);

  PackedWeight weight(int n, int k, int64_t offset_bytes) const {
    return {.data = weights_.data() + offset_bytes, .n = n, .k = k};
  }
  PackedWeight weight(const LinearShape& shape, int call) const;
  MatrixView matrix(const Buffer& memory, DType dtype, int64_t rows, int64_t cols) const {
    return {memory.data(), dtype, rows, cols, cols};
  }
  ExpertsCall experts_call(int layer, std::span<const int32_t> offsets);

  std::vector<Backend> backends_;  // [0] is measured, [1] is ref
  Buffer weights_, zeros_, x_, middle_, y_, ref_y_;
  std::vector<ExpertWeights> experts_;  // [kLayers * kNumExperts]
};

constexpr int64_t kExpertBytes = int64_t{3} * kHidden * kIntermediate * 2;
constexpr int kLayers = static_cast<int>(kWeightBytes / (kExpertBytes * kNumExperts));

void fill_normal(const Buffer& memory, float scale) {
  // Repeats a short run of random numbers, since the speed does not depend on values. No byte is a
  // NaN of fp8.
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, scale);
  std::vector<Bf16> numbers(1 << 16);
  for (Bf16& x : numbers) {
    x = to_bf16(normal(random));
    if ((x.bits & 0x7f) == 0x7f) x.bits ^= 1;
  }
  const int64_t run = static_cast<int64_t>(numbers.size()) * 2;
  for (int64_t at = 0; at < memory.bytes(); at += run)
    std::memcpy(memory.data() + at, numbers.data(), std::min(run, memory.bytes() - at));
}

Result<KernelBench> KernelBench::create(Isa isa, WorkerPool& workers) {
  KernelBench bench;
  ScratchNeed need{kMaxRows, kMaxK, 1, {.num_heads = 1, .key_dim = 32, .value_dim = 32}};
  need.delta_net = kBenchNet;
  for (Isa level : {isa, Isa::ref}) {
    HOCKET_TRY(Backend backend, Backend::create(level, workers, scratch_bytes_for(need)));
    bench.backends_.push_back(std::move(backend));
  }
  HOCKET_TRY(bench.weights_, Buffer::allocate(kWeightBytes));
  HOCKET_TRY(bench.x_, Buffer::allocate(int64_t{kMaxRows} * kTopK * kMaxK * 2));
  HOCKET_TRY(bench.middle_, Buffer::allocate(int64_t{kMaxRows} * kTopK * kIntermediate * 2));
  HOCKET_TRY(bench.y_, Buffer::allocate(int64_t{kMaxRows} * kMaxN * 4));
  HOCKET_TRY(bench.ref_y_, Buffer::allocate(int64_t{kMaxRows} * kMaxN * 4));
  HOCKET_TRY(bench.zeros_, Buffer::allocate(int64_t{kMaxN} * kMaxK / kGgufGroup));
  std::memset(bench.zeros_.data(), 8, bench.zeros_.bytes());
  fill_normal(bench.weights_, 0.05f);
  fill_normal(bench.x_, 1.0f);
  for (int e = 0; e < kLayers * kNumExperts; ++e) {
    const int64_t at = e * kExpertBytes;
    bench.experts_.push_back(
        {bench.weight(2 * kIntermediate, kHidden, at),
         bench.weight(kHidden, kIntermediate, at + int64_t{2} * kIntermediate * kHidden * 2)});
  }
  return bench;
}

// Returns another part of memory for each call: numbers, then scales. Zeros are the same for all,
// since those of int4 must be numbers of it.
PackedWeight KernelBench::weight(const LinearShape& shape, int call) const {
  PackedWeight w = {.format = shape.format, .n = shape.n, .k = shape.k, .group = shape.group()};
  w.data = weights_.data() + call % (kWeightBytes / w.bytes()) * w.bytes();
  if (w.group == 0) return w;
  const std::byte* scales = static_cast<const std::byte*>(w.data) + w.data_bytes();
  w.scales = scales;
  if (w.zero_bytes() > 0) w.zeros = reinterpret_cast<const uint8_t*>(zeros_.data());
  return w;
}

double KernelBench::check_linear(const LinearShape& shape) {
  const int rows = shape.rows, k = shape.k, n = shape.n;
  const PackedWeight w = weight(shape, 0);
  linear(backends_[0], matrix(x_, DType::bf16, rows, k), w,
         matrix(y_, DType::f32, rows, n).as<float>());
  // ref takes the same time for each element, so a corner of the last rows stands for all.
  PackedWeight corner = w;
  corner.n = 256;
  const int some_rows = std::min(rows, 4);
  const View<float> expected = matrix(ref_y_, DType::f32, some_rows, corner.n).as<float>();
  const MatrixView x = matrix(x_, DType::bf16, rows, k).slice_rows(rows - some_rows, some_rows);
  const double seconds = best_seconds_of([&] { linear(backends_[1], x, corner, expected); });
  const View<float> y = matrix(y_, DType::f32, rows, n).as<float>();
  for (int row = 0; row < some_rows; ++row)
    if (std::memcmp(y.row(rows - some_rows + row), expected.row(row), corner.n * 4) != 0) return -1;
  return seconds / (2.0 * some_rows * corner.n * k);
}

KernelCase KernelBench::linear_case(const LinearShape& shape) {
  KernelCase c;
  c.name = shape.name();
  if (shape.format != WeightFormat::bf16) c.twin = LinearShape{shape.rows, shape.k, shape.n}.name();
  c.calls = shape.rows <= 16 ? 24 : shape.rows <= 64 ? 8 : 2;
  c.run = [=, this](int call) -> CallWork {
    const PackedWeight w = weight(shape, call);
    linear(backends_[0], matrix(x_, DType::bf16, shape.rows, shape.k), w,
           matrix(y_, DType::f32, shape.rows, shape.n).as<float>());
    return {static_cast<double>(w.bytes()), 2.0 * shape.rows * shape.k * shape.n,
            is_integer(w.format) ? PeakUnit::int8 : PeakUnit::bf16};
  };
  c.check = [=, this] { return check_linear(shape); };
  return c;
}

// Gives every token kTopK distinct random experts. Returns the first row of each expert's rows, and
// the number of all rows at the end [kNumExperts + 1].
std::vector<int32_t> random_offsets(int tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> counts(kNumExperts), all(kNumExperts), offsets = {0};
  for (int e = 0; e < kNumExperts; ++e) all[e] = e;
  for (int token = 0; token < tokens; ++token) {
    std::shuffle(all.begin(), all.end(), random);
    for (int slot = 0; slot < kTopK; ++slot) ++counts[all[slot]];
  }
  for (int32_t count : counts) offsets.push_back(offsets.back() + count);
  return offsets;
}

ExpertsCall KernelBench::experts_call(int layer, std::span<const int32_t> offsets) {
  const int rows = offsets.back();
  return {matrix(x_, DType::bf16, rows, kHidden),
          offsets,
          std::span(experts_).subspan(layer * kNumExperts, kNumExperts),
          kIntermediate,
          matrix(middle_, DType::bf16, rows, kIntermediate),
          matrix(y_, DType::bf16, rows, kHidden)};
}

double KernelBench::check_experts(const std::vector<int32_t>& offsets) {
  run_experts(backends_[0], experts_call(0, offsets));
  // ref computes the last rows of the last expert that has rows.
  const auto end = std::lower_bound(offsets.begin(), offsets.end(), offsets.back());
  const auto expert = static_cast<size_t>(end - offsets.begin()) - 1;
  const int some = std::min(2, offsets[expert + 1] - offsets[expert]);
  std::vector<int32_t> only(offsets.size());
  for (size_t e = expert + 1; e < only.size(); ++e) only[e] = some;
  ExpertsCall call = experts_call(0, only);
  const int first = offsets.back() - some;
  call.x = matrix(x_, DType::bf16, offsets.back(), kHidden).slice_rows(first, some);
  call.y = matrix(ref_y_, DType::bf16, some, kHidden);
  const double seconds = best_seconds_of([&] { run_experts(backends_[1], call); });
  const MatrixView y = matrix(y_, DType::bf16, offsets.back(), kHidden).slice_rows(first, some);
  if (std::memcmp(y.data, call.y.data, int64_t{some} * kHidden * 2) != 0) return -1;
  return seconds / (2.0 * some * 3 * kHidden * kIntermediate);
}

KernelCase KernelBench::experts_case(int tokens) {
  KernelCase c;
  c.name = fmt::format("experts tokens={} e={} top={} hidden={} intermediate={} bf16", tokens,
                       kNumExperts, kTopK, kHidden, kIntermediate);
  c.calls = tokens <= 4 ? 16 : tokens <= 64 ? 6 : 2;
  std::vector<std::vector<int32_t>> routings;
  for (int i = 0; i < kRoutings; ++i) routings.push_back(random_offsets(tokens, i));
  c.check = [this, offsets = routings[0]] { return check_experts(offsets); };
  c.run = [this, routings = std::move(routings)](int call) -> CallWork {
    const std::vector<int32_t>& offsets = routings[call % kRoutings];
    run_experts(backends_[0], experts_call(call % kLayers, offsets));
    double touched = 0;
    for (int e = 0; e < kNumExperts; ++e) touched += offsets[e + 1] > offsets[e] ? 1 : 0;
    return {touched * kExpertBytes, 2.0 * offsets.back() * 3 * kHidden * kIntermediate};
  };
  return c;
}

Result<std::vector<KernelCase>> KernelBench::cases() {
  std::vector<KernelCase> list;
  for (int rows : {1, 2, 4, 8, 16, 64, 256, 512}) list.push_back(linear_case({rows, 2048, 2048}));
  for (int rows : {1, 512}) list.push_back(linear_case({rows, 1024, 4096}));
  // mxfp4 is widened as nvfp4 is; the bytes of these weights would overflow as its scales.
  for (WeightFormat format :
       {WeightFormat::fp8, WeightFormat::int8, WeightFormat::int4, WeightFormat::nvfp4,
        WeightFormat::q8_0, WeightFormat::q4_k, WeightFormat::q5_k, WeightFormat::q6_k,
        WeightFormat::iq4, WeightFormat::q3_k})
    for (int rows : {1, 4, 16, 256}) list.push_back(linear_case({rows, 2048, 2048, format}));
  for (int tokens : {1, 4, 16, 64, 512}) list.push_back(experts_case(tokens));
  HOCKET_TRY(std::vector<KernelCase> nets, delta_net_cases(backends_[0], backends_[1]));
  std::ranges::move(nets, std::back_inserter(list));
  return list;
}

// Returns the share of the binding limit that a sample reached; `limit` becomes its name.
double fraction_of(const KernelSample& sample, const KernelLimits& limits, std::string& limit) {
  const auto [peak, unit] =
      sample.work.unit == PeakUnit::int8  ? std::pair(limits.int8, std::string_view("int8"))
      : sample.work.unit == PeakUnit::fma ? std::pair(limits.fma, std::string_view("FMA"))
                                          : std::pair(limits.bf16, limits.bf16_name);
  const double read = sample.work.bytes / limits.read, compute = sample.work.operations / peak;
  limit = read > compute ? "read bandwidth" : fmt::format("{} peak", unit);
  return std::max(read, compute) / sample.seconds;
}

// Returns the value below which a share q of `values` lies, not interpolated.
double lower_quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

double median_us(const KernelCase& c) {
  std::vector<double> us;
  for (const KernelSample& sample : c.samples) us.push_back(sample.seconds * 1e6);
  return lower_quantile(us, 0.5);
}

// Returns the speed of a case relative to its twin in bf16; 0 if it has none.
double ratio_to_bf16(const KernelCase& c, const std::vector<KernelCase>& all) {
  const auto twin = std::ranges::find(all, c.twin, &KernelCase::name);
  return twin == all.end() ? 0 : median_us(*twin) / median_us(c);
}

struct Ratios {
  double ref_seconds;  // time of one operation in ref; negative: bits differ
  double bf16;         // 0: none
};

void print(const KernelCase& c, const Ratios& to, const KernelLimits& limits, bool json) {
  std::string limit;
  std::vector<double> us, fractions, ratios;
  for (const KernelSample& sample : c.samples) {
    us.push_back(sample.seconds * 1e6);
    fractions.push_back(fraction_of(sample, limits, limit));
    ratios.push_back(to.ref_seconds * sample.work.operations / sample.seconds);
  }
  const double median = median_us(c), low = lower_quantile(us, 0.1), high = lower_quantile(us, 0.9);
  const bool same = to.ref_seconds > 0;
  const double ratio = same ? lower_quantile(ratios, 0.5) : 0,
               fraction = lower_quantile(fractions, 0.5);
  if (json) {
    fmt::print(R"({{"case":"{}","us":{:.1f},"us_p10":{:.1f},"us_p90":{:.1f},"ref_ratio":{:.2f},)"
               R"("bf16_ratio":{:.2f},"fraction":{:.3f},"limit":"{}","same_bits":{}}})"
               "\n",
               c.name, median, low, high, ratio, to.bf16, fraction, limit, same);
  } else {
    fmt::print("{} | {:.0f} us ({:.0f}-{:.0f}) | {}{} | {:.2f} of {}\n", c.name, median, low, high,
               same ? fmt::format("{:.1f}x ref", ratio) : "BITS DIFFER from ref",
               to.bf16 > 0 ? fmt::format(" | {:.2f}x bf16", to.bf16) : "", fraction, limit);
  }
}

void print(const KernelLimits& limits, Isa isa, int threads, bool json) {
  if (json) {
    fmt::print(R"({{"isa":"{}","threads":{},"read_gb_s":{:.2f},)"
               R"("peak":"{}","peak_gflop_s":{:.1f},"int8_gop_s":{:.1f},"fma_gflop_s":{:.1f}}})"
               "\n",
               isa_name(isa), threads, limits.read / 1e9, limits.bf16_name, limits.bf16 / 1e9,
               limits.int8 / 1e9, limits.fma / 1e9);
  } else {
    fmt::print(
        "limits isa={} threads={} | read {:.1f} GB/s | {} {:.0f} GFLOP/s | int8 {:.0f} GOP/s "
        "| FMA {:.0f} GFLOP/s\n",
        isa_name(isa), threads, limits.read / 1e9, limits.bf16_name, limits.bf16 / 1e9,
        limits.int8 / 1e9, limits.fma / 1e9);
  }
}

int failed(const Error& e) {
  fmt::print(stderr, "{}\n", describe(e));
  return exit_status(e.code);
}

}  // namespace

int bench_kernels(const BenchKernelsOptions& options) {
  const auto isa = choose_isa();
  if (!isa) return failed(isa.error());
  const Machine machine = inspect_machine();
  const int threads = options.threads > 0 ? options.threads : machine.num_cores;
  WorkerPool workers({threads, machine.cpus});
  auto bench = KernelBench::create(*isa, workers);
  if (!bench) return failed(bench.error());
  auto made = bench->cases();
  if (!made) return failed(made.error());
  std::vector<KernelCase>& cases = *made;
  std::vector<double> ref_seconds;
  for (const KernelCase& c : cases) ref_seconds.push_back(c.check());

  // Cases and limits take turns, so that other load of this machine slows all alike.
  KernelLimits limits;
  limits.bf16_name = bf16_peak_name(*isa);
  const Isa fma_level = std::min(*isa, Isa::avx512);
  const int rounds = options.quick ? 3 : 12;
  for (int round = 0; round < rounds; ++round) {
    limits.read = std::max(limits.read, measured_read_bandwidth(workers));
    limits.bf16 = std::max(limits.bf16, measured_bf16_peak(*isa, workers));
    limits.int8 = std::max(limits.int8, measured_integer_peak(*isa, workers));
    limits.fma = std::max(limits.fma, measured_bf16_peak(fma_level, workers));
    for (KernelCase& c : cases)
      for (int i = 0; i < c.calls; ++i) {
        KernelSample sample;
        sample.seconds = seconds_of([&] { sample.work = c.run(round * c.calls + i); });
        c.samples.push_back(sample);
      }
  }
  print(limits, *isa, threads, options.json);
  bool same = true;
  for (size_t i = 0; i < cases.size(); ++i) {
    print(cases[i], {ref_seconds[i], ratio_to_bf16(cases[i], cases)}, limits, options.json);
    same = same && ref_seconds[i] > 0;
  }
  return same ? 0 : 1;
}

}  // namespace hocket
