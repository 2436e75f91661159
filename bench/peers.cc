#include "bench/peers.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/bench_error.h"
#include "bench/child_program.h"
#include "bench/peers_figures.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;
using Command = std::vector<std::string>;

// mxfp4: that of the experts, which the shape itself says; the rest is bf16.
// gguf: hocket reads the peer's file too, so both compute the same weights.
constexpr std::array<std::string_view, 5> kForms = {"bf16", "int8", "int4", "mxfp4", "gguf"};

struct ModelFile {
  std::string shape, form, file;
  double file_bytes = 0;

  // The arguments by which `hocket bench one-batch` runs the same model.
  Command own_arguments() const {
    if (form == "gguf") return {"--model-path=" + file};
    const bool quantized = form == "int8" || form == "int4";
    return {"--shape=" + shape, "--quantization=" + (quantized ? form : "none")};
  }
};

// Parses SHAPE-FORM=FILE.   Errors: bad_value, model_not_found.
Result<ModelFile> parse_model(const std::string& text) {
  const size_t equals = text.find('=');
  const size_t dash = text.substr(0, equals).rfind('-');
  if (equals == std::string::npos || dash == std::string::npos)
    return fail(error(ErrorCode::bad_value, "--peer-model {} is not SHAPE-FORM=FILE", text)
                    .with_fix("--peer-model small-bf16=small-bf16.gguf")
                    .with_param("peer-model"));
  ModelFile model{.shape = text.substr(0, dash),
                  .form = text.substr(dash + 1, equals - dash - 1),
                  .file = text.substr(equals + 1)};
  if (std::ranges::find(kForms, model.form) == kForms.end())
    return fail(error(ErrorCode::bad_value, "--peer-model {}: {} is not one of {}", text,
                      model.form, fmt::join(kForms, ", "))
                    .with_param("peer-model"));
  std::error_code code;
  model.file_bytes = static_cast<double>(std::filesystem::file_size(model.file, code));
  if (code) return fail(ErrorCode::model_not_found, "{} cannot be read", model.file);
  return model;
}

// One of the compared engines, and its results.
struct ComparedEngine {
  std::string name, build, note;
  PeerPrograms programs;
  bool repacks = false;  // it is told (-rtr) to repack quantized weights when it loads them
  Rounds rounds;
  int64_t peak_resident_bytes = 0;
};

