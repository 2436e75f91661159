#include "bench/overlap_real.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <tuple>

#include "base/machine.h"
#include "base/quantile.h"
#include "bench/mesh.h"
#include "bench/overlap_rig.h"
#include "bench/processes.h"
#include "compute/comm/loopback.h"
#include "compute/comm/ucx_transport.h"
#include "engine/rank_setup.h"

namespace hocket {
namespace {

using Mode = OverlapRig::Mode;
// Time for the rounds and for auto's steps of a point. It is exceeded to reach the least numbers.
constexpr double kRoundsUs = 20e6, kAutoUs = 20e6;
constexpr int kMinRounds = 3, kMinAutoSteps = 100;
// Long steps: kMinLongSteps of auto and no warm-up round. Very long steps: one round at least.
constexpr double kLongStepUs = 0.3e6, kVeryLongStepUs = 1.5e6;
constexpr int kMinLongSteps = 60;
constexpr int kMaxTrialSteps = 8;     // steps of trials that play_chosen() skips, at most
constexpr double kMaxStepUs = 6e6;    // points with longer steps are left out
constexpr double kQuickShare = 0.25;  // --quick takes this share of the times above
constexpr Duration kLatency = std::chrono::microseconds(20);

struct Sizes {
  std::vector<int> decode = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  std::vector<int> prefill = {512, 1024, 2048, 4096, 8192};
};

Sizes sizes_of(const BenchOverlapOptions& o) {
  Sizes sizes;
  if (o.quick) sizes = {.decode = {8, 64}, .prefill = {256}};
  if (!o.decode_rows.empty() || !o.prefill_rows.empty())
    sizes = {.decode = o.decode_rows, .prefill = o.prefill_rows};
  return sizes;
}

int most(const std::vector<int>& rows) {
  return rows.empty() ? 1 : *std::ranges::max_element(rows);
}

// The measurements of one kind of run, one a round.
struct Series {
  std::vector<double> took_us, waiting_us;
  void add(const OverlapRig::PassResult& played) {
    took_us.push_back(played.took_us);
    waiting_us.push_back(played.waiting_us);
  }
  double median() const { return quantile(took_us, 0.5); }
};

// A forced plan (or auto) and its live runs. Plans with the same Cut share their other runs, since
// they compute alike.
struct Forced {
  std::string name;
  Plan plan;
  Series live;
  double kappa = 0;
};
using Cut = std::tuple<int, int, int, int>;  // halves, parts, waves, share

struct CutRuns {
  Plan plan;  // one of the plans with this cut
  ReplayTransport::Record record;
  Series alone, with_traffic;
};

// Measures one point: a phase, a number of rows and a link.
//
//   planned steps, until auto has settled -> record one pass of each cut -> rounds
//   each round: [live run of each forced plan] [auto] [each cut: replay, replay with traffic]
class MeasuredPoint {
 public:
  MeasuredPoint(OverlapRig& rig, const BenchOverlapOptions& options)
      : rig_(rig), options_(options) {}

  // Returns nullopt if a step takes longer than kMaxStepUs.
  Result<std::optional<PlayedPoint>> play(Phase phase, int rows, double gbit) {
    rig_.set_batch(phase, rows);
    HOCKET_TRY(const OverlapRig::PassResult first, rig_.play({}, Mode::live));
    none_us_ = first.took_us;
    if (none_us_ > kMaxStepUs) {
      say_left_out(phase, rows, gbit);
      return std::nullopt;
    }
    add_forced(rows);
    HOCKET_TRY_VOID(let_planner_learn());
    HOCKET_TRY_VOID(record());
    HOCKET_TRY_VOID(play_rounds());
    return result(phase, rows, gbit);
  }

 private:
  Cut cut_of(const Plan& plan) const {
    const int halves = orders_.at(plan.order).num_halves;
    return {halves, plan.parts, plan.waves, halves == 2 ? plan.share : 0};
  }
  void say_left_out(Phase phase, int rows, double gbit) const;
  void add_forced(int rows);
  Result<void> let_planner_learn();
  Result<void> record();
  Result<void> play_rounds();
  Result<void> play_round(int round);
  Result<OverlapRig::PassResult> play_chosen();
  PlayedPoint result(Phase phase, int rows, double gbit) const;
  StepTimings runs_of(const Plan& plan, const Series& live) const;
  double time_share() const { return options_.quick ? kQuickShare : 1; }
  bool is_long() const { return none_us_ > kLongStepUs; }

