#include "engine/runner/runner.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <ranges>
#include <span>

#include "base/clock.h"
#include "base/log.h"
#include "compute/kernels/choose.h"
#include "compute/moe/local_dispatcher.h"
#include "compute/weights/hf_config.h"
#include "compute/weights/stacked_experts.h"
#include "engine/plan/folder_limit.h"
#include "engine/plan/latent_form.h"
#include "engine/plan/scheduler_settings.h"
#include "engine/runner/weight_changes.h"
#include "engine/runner/worker_choice.h"

namespace hocket {
namespace {

// Returns this rank's work as the planner counts it. A step of several ranks counts as prefill if
// one of them has prompts.
Bucket bucket_of(const ForwardBatch& batch, std::optional<Phase> phase) {
  const bool answers = phase ? *phase == Phase::decode : batch.mode == ForwardMode::decode;
  Bucket bucket{.phase = answers ? Phase::decode : Phase::prefill,
                .rows = batch.num_rows(),
                .kv_tokens = batch.num_rows()};
  for (const int32_t position : batch.positions) bucket.kv_tokens += position;
  return bucket;
}

}  // namespace

Result<std::unique_ptr<Runner>> Runner::create(const Options& options) {
  std::unique_ptr<Runner> runner(new Runner());
  HOCKET_TRY_VOID(runner->load(options));
  return runner;
}

Result<void> Runner::load(const Options& options) {
  const auto started = std::chrono::steady_clock::now();
  HOCKET_TRY_VOID(choose(options));
  HOCKET_TRY_VOID(open_files(options.settings));
  HOCKET_TRY_VOID(make_plan(options.settings));
  HOCKET_TRY_VOID(load_weights(options));
  HOCKET_TRY_VOID(make_memory(options.settings.memory.page_size));
  describe(options.settings);
  info_.load_seconds = to_seconds(std::chrono::steady_clock::now() - started);
  return {};
}

Result<void> Runner::choose(const Options& options) {
  const ServerSettings& settings = options.settings;
  HOCKET_TRY(info_.overlap_schedule, choose_overlap_schedule(settings.scheduler));
  HOCKET_TRY(info_.isa, choose_isa());
  HOCKET_TRY(overlap_, choose_overlap(settings.parallel));
  cut_threshold_ = settings.parallel.tbo_token_distribution_threshold;
  HOCKET_TRY(choice_, choose_model_form(settings));
  HOCKET_TRY(const LatentForm latents, describe_latents(settings, choice_));
  if (latents.change) info_.changes.push_back(*latents.change);
  if (!latents.note.empty()) info_.notes.push_back(latents.note);
  if (const auto eos = options.tokenizer_eos;
      eos && std::ranges::find(choice_.model.eos_ids, *eos) == choice_.model.eos_ids.end())
    choice_.model.eos_ids.push_back(*eos);
  HOCKET_TRY(info_.generation_defaults, read_generation_defaults(settings.model.model_path));
  HOCKET_TRY_VOID(check_places(settings.parallel));
  if (options.seat != nullptr) {
    seat_ = *options.seat;
    HOCKET_TRY(ExpertPlaces places,
               place_experts(settings.parallel, choice_, seat_->num_ranks,
                             seat_->machine.memory_available_bytes, seat_->replicas));
    std::ranges::move(places.changes, std::back_inserter(info_.changes));
    placement_ = std::move(places.placements);
    choice_.experts = placement_->held_by(seat_->rank);
  }
  if (seat_) {
    machine_ = seat_->machine;
  } else {
    machine_ = inspect_machine();
    machine_.memory_available_bytes =
        memory_beside_folder(machine_.memory_available_bytes, settings);
  }
  HOCKET_TRY(WorkerPool::Options worker_options, choose_workers(settings.compute, machine_));
  cpus_ = worker_options.cpus;
  workers_ = std::make_unique<WorkerPool>(worker_options);
  return {};
}

Result<void> Runner::open_files(const ServerSettings& settings) {
  const std::string& format = settings.model.load_format;
  if (format == "dummy") return {};
  if (format != "auto")
    return fail(ErrorCode::bad_value, "--load-format {} is not one of auto, dummy", format);
  HOCKET_TRY(weights_.source, open_model_weights(settings.model.model_path, choice_.model.moe));
  if (settings.model.max_mtp_modules > 0) return {};
  const int num_held = num_held_modules(choice_.model, *weights_.source);
  if (num_held == choice_.model.num_mtp_loaded) return {};
  HOCKET_TRY(const SettingChange change,
             leave_modules(settings.speculation, num_held, choice_.model));
  info_.changes.push_back(change);
  return {};
}

Result<void> Runner::make_plan(const ServerSettings& settings) {
  // Modules begin with the places of the last layer.
  if (placement_ && settings.parallel.moves_experts())
    placement_ = placement_->by_layer(choice_.model.num_layers + choice_.model.num_mtp_loaded);
  HOCKET_TRY(const MeasuredWeights weights, measure_weights(choice_, weights_.source.get()));
  weights_.fingerprint = weights.fingerprint;
  // All ranks plan with the weights of the rank that holds most, so that they choose equal limits.
  MeasuredWeights most = weights;
  if (placement_) {
    ModelChoice fullest = choice_;
    fullest.experts = placement_->held_by(placement_->first().fullest_rank());
    if (fullest.experts[0].size() > choice_.experts[0].size()) {
      HOCKET_TRY(most, measure_weights(fullest, weights_.source.get()));
    }
  }
  if (placement_ && settings.parallel.moves_experts()) {
    HOCKET_TRY(weights_.moving,
               moving_memory(settings, choice_, *placement_, weights_.source.get()));
  }
  MemoryPlanInput input = memory_plan_input(settings, choice_);
  input.weight_bytes = most.bytes;
  input.max_stored_bytes = max_stored_bytes(settings.memory);
  input.moving_bytes = weights_.moving.bytes();
  input.total_bytes = machine_.memory_bytes;
  input.available_bytes = machine_.memory_available_bytes;
  input.num_workers = workers_->size();
  input.placement = placement_ ? &*placement_ : nullptr;
  input.isa = info_.isa;
  HOCKET_TRY(plan_, plan_memory(input));
  plan_.weight_bytes = weights.bytes;
  std::ranges::copy(plan_.changes, std::back_inserter(info_.changes));
  return {};
}

Result<void> Runner::load_weights(const Options& options) {
  WeightLoader::Options load = choice_.loader_options();
  load.source = weights_.source.get();
  load.seed = options.settings.model.dummy_seed;
  load.bytes = plan_.weight_bytes;
  load.workers = workers_.get();
  load.progress = options.progress;
  choose_kept(options.settings.model);
  if (weights_.kept) load.packed = weights_.kept->map(*workers_);
  HOCKET_TRY(WeightLoader loader, WeightLoader::loading(std::move(load)));
  HOCKET_TRY(model_, load_held(choice_, loader));
  weights_.memory = loader.take_memory();
  std::ranges::move(weight_changes(choice_, loader, weights_.source.get()),
                    std::back_inserter(info_.changes));
  if (plan_.moving_bytes > 0 && weights_.source)
    weights_.source_identity = weights_.source->identity();
  weights_.source.reset();
  HOCKET_TRY(auto of_file, file_changes(choice_, options.settings.model));
  std::ranges::move(of_file, std::back_inserter(info_.changes));
  if (weights_.kept && !weights_.kept->is_mapped()) keep_weights();
  return {};
}

// Chooses the file of --weight-cache for the weights that this rank packs, if there is one.
void Runner::choose_kept(const ModelSettings& settings) {
  if (settings.weight_cache.empty()) return;
  const auto identity = weights_.source ? weights_.source->identity() : std::nullopt;
  if (!identity) {
    info_.changes.push_back({.flag = "--weight-cache",
                             .from = settings.weight_cache,
                             .to = "none",
                             .why = "random weights are made at each start, never kept"});
    return;
  }
  const PackedKey key{weights_.fingerprint, *identity, plan_.weight_bytes};
  const auto model = std::filesystem::weakly_canonical(settings.model_path).filename().string();
  weights_.kept.emplace(settings.weight_cache,
                        PackedFile::path_in(settings.weight_cache, model, key), key);
}

void Runner::keep_weights() {
  using enum PackedWeightCache::Packed;
  const auto change =
      weights_.kept->write({weights_.memory.data(), static_cast<size_t>(weights_.memory.bytes())},
                           plan_.moving_bytes > 0 ? may_change : stay);
  if (!change) return;
  info_.changes.push_back(*change);
  // Only rank 0 prints its changes at start, so the other ranks log theirs here.
  if (seat_ && seat_->rank > 0)
    log::warning("weights of rank {} are not kept: {}", seat_->rank, change->why);
}

Result<AllToAll*> Runner::attach(const AttachOptions& attached) {
  HOCKET_CHECK(placement_.has_value());
  const ExpertParallelDispatcher::Options options = dispatcher_options();
  AllToAll::Options exchange = exchange_options(options);
  exchange.epoch = attached.epoch;
  exchange.present = attached.present;
  exchange.abort = attached.abort;
  exchange.watch = attached.watch;
  exchange.stall_timeout = attached.stall_timeout;
  HOCKET_TRY(exchange_, AllToAll::create(attached.transport, exchange));
  HOCKET_TRY(auto dispatcher, ExpertParallelDispatcher::create(options, *exchange_));
  parallel_ = dispatcher.get();
  dispatcher_ = std::move(dispatcher);
  return exchange_.get();
}

void Runner::place(LayerMove& move) {
  HOCKET_CHECK(placement_.has_value());
  HOCKET_CHECK(plan_.moving_bytes > 0);
  placement_->swap(move.layer, move.placement);
  if (parallel_ != nullptr) parallel_->place(move.layer, move.places);
  model_->swap_experts(move.layer, move.experts);
}

void Runner::detach() {
  parallel_ = nullptr;
  dispatcher_.reset();
  exchange_.reset();
}

ExpertParallelDispatcher::Options Runner::dispatcher_options() const {
  return {.model = choice_.model,
          .dtype = choice_.dtype,
          .placement = *placement_,
          .combine_groups = choice_.combine_groups,
          .any_placement = plan_.moving_bytes > 0,
          .limits = plan_.work};
}

std::string Runner::terms() const {
  const AllToAll::Options exchange = exchange_options(dispatcher_options());
  size_t most = 0;
  uint32_t sizes = 2166136261u;  // FNV-1a
  for (const size_t bytes : std::views::join(exchange.max_bytes)) {
    most = std::max(most, bytes);
    for (const std::byte part : std::as_bytes(std::span(&bytes, 1)))
      sizes = (sizes ^ static_cast<uint32_t>(part)) * 16777619u;
  }
  return fmt::format(
      "{} rows of prompts and {} of answers; messages up to {} bytes, {:08x}; {} places for "
      "experts, {:08x}; {} orders, {:08x}",
      plan_.work.max_rows, plan_.work.exchange.max_decode_rows, most, sizes,
      placement_->first().num_places(), placement_->fingerprint(), overlap_.orders->size(),
      overlap_.orders->fingerprint());
}

Result<void> Runner::make_memory(int page_tokens) {
  const KvShapes shapes = choice_.kv_shapes(page_tokens);
  HOCKET_TRY(pages_, PagePool::create(shapes.full, plan_.num_pages, plan_.num_spare_pages));
  if (!shapes.windowed.empty()) {
    HOCKET_TRY(window_pages_, PagePool::create(shapes.windowed, plan_.num_window_pages + 1));
  }
  if (plan_.num_states > 0) {
    const DeltaShape shape = delta_shape_of(choice_.model, choice_.dtype, plan_.max_drafts);
    HOCKET_TRY(states_, StatePool::create({shape, choice_.model.num_linear_layers(),
                                           plan_.num_states, plan_.num_blocks}));
  }
  if (plan_.moving_bytes > 0) {
    HOCKET_TRY(weights_.moving_memory, Buffer::allocate(plan_.moving_bytes));
  }
  HOCKET_TRY(work_, WorkBuffers::create(choice_.model, choice_.dtype, plan_.work));
  const ScratchNeed need = choice_.scratch_need(max_rows_of_ranks(plan_.work), page_tokens);
  HOCKET_TRY(backend_, Backend::create(info_.isa, *workers_, scratch_bytes_for(need)));
  reserve_halves(halves_, plan_.work.max_rows,
                 max_sequences(plan_.work.max_rows, plan_.max_running_requests + 1));
  for (Half& half : halves_)
    half.attention.num_workers = half.window_attention.num_workers = workers_->size();
  if (!placement_)
    dispatcher_ = std::make_unique<LocalDispatcher>(choice_.model, choice_.combine_groups);
  return {};
}

void Runner::describe(const ServerSettings& settings) {
  const auto speculation = choose_speculation(settings, choice_.model);  // planned before
  // A fixed number of drafts leaves no step that could overlap.
  if (info_.overlap_schedule == OverlapSchedule::measured && speculation->fixed)
    info_.overlap_schedule = OverlapSchedule::off;
  info_.model = choice_.model;
  info_.dtype = choice_.dtype;
  info_.kv_dtype = choice_.kv_dtype;
  info_.dispatch_dtype = choice_.dispatch_dtype;
  info_.combine_dtype = choice_.combine_dtype;
  info_.weight_format = choice_.weight_format();
  info_.prompt_form = choice_.prompt_form;
  info_.answer_begins = choice_.answer_begins;
  info_.combine_groups = choice_.combine_groups;
  info_.model_path = settings.model.model_path;
  info_.served_model_name =
      settings.model.served_model_name.empty()
          ? std::filesystem::weakly_canonical(settings.model.model_path).filename().string()
          : settings.model.served_model_name;
  info_.num_workers = workers_->size();
  std::ranges::move(speculation_notes(settings.speculation), std::back_inserter(info_.notes));
  info_.speculation = {speculation->algorithm, plan_.max_drafts, plan_.draft_bytes};
  info_.context_length = plan_.context_length;
  info_.max_running_requests = plan_.max_running_requests;
  info_.chunk_tokens = plan_.chunk_tokens;
  info_.num_pages = plan_.num_pages;
  info_.page_tokens = settings.memory.page_size;
  info_.max_total_tokens = int64_t{info_.num_pages} * info_.page_tokens;
  info_.weight_bytes = plan_.weight_bytes;
  info_.kv_bytes = plan_.kv_bytes;
  info_.num_window_pages = plan_.num_window_pages;
  info_.window_bytes = plan_.window_bytes;
  info_.num_states = plan_.num_states;
  info_.state_bytes = plan_.state_bytes;
  info_.work_bytes = plan_.work_bytes;
  info_.index_bytes = plan_.index_bytes;
  info_.overlap = overlap_.name;
  info_.num_orders = overlap_.orders->size();
  std::ranges::copy(overlap_.changes, std::back_inserter(info_.changes));
  info_.num_ranks = seat_ ? seat_->num_ranks : 1;
  info_.ranks = {{.num_workers = info_.num_workers,
                  .cpus = cpus_,
                  .experts = choice_.experts.empty() ? std::vector<int>() : choice_.experts[0],
                  .max_running_requests = info_.max_running_requests,
                  .num_pages = info_.num_pages,
                  .max_total_tokens = info_.max_total_tokens,
                  .weight_bytes = info_.weight_bytes,
                  .kv_bytes = info_.kv_bytes,
                  .window_bytes = info_.window_bytes,
                  .state_bytes = info_.state_bytes,
                  .work_bytes = info_.work_bytes,
                  .index_bytes = info_.index_bytes}};
}

void Runner::forward(const ForwardBatch& batch, const Plan& plan, ForwardProbe* probe) {
  HOCKET_CHECK(!placement_);
  const Result<void> done = forward_together(batch, {.plan = plan, .probe = probe});
  HOCKET_CHECK(done.has_value());  // a single rank can lose no other
}

Placements Runner::placement() const {
  return placement_ ? *placement_
                    : Placements(*Placement::contiguous(choice_.model.moe.num_experts, 1));
}

Result<void> Runner::forward_together(const ForwardBatch& batch, const PassOptions& pass) {
  HOCKET_CHECK(dispatcher_ != nullptr);
  const Order& order = overlap_.orders->at(pass.plan.order);
  if (pass.ledger != nullptr)
    pass.ledger->begin_pass(
        pass.id.step, pass.plan,
        bucket_of(batch, placement_ ? std::optional(pass.id.phase) : std::nullopt), pass.is_trial);
  const SplitRule split = split_for(
      batch, {.share = pass.plan.share, .row_tile = row_tile(), .cut_threshold = cut_threshold_});
  return model_->forward(batch, {.backend = *backend_,
                                 .work = work_,
                                 .pages = *pages_,
                                 .window_pages = window_pages_ ? &*window_pages_ : nullptr,
                                 .states = states_ ? &*states_ : nullptr,
                                 .dispatcher = *dispatcher_,
                                 .order = order,
                                 .halves = std::span(halves_).first(order.num_halves),
                                 .split = split,
                                 .id = pass.id,
                                 .probe = pass.probe,
                                 .expert_counts = pass.expert_counts,
                                 .ledger = pass.ledger});
}

// Its layer's number in messages follows those of the model's layers, so that an exchange of the
// one is never taken for one of the other.
Result<void> Runner::forward_module(int module, const ForwardBatch& batch,
                                    const Model::HiddenRows& hidden, const PassSpec& pass) {
  HOCKET_CHECK(dispatcher_ != nullptr);
  PassSpec id = pass;
  id.first_layer += choice_.model.num_layers;
  const Order& order = overlap_.orders->at(Plan().order);
  return model_->modules()[static_cast<size_t>(module)].forward(
      batch, {.backend = *backend_,
              .work = work_,
              .pages = *pages_,
              .window_pages = nullptr,
              .states = nullptr,
              .dispatcher = *dispatcher_,
              .order = order,
              .halves = std::span(halves_).first(order.num_halves),
              .split = {batch.num_rows()},
              .id = id,
              .hidden = hidden});
}

View<float> Runner::logits(int begin, int count) {
  return model_->logits(*backend_, work_, begin, count);
}

}  // namespace hocket