std::string list_of(const std::vector<int>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

class Peers {
 public:
  explicit Peers(const BenchPeersOptions& options) : o_(options) {}

  Result<void> run() {
    HOCKET_TRY_VOID(check());
    std::vector<ModelFile> models;
    for (const std::string& text : o_.models) {
      HOCKET_TRY(models.emplace_back(), parse_model(text));
    }
    HOCKET_TRY(own_path_, own_path());
    for (const ModelFile& model : models) {
      start(model);
      for (int round = 0; round < o_.rounds; ++round) {
        HOCKET_TRY_VOID(run_own(model));
        for (ComparedEngine& peer : peers_) HOCKET_TRY_VOID(run_peer(model, peer));
      }
      o_.json ? print_json(model) : print(model);
    }
    return {};
  }

 private:
  Result<void> check() const {
    if (o_.models.empty() || (o_.llama.bench.empty() && o_.ik.bench.empty()))
      return fail(error(ErrorCode::usage, "there is nothing to compare with")
                      .with_fix("--llama-bench PATH --peer-model small-bf16=FILE"));
    for (const PeerPrograms* programs : {&o_.llama, &o_.ik})
      if (programs->bench.empty() && !programs->batched_bench.empty())
        return fail(error(ErrorCode::usage,
                          "{} is given without its llama-bench, which says the version",
                          programs->batched_bench)
                        .with_fix("--llama-bench PATH, or --ik-llama-bench PATH"));
    HOCKET_TRY_VOID(check_number("rounds", o_.rounds, {1, 1e6}));
    HOCKET_TRY_VOID(check_number("context-len", o_.context_len, {1, 1e9}));
    return check_number("output-len", o_.output_len, {1, 1e9});
  }

  void start(const ModelFile& model) {
    own_ = {.name = "hocket", .build = "", .note = "", .programs = {}, .rounds = {}};
    roof_.clear(), read_gb_s_.clear();
    peers_.clear();
    if (!o_.llama.bench.empty())
      peers_.push_back(
          {.name = "llama.cpp", .build = "", .note = "", .programs = o_.llama, .rounds = {}});
    if (o_.ik.bench.empty()) return;
    peers_.push_back({.name = "ik_llama.cpp",
                      .build = "",
                      .note = o_.ik_random_tokens
                                  ? "its batched bench was changed to feed random tokens"
                                  : "its batched bench feeds one token to all sequences, which "
                                    "choose the same experts: its batches are flattered",
                      .programs = o_.ik,
                      .repacks = model.form != "bf16",
                      .rounds = {}});
  }

  Result<void> run_own(const ModelFile& model) {
    Command command = {own_path_,
                       "bench",
                       "one-batch",
                       "--json",
                       "--rounds=1",
                       "--input-len",
                       list_of(o_.input_lens),
                       "--batch",
                       list_of(o_.batches),
                       fmt::format("--context-len={}", o_.context_len),
                       fmt::format("--output-len={}", o_.output_len)};
    std::ranges::copy(model.own_arguments(), std::back_inserter(command));
    HOCKET_TRY(const ProgramRun ran, run_program(command));
    HOCKET_TRY(machine_, parse_one_batch(ran.out));
    HOCKET_TRY_VOID(take(machine_.tokens_per_s, machine_.peak_resident_bytes, own_));
    for (const auto& [pass, rate] : machine_.roof) roof_[pass].push_back(rate);
    read_gb_s_.push_back(machine_.read_gb_s);
    return {};
  }

  Result<void> run_peer(const ModelFile& model, ComparedEngine& peer) const {
    std::vector<int> together;
    std::ranges::copy_if(o_.batches, std::back_inserter(together), [](int b) { return b > 1; });
    // The first of two repetitions is the warm-up, since one of the peers warms up with one token.
    Command bench = {
        peer.programs.bench, "-m", model.file, "-t", threads(), "-r", "2", "-o", "json"};
    if (peer.repacks) bench.insert(bench.end(), {"-rtr", "1"});
    if (!o_.input_lens.empty()) {
      Command command = bench;
      command.insert(command.end(), {"-p", list_of(o_.input_lens), "-n", "0"});
      HOCKET_TRY_VOID(run_bench(command, peer));
    }
    if (std::ranges::count(o_.batches, 1) > 0) {
      Command command = bench;
      const std::string steps = fmt::to_string(o_.output_len);
      const std::string context = fmt::to_string(o_.context_len);
      command.insert(command.end(), {"-p", "0"});
      if (is_ik(peer))
        command.insert(command.end(), {"-n", "0", "-gp", context + "," + steps});
      else
        command.insert(command.end(), {"-n", steps, "-d", context});
      HOCKET_TRY_VOID(run_bench(command, peer));
    }
    if (peer.build.empty()) HOCKET_TRY_VOID(ask_build(bench, peer));
    if (together.empty() || peer.programs.batched_bench.empty()) return {};
    HOCKET_TRY(const ProgramRun ran, run_program(batched_command(model, peer, together)));
    HOCKET_TRY(const PeerRun figures, parse_batched_bench(ran.out + "\n" + ran.err));
    return take(figures.tokens_per_s, ran.peak_resident_bytes, peer);
  }

  Command batched_command(const ModelFile& model, const ComparedEngine& peer,
                          const std::vector<int>& batches) const {
    constexpr int kBlock = 256;  // tokens; the room of a sequence is rounded up to a multiple
    const int sequence = (o_.context_len + o_.output_len + kBlock - 1) / kBlock * kBlock;
    Command command = {peer.programs.batched_bench,
                       "-m",
                       model.file,
                       "-t",
                       threads(),
                       "-tb",
                       threads(),
                       "-c",
                       fmt::to_string(std::ranges::max(batches) * sequence),
                       "-npp",
                       fmt::to_string(o_.context_len),
                       "-ntg",
                       fmt::to_string(o_.output_len),
                       "-npl",
                       list_of(batches),
                       "-pps"};
    if (!is_ik(peer)) command.insert(command.end(), {"--output-format", "jsonl"});
    if (peer.repacks) command.emplace_back("-rtr");
    return command;
  }

  static bool is_ik(const ComparedEngine& peer) { return peer.name != "llama.cpp"; }
  std::string threads() const { return fmt::to_string(machine_.threads); }

  Result<void> run_bench(const Command& command, ComparedEngine& peer) const {
    HOCKET_TRY(const ProgramRun ran, run_program(command));
    HOCKET_TRY(const PeerRun figures, parse_llama_bench(ran.out));
    peer.build = figures.build;
    return take(figures.tokens_per_s, ran.peak_resident_bytes, peer);
  }

  // Runs a short test of llama-bench to learn its version: no other program prints it.
  static Result<void> ask_build(Command bench, ComparedEngine& peer) {
    bench.insert(bench.end(), {"-p", "1", "-n", "0"});
    HOCKET_TRY(const ProgramRun ran, run_program(bench));
    HOCKET_TRY(const PeerRun figures, parse_llama_bench(ran.out));
    peer.build = figures.build;
    return {};
  }

  static Result<void> take(const Rates& rates, int64_t resident_bytes, ComparedEngine& engine) {
    for (const auto& [pass, rate] : rates) {
      if (rate <= 0)
        return fail(ErrorCode::bad_value, "{} printed no rate of {}", engine.name, name_of(pass));
      engine.rounds[pass].push_back(rate);
    }
    engine.peak_resident_bytes = std::max(engine.peak_resident_bytes, resident_bytes);
    return {};
  }

  Comparison comparison(Pass pass) const {
    std::vector<std::vector<double>> theirs;
    for (const ComparedEngine& peer : peers_) {
      const auto found = peer.rounds.find(pass);
      theirs.push_back(found == peer.rounds.end() ? std::vector<double>() : found->second);
    }
    return compare(own_.rounds.at(pass), roof_.at(pass), theirs);
  }

  void print(const ModelFile& model) const {
    const Spread read = spread_of(read_gb_s_);
    fmt::print(
        "{}-{}  {:.2f} GB file | {}, {} threads | read {:.1f} GB/s ({:.1f}-{:.1f}) | {} "
        "{:.0f} GFLOP/s | int8 {:.0f} Gop/s\n",
        model.shape, model.form, model.file_bytes / 1e9, machine_.cpu, machine_.threads,
        read.median, read.low, read.high, machine_.peak_name, machine_.peak_gflop_s,
        machine_.integer_gop_s);
    for (const auto& [pass, rounds] : own_.rounds) {
      const Comparison c = comparison(pass);
      fmt::print("{:<13} | {}", name_of(pass), figures_of(own_.name, c.own));
      for (size_t i = 0; i < peers_.size(); ++i)
        fmt::print(" | {}", c.peers[i] ? figures_of(peers_[i].name, *c.peers[i])
                                       : peers_[i].name + " not run");
      if (c.better >= 0)
        fmt::print(" | {:.2f} x {} ({:.2f}-{:.2f})", c.ratio.median, peers_[c.better].name,
                   c.ratio.low, c.ratio.high);
      fmt::print("\n");
    }
    fmt::print("{:<13}", "peak resident");
    for (const ComparedEngine* engine : engines())
      fmt::print(" | {} {:.2f} GB, {:.3f} of the file", engine->name,
                 static_cast<double>(engine->peak_resident_bytes) / 1e9,
                 static_cast<double>(engine->peak_resident_bytes) / model.file_bytes);
    fmt::print("\n");
    for (const ComparedEngine& peer : peers_)
      fmt::print("{} {}{}{}{}\n", peer.name, peer.build, peer.repacks ? ", -rtr" : "",
                 peer.note.empty() ? "" : "; ", peer.note);
    std::fflush(stdout);
  }

  static std::string figures_of(const std::string& name, const EngineSide& side) {
    const Spread& s = side.tokens_per_s;
    return fmt::format("{} {:.1f} ({:.1f}-{:.1f}) {:.2f}", name, s.median, s.low, s.high,
                       side.roof_fraction);
  }

  static Json json_of(const ComparedEngine& engine, const EngineSide& side) {
    const Spread& s = side.tokens_per_s;
    Json json = {{"name", engine.name}};
    if (!engine.build.empty()) json["build"] = engine.build;
    if (!engine.note.empty()) json["note"] = engine.note;
    json.update({{"tokens_per_s", s.median},
                 {"tokens_per_s_min", s.low},
                 {"tokens_per_s_max", s.high},
                 {"roof_fraction", side.roof_fraction}});
    return json;
  }

  void print_json(const ModelFile& model) const {
    for (const auto& [pass, rounds] : own_.rounds) {
      const Comparison c = comparison(pass);
      const bool prefill = pass.kind == Pass::Kind::prefill;
      Json line = {{"shape", model.shape},
                   {"form", model.form},
                   {"case", prefill ? "prefill" : "decode"},
                   {prefill ? "input_len" : "batch", pass.size},
                   {"cpu", machine_.cpu},
                   {"threads", machine_.threads},
                   {"read_gb_s", spread_of(read_gb_s_).median},
                   {"peak", machine_.peak_name},
                   {"peak_gflop_s", machine_.peak_gflop_s},
                   {"integer_gop_s", machine_.integer_gop_s},
                   {"own", json_of(own_, c.own)},
                   {"peers", Json::array()}};
      for (size_t i = 0; i < peers_.size(); ++i)
        if (c.peers[i]) line["peers"].push_back(json_of(peers_[i], *c.peers[i]));
      if (c.better >= 0)
        line.update({{"better", peers_[c.better].name},
                     {"ratio", c.ratio.median},
                     {"ratio_min", c.ratio.low},
                     {"ratio_max", c.ratio.high}});
      fmt::print("{}\n", line.dump());
    }
    Json memory = {{"shape", model.shape},
                   {"form", model.form},
                   {"case", "peak_resident"},
                   {"file_bytes", model.file_bytes}};
    for (const ComparedEngine* engine : engines())
      memory[engine->name] = engine->peak_resident_bytes;
    fmt::print("{}\n", memory.dump());
    std::fflush(stdout);
  }

  std::vector<const ComparedEngine*> engines() const {
    std::vector<const ComparedEngine*> all = {&own_};
    for (const ComparedEngine& peer : peers_) all.push_back(&peer);
    return all;
  }

  const BenchPeersOptions& o_;
  std::string own_path_;
  ComparedEngine own_;
  std::vector<ComparedEngine> peers_;
  OwnRun machine_;  // hocket's latest run, for machine, threads and limits
  Rounds roof_;
  std::vector<double> read_gb_s_;
};

}  // namespace

int bench_peers(const BenchPeersOptions& options) {
  const Result<void> done = Peers(options).run();
  return done ? 0 : end_with(done.error());
}

}  // namespace hocket