  OverlapRig& rig_;
  const BenchOverlapOptions& options_;
  const OrderTable& orders_ = OrderTable::builtin();
  std::vector<Forced> forced_;  // [0] is the plan `none`
  std::map<Cut, CutRuns> cuts_;
  Forced automatic_{.name = "auto"};
  Series exchange_;
  std::map<std::string, int> played_by_auto_;
  double none_us_ = 0, idle_share_ = 0, ledger_share_ = 0, planner_share_ = 0;
};

void MeasuredPoint::say_left_out(Phase phase, int rows, double gbit) const {
  if (rig_.rank() == 0)
    fmt::print(stderr, "left out: {} of {} rows at {:g} Gbit/s, a step takes {:.1f} s\n",
               phase_name(phase), rows, gbit, none_us_ / 1e6);
}

void MeasuredPoint::add_forced(int rows) {
  forced_.push_back({.name = "serial"});
  for (const Grain& grain : kTuning.grains)
    if (const Plan plan{.parts = grain.parts, .waves = grain.waves}; plan != Plan{})
      forced_.push_back({.name = describe(plan, orders_), .plan = plan});
  if (rows < 2) return;
  // Other orders with one half only move shared experts, which this model does not have.
  for (int order = 0; order < orders_.user_begin(); ++order)
    if (orders_.at(order).num_halves == 2)
      forced_.push_back({.name = orders_.at(order).name, .plan = {.order = order}});
  const int four_phase = orders_.find("four-phase");
  forced_.push_back({.name = "four-phase, 2 parts", .plan = {.order = four_phase, .parts = 2}});
}

// Plays planned steps alone, so that the planner has time to settle on a plan.
Result<void> MeasuredPoint::let_planner_learn() {
  if (!is_long()) {
    HOCKET_TRY(const OverlapRig::PassResult warm, rig_.play({}, Mode::live));
    none_us_ = warm.took_us;
  }
  const int by_time = static_cast<int>(kAutoUs * time_share() / none_us_);
  const int least = is_long() ? kMinLongSteps : kMinAutoSteps;
  const int steps = std::min(std::max(by_time, least), std::max(options_.auto_steps, 1));
  double planner_us = 0, all_us = 0;
  for (int step = 0; step < steps; ++step) {
    HOCKET_TRY(const OverlapRig::PassResult played, rig_.play_planned());
    idle_share_ = std::max(idle_share_, step == 0 ? 0 : played.idle_share);
    automatic_.plan = played.plan;
    planner_us += played.planner_us, all_us += played.took_us;
  }
  planner_share_ = planner_us / all_us;
  HOCKET_TRY(const double booking_us, rig_.booking_us(automatic_.plan));
  ledger_share_ = booking_us * steps / all_us;
  return {};
}

Result<void> MeasuredPoint::record() {
  for (const Forced& each : forced_) cuts_[cut_of(each.plan)].plan = each.plan;
  cuts_[cut_of(automatic_.plan)].plan = automatic_.plan;
  cuts_[cut_of({})].plan = {};
  for (auto& [cut, runs] : cuts_) {
    HOCKET_TRY_VOID(rig_.play(runs.plan, Mode::record));
    runs.record = rig_.messages().take_record();
  }
  return {};
}

Result<void> MeasuredPoint::play_rounds() {
  const double runs = static_cast<double>(forced_.size() + 2 * cuts_.size() + 2);
  const int by_time = static_cast<int>(kRoundsUs * time_share() / (runs * none_us_));
  const int least = none_us_ > kVeryLongStepUs ? 1 : kMinRounds;
  const int rounds = std::clamp(by_time, least, std::max(options_.rounds, least));
  for (int round = is_long() ? 0 : -1; round < rounds; ++round) HOCKET_TRY_VOID(play_round(round));
  return {};
}

// Plays planned steps until one belongs to no trial, and returns that one. At most one step in a
// hundred is one of a trial, so a few rounds would count them too much.
Result<OverlapRig::PassResult> MeasuredPoint::play_chosen() {
  HOCKET_TRY(auto played, rig_.play_planned());
  for (int i = 0; i < kMaxTrialSteps && played.is_trial; ++i) {
    HOCKET_TRY(played, rig_.play_planned());
  }
  return played;
}

// Plays each run once. Each round begins with another order, so that the effects of a predecessor
// are spread over all.
Result<void> MeasuredPoint::play_round(int round) {
  const bool counts = round >= 0;
  const auto note = [counts](Series& series, const OverlapRig::PassResult& played) {
    if (counts) series.add(played);
  };
  for (size_t i = 0; i < forced_.size(); ++i) {
    Forced& each = forced_[(i + static_cast<size_t>(round + 1)) % forced_.size()];
    HOCKET_TRY(const auto played, rig_.play(each.plan, Mode::live));
    note(each.live, played);
    each.kappa = rig_.coverage();
  }
  HOCKET_TRY(const auto planned, play_chosen());
  note(automatic_.live, planned);
  if (counts) ++played_by_auto_[describe(planned.plan, orders_)];
  if (planned.plan == automatic_.plan) automatic_.kappa = rig_.coverage();
  for (auto& [cut, runs] : cuts_) {
    rig_.messages().set_record(std::move(runs.record));
    if (runs.plan == Plan{}) {
      HOCKET_TRY(const double us, rig_.exchange_us());
      if (counts) exchange_.took_us.push_back(us);
    }
    HOCKET_TRY(const auto alone, rig_.play(runs.plan, Mode::replay));
    note(runs.alone, alone);
    HOCKET_TRY(const auto with_traffic, rig_.play(runs.plan, Mode::traffic));
    note(runs.with_traffic, with_traffic);
    runs.record = rig_.messages().take_record();
  }
  return {};
}

StepTimings MeasuredPoint::runs_of(const Plan& plan, const Series& live) const {
  const CutRuns& whole = cuts_.at(cut_of({}));
  const CutRuns& cut = cuts_.at(cut_of(plan));
  return {.serial_us = forced_[0].live.median(),
          .compute_us = whole.alone.median(),
          .split_us = cut.alone.median(),
          .traffic_us = cut.with_traffic.median(),
          .exchange_us = exchange_.median(),
          .overlapped_us = live.median(),
          .waiting_us = quantile(live.waiting_us, 0.5)};
}

PlayedPoint MeasuredPoint::result(Phase phase, int rows, double gbit) const {
  const CutRuns& whole = cuts_.at(cut_of({}));
  PlayedPoint point{.clock = "real",
                    .shape = "wire",
                    .phase = phase,
                    .ranks = options_.num_ranks,
                    .rows = rows,
                    .link_gbit = gbit,
                    .is_between_hosts = !options_.addr.empty(),
                    .tax_us = std::max(whole.with_traffic.median() - whole.alone.median(), 0.0),
                    .idle_share = idle_share_,
                    .ledger_share = ledger_share_,
                    .planner_share = planner_share_};
  if (const auto decision = rig_.decision()) {
    point.lower_bound_us = decision->lower_bound_us;
    point.why = decision->text;
    point.played_by_auto = played_by_auto_;
  }
  const auto add = [&](const Forced& each) {
    const std::vector<double>& us = each.live.took_us;
    point.rows_of_orders.push_back({.order = each.name,
                                    .plan = describe(each.plan, orders_),
                                    .runs = runs_of(each.plan, each.live),
                                    .kappa = each.kappa,
                                    .spread_us = quantile(us, 0.75) - quantile(us, 0.25),
                                    .rounds_us = us});
  };
  for (const Forced& each : forced_) add(each);
  add(automatic_);
  return point;
}

// Plays all points on one rank. set_link(gbit) is called before the points of each link.
template <class SetLink>
Result<void> play_rank(OverlapRig& rig, const BenchOverlapOptions& options,
                       const std::vector<double>& links, SetLink&& set_link,
                       OverlapReport& report) {
  const Sizes sizes = sizes_of(options);
  for (const double gbit : links) {
    set_link(gbit);
    for (const Phase phase : {Phase::decode, Phase::prefill})
      for (const int rows : phase == Phase::decode ? sizes.decode : sizes.prefill) {
        HOCKET_TRY(auto point, MeasuredPoint(rig, options).play(phase, rows, gbit));
        if (rig.rank() == 0 && point) report.add(*std::move(point));
      }
  }
  return {};
}

OverlapRig::Options rig_options(const BenchOverlapOptions& options, const RankConfig& seat,
                                Transport& transport, Transport& traffic, double gbit) {
  const Sizes sizes = sizes_of(options);
  return {.seat = seat,
          .transport = transport,
          .traffic = &traffic,
          .decode_rows = most(sizes.decode),
          .prefill_rows = most(sizes.prefill),
          .link_gbit = gbit};
}

// Plays with ranks that are threads, joined by a modelled link that takes no core time.
Result<void> play_threads(const BenchOverlapOptions& options, OverlapReport& report) {
  std::vector<double> links = options.link_gbit;
  if (links.empty()) links = options.quick ? std::vector{1.0} : std::vector{0.2, 1.0, 2.5, 10.0};
  const auto model = [](double gbit) {
    return LinkModel{.bytes_per_s = gbit * 1e9 / 8, .latency = kLatency};
  };
  LoopbackHub hub(options.num_ranks, model(links[0]), LoopbackHub::Time::real);
  LoopbackHub traffic_hub(options.num_ranks, model(links[0]), LoopbackHub::Time::real);
  const std::vector<Machine> shares = share_machine(inspect_machine(), options.num_ranks);
  std::vector<Result<void>> done(shares.size());
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < options.num_ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto play = [&]() -> Result<void> {
        const std::unique_ptr<Transport> end = hub.join(rank), traffic = traffic_hub.join(rank);
        const RankConfig seat{rank, options.num_ranks, shares[static_cast<size_t>(rank)]};
        HOCKET_TRY(const auto rig,
                   OverlapRig::create(rig_options(options, seat, *end, *traffic, links[0])));
        const auto set_link = [&](double gbit) {
          if (rank == 0) hub.set_links(model(gbit)), traffic_hub.set_links(model(gbit));
        };
        return play_rank(*rig, options, links, set_link, report);
      };
      done[static_cast<size_t>(rank)] = play();
    });
  threads.clear();
  for (Result<void>& each : done) HOCKET_TRY_VOID(std::move(each));
  return {};
}

