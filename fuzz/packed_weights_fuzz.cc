// Fuzzes the readers of quantized weights: the tensors of a file, plain, packed, or with the
// experts of a layer stacked, are loaded or refused with a message, and what is loaded takes the
// bytes that were measured.
//
// The first byte chooses the layout that config.json names, the second the type in memory and how
// experts are stacked; a safetensors file follows.
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compute/weights/loader.h"
#include "compute/weights/safetensors.h"
#include "compute/weights/stacked_experts.h"

using namespace hocket;

namespace {

constexpr int kRows = 16, kInputs = 64, kHidden = 32, kWidth = 32, kNumExperts = 2;

class FileInMemory final : public WeightSource {
 public:
  FileInMemory(const SafetensorsHeader& header, std::span<const std::byte> bytes)
      : header_(header), bytes_(bytes) {}

  Result<StoredTensor> find(std::string_view name) const override {
    const auto found = header_.tensors.find(name);
    if (found == header_.tensors.end())
      return fail(error(ErrorCode::missing_tensor, "{} is missing", name));
    const SafetensorsEntry& entry = found->second;
    return StoredTensor{.type = entry.type,
                        .shape = entry.shape,
                        .data = bytes_.data() + header_.data_offset + entry.begin,
                        .bytes = entry.end - entry.begin};
  }
  bool has(std::string_view name) const override { return header_.tensors.contains(name); }
  std::vector<std::string> names() const override { return {}; }

 private:
  const SafetensorsHeader& header_;
  std::span<const std::byte> bytes_;
};

using Load = std::function<void(WeightLoader&)>;

const std::array kLoads = {
    Load([](WeightLoader& l) { l.matrix("m.weight", kRows, kInputs); }),
    Load([](WeightLoader& l) { l.matrix("m.weight", kRows, kInputs, Bias::present); }),
    Load([](WeightLoader& l) { l.plain_matrix("m.weight", kRows, kInputs); }),
    Load([](WeightLoader& l) {
      const WeightLoader::Part parts[] = {{"m.weight", kRows}, {"n.weight", kRows}};
      l.stacked(parts, kInputs);
    }),
    Load([](WeightLoader& l) {
      for (const std::string expert : {"experts.0.", "experts.1."})
        l.swiglu(
            {expert + "gate_proj.weight", expert + "up_proj.weight", expert + "down_proj.weight"},
            kHidden, kWidth, Bias::present);
    }),
    Load([](WeightLoader& l) { l.latent_heads("m.weight", 2, 4, 4, kInputs); }),
    Load([](WeightLoader& l) { l.head("m.weight", kRows, kInputs); }),
    Load([](WeightLoader& l) { l.vector("m.bias", kRows); })};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(2);
  const auto header = parse_safetensors_header(bytes, std::ssize(bytes));
  if (!header) return 0;
  constexpr int kNumLayouts = static_cast<int>(QuantConfig::Layout::nvfp4) + 1;
  WeightLoader::Options options{.dtype = data[1] % 2 == 0 ? DType::bf16 : DType::f32};
  options.stored.layout = static_cast<QuantConfig::Layout>(data[0] % kNumLayouts);
  options.stored.group = 32;
  if (data[1] & 2) options.quantize = data[1] & 4 ? WeightFormat::int8 : WeightFormat::int4;
  MoeConfig moe;
  moe.num_experts = kNumExperts;
  moe.stacked = static_cast<MoeConfig::Stacked>(data[1] >> 3 & 3);
  moe.interleaved = (data[1] & 32) != 0;
  const StackedExperts source(std::make_unique<FileInMemory>(*header, bytes), moe);
  options.source = &source;
  for (const Load& load : kLoads) {
    WeightLoader measured = WeightLoader::measuring(options);
    load(measured);
    if (!measured.status()) {
      HOCKET_CHECK(!measured.status().error().message.empty());
      continue;
    }
    WeightLoader::Options filled = options;
    filled.bytes = measured.bytes();
    auto loaded = WeightLoader::loading(filled);
    HOCKET_CHECK(loaded.has_value());
    load(*loaded);
    if (loaded->status())
      HOCKET_CHECK(loaded->bytes() == measured.bytes());
    else
      HOCKET_CHECK(!loaded->status().error().message.empty());
  }
  return 0;
}
