// One rank's share of a model, with all it needs to play passes, and a script of passes that any
// number of ranks can play. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <string>

#include "compute/kernels/choose.h"
#include "compute/models/model.h"
#include "compute/moe/placement.h"
#include "compute/weights/hf_config.h"
#include "compute/weights/stacked_experts.h"

namespace hocket::testing {

inline constexpr int kPageTokens = 32;

// Returns the value; an error fails the test.
template <class T>
T value_of(Result<T> result) {
  if (!result) ADD_FAILURE() << describe(result.error());
  HOCKET_CHECK(result.has_value());
  return *std::move(result);
}

// The weights that one rank holds.
struct LoadedModel {
  Buffer memory;
  Model model;

  static LoadedModel load(const std::filesystem::path& folder, DType dtype,
                          const HeldExperts& experts) {
    const ModelConfig config = value_of(read_hf_config(folder));
    const std::unique_ptr<WeightSource> source = value_of(open_model_weights(folder, config.moe));
    WorkerPool workers({});
    WeightLoader::Options options = {
        .source = source.get(), .dtype = dtype, .stored = config.quant, .workers = &workers};
    WeightLoader plan = WeightLoader::measuring(options);
    HOCKET_CHECK(Model::load(config, experts, plan).has_value());
    options.bytes = plan.bytes();
    WeightLoader loader = value_of(WeightLoader::loading(options));
    Model model = value_of(Model::load(config, experts, loader));
    HOCKET_CHECK(loader.bytes() == plan.bytes());
    return {loader.take_memory(), std::move(model)};
  }
};

// The memory and workers of one rank. The thread that plays must create it.
struct RankMachine {
  RankMachine(const ModelConfig& model, DType dtype, const WorkLimits& limits, int num_pages)
      : workers({}),
        backend(value_of(Backend::create(value_of(choose_isa()), workers,
                                         scratch_bytes_for(scratch_need(model, dtype, limits))))),
        pages(value_of(PagePool::create(shapes_of(model, dtype), num_pages))),
        states(make_states(model, dtype)),
        work(value_of(WorkBuffers::create(model, dtype, limits))) {
    reserve_halves(halves, limits.max_rows, limits.max_rows);
    batch.reserve(limits.max_rows, limits.max_rows);
  }
  static ScratchNeed scratch_need(const ModelConfig& model, DType dtype, const WorkLimits& limits) {
    ScratchNeed need = {
        .max_rows = limits.max_rows * std::max(1, limits.exchange.num_ranks),
        .max_k =
            std::max({model.hidden_size, attended_columns(model), model.delta_net.value_columns(),
                      model.mla.q_rank, model.mla.kv_rank, model.intermediate_size,
                      model.moe.intermediate_size, model.moe.shared_intermediate_size}),
        .dtype = dtype,
        .num_experts = model.moe.num_experts,
        .delta_net = model.delta_net};
    set_attention_need(model, dtype, kPageTokens, need);
    return need;
  }

  // One pool has the pages of all layers, since the script has no pages of windows.
  static std::vector<KvShape> shapes_of(const ModelConfig& model, DType dtype) {
    const KvShapes apart = kv_shapes_apart(model, dtype, kPageTokens);
    auto full = apart.full.begin(), windowed = apart.windowed.begin();
    std::vector<KvShape> shapes;
    for (int layer = 0; layer < model.num_layers; ++layer)
      if (!model.is_linear(layer))
        shapes.push_back(model.is_windowed(layer) ? *windowed++ : *full++);
    return shapes;
  }

  // One state and one block for each sequence of the script.
  static std::optional<StatePool> make_states(const ModelConfig& model, DType dtype);

  WorkerPool workers;
  Backend backend;
  PagePool pages;
  std::optional<StatePool> states;
  WorkBuffers work;
  std::array<Half, kMaxHalves> halves;
  ForwardBatch batch;
};

// Sequences of known tokens, and how many rows each has in every step: chunks, decode rows beside
// them, decode rows alone, and steps in which most sequences have no rows.
struct Script {
  static constexpr int kSequences = 5;
  static constexpr std::array<int, kSequences> kPromptLens = {5, 1, 40, 17, 33};
  static constexpr std::array<std::array<int, kSequences>, 6> kSteps = {{{5, 1, 24, 17, 9},
                                                                         {1, 1, 16, 1, 24},
                                                                         {1, 1, 1, 1, 1},
                                                                         {0, 0, 1, 1, 1},
                                                                         {1, 0, 0, 0, 0},
                                                                         {0, 1, 1, 0, 1}}};
  static constexpr int kMaxRows = 64, kPagesEach = 2;
  // The last step that has chunks.
  static constexpr int kLastPrefill = 1;