Result<std::unique_ptr<UcxTransport>> connect(const BenchOverlapOptions& options, Mesh& mesh,
                                              int rank) {
  UcxOptions ucx{.devices = options.devices.empty() ? mesh.device() : options.devices};
  if (options.own_gbit > 0) ucx.tls = "tcp";
  HOCKET_TRY(auto end, UcxTransport::create(rank, options.num_ranks, ucx));
  HOCKET_TRY(const auto all, mesh.gather(end->address()));
  const std::vector<std::span<const std::byte>> addresses(all.begin(), all.end());
  HOCKET_TRY_VOID(end->connect(addresses));
  return end;
}

// Plays with ranks that are processes: this one is options.rank, on the cores that it was given.
Result<void> play_process(const BenchOverlapOptions& options, OverlapReport& report) {
  auto mesh = options.rank == 0 ? Mesh::listen(options.addr, options.num_ranks)
                                : Mesh::join(options.addr, options.rank, options.num_ranks);
  if (!mesh) return fail(std::move(mesh).error());
  HOCKET_TRY(const auto end, connect(options, *mesh, options.rank));
  HOCKET_TRY(const auto traffic, connect(options, *mesh, options.rank));
  const RankConfig seat{options.rank, options.num_ranks, inspect_machine()};
  HOCKET_TRY(const auto rig, OverlapRig::create(rig_options(options, seat, *end, *traffic, 0)));
  HOCKET_TRY_VOID(mesh->gather({}));
  return play_rank(*rig, options, {options.own_gbit}, [](double) {}, report);
}

}  // namespace

Result<void> play_real(const BenchOverlapOptions& options, OverlapReport& report) {
  return options.rank < 0 ? play_threads(options, report) : play_process(options, report);
}

}  // namespace hocket