  // [sequence][position] all bits of the final norm and the logits.
  using Bits = std::array<std::vector<std::string>, kSequences>;

  static void fill(int step, std::span<const int> mine, int vocabulary, ForwardBatch& batch) {
    static const std::vector<PageId> pages = [] {
      std::vector<PageId> ids;
      for (int page = 0; page < kSequences * kPagesEach; ++page) ids.push_back(PageId{page});
      return ids;
    }();
    batch.clear();
    for (const int sequence : mine) {
      int begin = 0;
      for (int before = 0; before < step; ++before) begin += kSteps[before][sequence];
      const int rows = kSteps[step][sequence];
      if (rows == 0) continue;
      const auto own = std::span(pages).subspan(sequence * kPagesEach, kPagesEach);
      batch.sequences.push_back(
          {.row_begin = batch.num_rows(),
           .num_rows = rows,
           .first_position = begin,
           .form = begin < kPromptLens[sequence] ? MlaForm::expanded : MlaForm::absorbed,
           .pages = own});
      static constexpr std::array<StateSlot, kSequences> kStates = {
          {{1 << 20, 0}, {1 << 20, 1}, {1 << 20, 2}, {1 << 20, 3}, {1 << 20, 4}}};
      batch.delta.push_back({.row_begin = batch.num_rows(),
                             .num_rows = rows,
                             .first_position = begin,
                             .block = sequence,
                             .load_state_at = begin == 0 ? 0 : -1,
                             .states = std::span(kStates).subspan(sequence, 1)});
      for (int i = begin; i < begin + rows; ++i) {
        const PageId page = own[i / kPageTokens];
        batch.output_rows.push_back(batch.num_rows());
        batch.ids.push_back(TokenId{(sequence * 7919 + i * i * 31 + i * 17) % vocabulary});
        batch.positions.push_back(i);
        batch.slots.push_back({page, i % kPageTokens});
        if (i % kPageTokens == 0) batch.fresh_pages.push_back(page);
      }
    }
    batch.mode = batch.num_rows() == 0 ? ForwardMode::idle : ForwardMode::mixed;
  }
};

inline std::optional<StatePool> RankMachine::make_states(const ModelConfig& model, DType dtype) {
  if (model.num_linear_layers() == 0) return std::nullopt;
  return value_of(StatePool::create({.shape = delta_shape_of(model, dtype),
                                     .num_layers = model.num_linear_layers(),
                                     .num_states = Script::kSequences,
                                     .num_blocks = Script::kSequences}));
}

// The plan of a step; all but first_rows is equal on all ranks.
struct StepPlan {
  Phase phase = Phase::prefill;
  const Order* order = &serial_order();
  int parts = 1, waves = 1;
  int first_rows = -1;  // rows of the first of two halves here; -1: as split_for() says
};

struct Player {
  const Model& model;
  RankMachine& machine;
  Dispatcher& dispatcher;
  std::span<const int> mine;  // this rank's sequences
  ForwardProbe* probe = nullptr;

  // Returns this rank's rows in a step.
  int num_rows(int step) const {
    int rows = 0;
    for (const int sequence : mine) rows += Script::kSteps[step][sequence];
    return rows;
  }
  Result<void> play(int step, const StepPlan& how) const {
    Script::fill(step, mine, model.config().vocab_size, machine.batch);
    return model.forward(
        machine.batch,
        {.backend = machine.backend,
         .work = machine.work,
         .pages = machine.pages,
         .window_pages = nullptr,
         .states = machine.states ? &*machine.states : nullptr,
         .dispatcher = dispatcher,
         .order = *how.order,
         .halves = std::span(machine.halves).first(how.order->num_halves),
         .split = how.first_rows < 0 ? split_for(machine.batch, {}) : SplitRule{how.first_rows},
         .id = {.step = static_cast<uint64_t>(step),
                .phase = how.phase,
                .parts = how.parts,
                .waves = how.waves},
         .probe = probe});
  }
  // Adds the results of the step that was just played.
  void add_bits(Script::Bits& bits) const {
    const int rows = machine.batch.num_rows();
    const View<float> logits = model.logits(machine.backend, machine.work, 0, rows);
    const MatrixView& hidden = machine.work.hidden;
    const int64_t hidden_bytes = hidden.cols * size_of(hidden.dtype);
    for (const AttentionSequence& sequence : machine.batch.sequences)
      for (int row = sequence.row_begin; row < sequence.row_begin + sequence.num_rows; ++row) {
        std::string out(static_cast<const char*>(hidden.slice_rows(row, 1).data), hidden_bytes);
        out.append(reinterpret_cast<const char*>(logits.row(row)), logits.cols * sizeof(float));
        bits[value(sequence.pages[0]) / Script::kPagesEach].push_back(std::move(out));
      }
  }
};

}  // namespace hocket::testing
