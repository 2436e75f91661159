// hocket bench NAME, or --compare: reads a bench's flags and runs it.
#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/measure/bench_balance.h"
#include "apps/measure/bench_control.h"
#include "apps/measure/bench_lists.h"
#include "apps/measure/bench_machine.h"
#include "apps/measure/bench_speculation.h"
#include "apps/running_server.h"
#include "apps/server_address.h"
#include "base/log.h"
#include "bench/all2all.h"
#include "bench/compare_builds.h"
#include "bench/dummy_shape.h"
#include "bench/grammar.h"
#include "bench/kernels.h"
#include "bench/one_batch.h"
#include "bench/overlap.h"
#include "bench/peers.h"
#include "bench/scheduler.h"
#include "bench/serving.h"
#include "bench/streams.h"

namespace hocket {
namespace {

// Has `model` be a shape with random weights, whose folder the result deletes; nullopt: no shape.
Result<std::optional<DummyShape>> use_shape(const std::string& shape, ModelSettings& model) {
  if (shape.empty()) return std::nullopt;
  HOCKET_TRY(DummyShape dummy, DummyShape::create(shape));
  model.model_path = dummy.folder().string();
  model.load_format = "dummy";
  return dummy;
}

Result<int> kernels(const Arguments& arguments) {
  BenchKernelsOptions o;
  HOCKET_TRY(const bool go,
             parse_flags({.command = "bench kernels",
                          .about = "linear layers and grouped experts, against ref and this "
                                   "machine's limits",
                          .groups = {{"Bench",
                                      {{"quick", &o.quick, "fewer runs", ""},
                                       {"num-threads", &o.threads, "0: one a core", ""},
                                       {"json", &o.json, "prints JSON, one object a line", ""}}}},
                          .takes_config = false},
                         arguments));
  return go ? bench_kernels(o) : 0;
}

Result<int> one_batch(const Arguments& arguments) {
  BenchOneBatchOptions o;
  std::vector<std::string> input_lens = {"512", "2048"}, batches = {"1", "4", "16", "32"};
  std::vector<FlagGroup> groups = model_flags(o.settings);
  groups.insert(
      groups.begin(),
      {"Bench",
       {{"shape", &o.shape,
         "small, mid, hybrid, hybrid-small, gptoss: random weights, where no --model-path is given",
         ""},
        {"input-len", &input_lens, "tokens of the prefills, as 512,2048", ""},
        {"batch", &batches, "sequences of the decodes, as 1,4,16,32", ""},
        {"context-len", &o.context_len, "tokens of a sequence before decoding", ""},
        {"shared-prefix", &o.shared_prefix,
         "number of those tokens that all sequences of a decode share", ""},
        {"output-len", &o.output_len, "decode steps of a round", ""},
        {"rounds", &o.rounds, "counted rounds", ""},
        {"by-operation", &o.by_operation,
         "also the time of each operation, and its share of the limits", ""},
        {"json", &o.json, "prints JSON, one object a line", ""}}});
  HOCKET_TRY(const bool go, parse_flags({.command = "bench one-batch",
                                         .about = "prefill and decode of a whole model, no server",
                                         .groups = std::move(groups)},
                                        arguments));
  if (!go) return 0;
  HOCKET_TRY(o.input_lens, parse_list(input_lens, "input-len"));
  HOCKET_TRY(o.batches, parse_list(batches, "batch"));
  return bench_one_batch(std::move(o));
}

Result<int> serving(const Arguments& arguments) {
  BenchServingOptions o;
  LoadOptions& load = o.load;
  load.server.port = 0;
  ServerSettings settings;
  std::string endpoint = "chat", shape, url;
  std::vector<FlagGroup> groups = model_flags(settings);
  groups.push_back(overlap_flags(settings));
  groups.insert(
      groups.begin(),
      {"Load",
       {{"host", &load.server.host, "host of the server", ""},
        {"port", &load.server.port,
         "port of a running server; 0: serve --model-path in this process", ""},
        {"url", &url, "http://host:port or https://host:port, in place of --host and --port", ""},
        {"ssl-ca", &load.server.ca_file, "certificates that vouch for the server, PEM, with https",
         ""},
        {"api-key", &load.server.api_key, "key of the server", ""},
        {"endpoint", &endpoint, "chat, completions or generate", ""},
        {"num-prompts", &load.num_prompts, "requests in all", ""},
        {"seconds", &load.seconds, "duration of the load, in place of --num-prompts", ""},
        {"max-concurrency", &load.max_concurrency, "clients, one request at a time each", ""},
        {"request-rate", &load.request_rate, "requests a second, at random; 0: no limit", ""},
        {"random-input-len", &load.input_len, "longest prompt: tokens; words in chat", ""},
        {"random-output-len", &load.output_len, "longest answer, tokens", ""},
        {"random-range-ratio", &load.range_ratio, "shortest as a share of the longest", ""},
        {"shared-prefix-len", &load.shared_prefix_len, "tokens (words) that all prompts begin with",
         ""},
        {"temperature", &load.temperature, "temperature of the answers", ""},
        {"seed", &load.seed, "seed of prompts, lengths and gaps", ""},
        {"timeout", &load.server.timeout_s, "seconds of silence that fail a request", ""},
        {"shape", &shape,
         "small, mid, hybrid, hybrid-small, gptoss: serve random weights, with --endpoint generate",
         ""},
        {"log", &o.log, "writes the requests to this file, for hocket simulate --trace", ""},
        {"json", &o.json, "prints one JSON object", ""}}});
  HOCKET_TRY(const bool go, parse_flags({.command = "bench serving",
                                         .about = "many clients over HTTP",
                                         .groups = std::move(groups)},
                                        arguments));
  if (!go) return 0;
  HOCKET_TRY(load.endpoint, parse_endpoint(endpoint));
  HOCKET_TRY_VOID(take_url(url, load.server));
  HOCKET_TRY(const auto dummy, use_shape(shape, settings.model));
  std::optional<RunningServer> own;
  if (load.server.port == 0) {
    settings.http.host = load.server.host;
    settings.http.port = 0;
    settings.http.api_key = load.server.api_key;
    HOCKET_TRY_VOID(choose_model(settings));
    log::set_level(log::Level::warning);
    HOCKET_TRY(own, start_server(settings));
    load.server.port = own->server->port();
  }
  return bench_serving(std::move(o));
}

Result<int> streams(const Arguments& arguments) {
  BenchStreamsOptions o;
  HOCKET_TRY(
      const bool go,
      parse_flags(
          {.command = "bench streams",
           .about = "memory and time to the first bytes of waiting streams and running streams",
           .groups = {{"Bench",
                       {{"model-path", &o.model_path, "the bundled model if absent", ""},
                        {"idle", &o.num_idle, "streams whose requests wait", ""},
                        {"busy", &o.num_busy, "clients that ask again and again", ""},
                        {"seconds", &o.seconds, "seconds of each of the two parts", ""},
                        {"output-len", &o.output_len, "tokens of a busy answer", ""},
                        {"json", &o.json, "prints JSON, one object a line", ""}}}},
           .takes_config = false},
          arguments));
  return go ? bench_streams(o) : 0;
}

Result<int> scheduler(const Arguments& arguments) {
  BenchSchedulerOptions o;
  HOCKET_TRY(const bool go,
             parse_flags({.command = "bench scheduler",
                          .about = "the policy's work in a step, without a model",
                          .groups = {{"Bench",
                                      {{"quick", &o.quick, "fewer steps and sizes", ""},
                                       {"json", &o.json, "prints JSON, one object a line", ""}}}},
                          .takes_config = false},
                         arguments));
  return go ? bench_scheduler(o) : 0;
}

Result<int> grammar(const Arguments& arguments) {
  BenchGrammarOptions o;
  std::string shape;
  std::vector<FlagGroup> groups = model_flags(o.settings);
  groups.insert(
      groups.begin(),
      {"Bench",
       {{"shape", &shape,
         "small, mid, hybrid, hybrid-small, gptoss: random weights, the bundled model's tokens",
         ""},
        {"masks", &o.only_masks,
         "measure masks alone, with the vocabulary of any --tokenizer-path; no answers", ""},
        {"schemas", &o.num_schemas, "random ones, compiled and walked through", ""},
        {"rows", &o.rows, "answers at a time", ""},
        {"output-len", &o.output_len, "tokens of an answer", ""},
        {"rounds", &o.rounds, "counted rounds", ""},
        {"json", &o.json, "prints JSON, one object a line", ""}}});
  HOCKET_TRY(const bool go,
             parse_flags({.command = "bench grammar",
                          .about = "compiling and masks; answers with a schema beside free text",
                          .groups = std::move(groups)},
                         arguments));
  if (!go) return 0;
  if (!o.only_masks || o.settings.model.tokenizer_path.empty())
    HOCKET_TRY_VOID(choose_model(o.settings));
  if (!shape.empty()) o.settings.model.tokenizer_path = o.settings.model.model_path;
  HOCKET_TRY(const auto dummy, use_shape(shape, o.settings.model));
  log::set_level(log::Level::warning);
  return bench_grammar(o);
}

Result<int> all2all(const Arguments& arguments) {
  BenchAllToAllOptions o;
  std::vector<std::string> bytes = {"4000", "64000", "500000", "2500000"};
  HOCKET_TRY(
      const bool go,
      parse_flags(
          {.command = "bench all2all",
           .about = "the exchange between ranks: UCX, sockets, threads, MPI",
           .groups = {{"Bench",
                       {{"ranks", &o.num_ranks, "processes", ""},
                        {"bytes", &bytes, "size of a message to each peer, as 4000,500000", ""},
                        {"rounds", &o.rounds, "counted rounds", ""},
                        {"probe", &o.probe,
                         "measure the wait that is left after 12 ms of computing instead", ""},
                        {"link-gbit", &o.link_gbit,
                         "rate of a rank's link, to print the share of it that is reached", ""},
                        {"json", &o.json, "prints JSON, one object a line", ""}}},
                      {"Ranks started by hand, on hosts or in network name spaces",
                       {{"rank", &o.rank, "rank of this process; -1: all are started here", ""},
                        {"addr", &o.addr, "host:port where rank 0 listens", ""},
                        {"mpirun", &o.mpirun, "for rank 0: mpirun and how it reaches the hosts",
                         ""},
                        {"ucx-net-devices", &o.devices, "as eth0; the one of the address", ""}}}},
           .takes_config = false},
          arguments));
  HOCKET_TRY(o.bytes, parse_list(bytes, "bytes"));
  return go ? bench_all2all(o) : 0;
}

Result<int> overlap(const Arguments& arguments) {
  BenchOverlapOptions o;
  std::vector<std::string> decode_rows, prefill_rows, links, ranks;
  HOCKET_TRY(
      const bool go,
      parse_flags(
          {.command = "bench overlap",
           .about = "share of the transfers that overlap hides, for every order and the planner's "
                    "choice",
           .groups = {{"Bench",
                       {{"real", &o.real, "a model and its ranks instead of virtual time", ""},
                        {"quick", &o.quick, "both, a few points, within two minutes", ""},
                        {"decode-rows", &decode_rows, "answers of a rank, as 1,64", ""},
                        {"prefill-rows", &prefill_rows, "prompt tokens of a rank, as 512", ""},
                        {"link-gbit", &links, "rates of a rank's link, as 0.2,1", ""},
                        {"json", &o.json, "prints JSON, one object a line", ""}}},
                      {"Virtual time",
                       {{"search", &o.search, "compare with the best of all orders, too", ""},
                        {"ranks", &ranks, "numbers of ranks, as 2,8", ""},
                        {"shape", &o.shape, "qwen3-30b, shared-16b or free; all", ""}}},
                      {"Real",
                       {{"rounds", &o.rounds, "counted rounds of the six runs", ""},
                        {"auto-steps", &o.auto_steps, "steps that the planner has to choose", ""},
                        {"rank", &o.rank, "rank of this process; -1: ranks are threads of it", ""},
                        {"addr", &o.addr, "host:port where rank 0 listens", ""},
                        {"num-ranks", &o.num_ranks, "ranks", ""},
                        {"ucx-net-devices", &o.devices, "as eth0; the one of the address", ""},
                        {"own-gbit", &o.own_gbit, "rate of the real link", ""}}}},
           .takes_config = false},
          arguments));
  if (!go) return 0;
  HOCKET_TRY(o.decode_rows, parse_list(decode_rows, "decode-rows"));
  HOCKET_TRY(o.prefill_rows, parse_list(prefill_rows, "prefill-rows"));
  HOCKET_TRY(o.link_gbit, parse_list<double>(links, "link-gbit"));
  HOCKET_TRY(o.ranks, parse_list(ranks, "ranks"));
  return bench_overlap(o);
}

Result<int> peers(const Arguments& arguments) {
  BenchPeersOptions o;
  std::vector<std::string> input_lens = {"512", "2048"}, batches = {"1", "16", "32"};
  HOCKET_TRY(
      const bool go,
      parse_flags(
          {.command = "bench peers",
           .about = "compares with installed llama.cpp and ik_llama.cpp",
           .groups =
               {{"Peers",
                 {{"llama-bench", &o.llama.bench, "llama.cpp's program", ""},
                  {"llama-batched-bench", &o.llama.batched_bench, "its program for batches", ""},
                  {"ik-llama-bench", &o.ik.bench, "ik_llama.cpp's program", ""},
                  {"ik-llama-batched-bench", &o.ik.batched_bench, "its program for batches", ""},
                  {"ik-random-tokens", &o.ik_random_tokens,
                   "its program was changed to feed random tokens instead of one repeated token",
                   ""},
                  {"peer-model", &o.models,
                   "SHAPE-FORM=FILE, several: a GGUF file of that shape and form bf16, int8, int4 "
                   "or "
                   "mxfp4; NAME-gguf=FILE: any GGUF file, which hocket reads too",
                   ""}}},
                {"Bench",
                 {{"input-len", &input_lens, "tokens of the prefills, as 512,2048", ""},
                  {"batch", &batches, "sequences of the decodes, as 1,16,32", ""},
                  {"context-len", &o.context_len, "tokens of a sequence before decoding", ""},
                  {"output-len", &o.output_len, "decode steps of a round", ""},
                  {"rounds", &o.rounds, "rounds of all programs in turn", ""},
                  {"json", &o.json, "prints JSON, one object a line", ""}}}},
           .takes_config = false},
          arguments));
  if (!go) return 0;
  HOCKET_TRY(o.input_lens, parse_list(input_lens, "input-len"));
  HOCKET_TRY(o.batches, parse_list(batches, "batch"));
  return bench_peers(o);
}

Result<int> compare(const Arguments& arguments) {
  CompareBuildsOptions o;
  std::vector<std::string> programs, input_lens = {"512"}, batches = {"1", "16"};
  HOCKET_TRY(const bool go,
             parse_flags(
                 {.command = "bench --compare",
                  .about = "two builds of this program in turn; exit 1 where the new one is slower",
                  .groups = {{"Bench",
                              {{"compare", &programs, "OLD [NEW]; this program if absent", ""},
                               {"least-ratio", &o.min_ratio,
                                "new/old of a pass's median, below: exit 1", ""},
                               {"shape", &o.shape, "small or mid", ""},
                               {"quantization", &o.forms, "none, int8, int4: several", ""},
                               {"input-len", &input_lens, "tokens of the prefills", ""},
                               {"batch", &batches, "sequences of the decodes", ""},
                               {"output-len", &o.output_len, "decode steps of a round", ""},
                               {"rounds", &o.rounds, "rounds of both programs in turn", ""},
                               {"json", &o.json, "prints JSON, one object a line", ""}}}},
                  .takes_config = false},
                 arguments));
  if (!go) return 0;
  HOCKET_TRY(o.input_lens, parse_list(input_lens, "input-len"));
  HOCKET_TRY(o.batches, parse_list(batches, "batch"));
  if (programs.empty() || programs.size() > 2)
    return fail(error(ErrorCode::usage, "--compare names {} programs, must name one or two",
                      programs.size())
                    .with_fix("hocket bench --compare OLD [NEW]"));
  o.before = programs[0];
  if (programs.size() == 2) o.after = programs[1];
  return compare_builds(o);
}

struct NamedBench {
  std::string_view name;
  Result<int> (*run)(const Arguments&);
};
constexpr NamedBench kBenchFunctions[] = {{"kernels", kernels},
                                          {"one-batch", one_batch},
                                          {"serving", serving},
                                          {"streams", streams},
                                          {"scheduler", scheduler},
                                          {"grammar", grammar},
                                          {"speculation", speculation_command},
                                          {"all2all", all2all},
                                          {"overlap", overlap},
                                          {"peers", peers},
                                          {"balance", balance_command},
                                          {"control", control_command},
                                          {"machine", machine_command}};

std::string usage() {
  std::string names;
  for (const NamedBench& bench : kBenchFunctions)
    names += fmt::format("{}{}", names.empty() ? "" : " | ", bench.name);
  return fmt::format("hocket bench {}, or --compare OLD [NEW]", names);
}

// `help` is --help=FORM. The words of a shell's completion have the names, too.
Result<int> print_all_help(const std::string& help) {
  int status = 0;
  for (const NamedBench& bench : kBenchFunctions) {
    if (help == "--help=words") fmt::print("{} ", bench.name);
    HOCKET_TRY(const int printed, bench.run({help}));
    status = std::max(status, printed);
  }
  return status;
}

}  // namespace

int bench(const Arguments& arguments) {
  const std::string name = arguments.empty() ? "" : arguments[0];
  const auto found = std::ranges::find(kBenchFunctions, name, &NamedBench::name);
  Result<int> done = 0;
  if (found != std::end(kBenchFunctions))
    done = found->run(Arguments(arguments.begin() + 1, arguments.end()));
  else if (name.starts_with("--compare"))
    done = compare(arguments);
  else if (name == "--help" || name == "-h")
    fmt::print("{}; each has --help\n", usage());
  else if (name.starts_with("--help="))
    done = print_all_help(name);
  else
    done = fail(error(ErrorCode::usage, "hocket bench {} is not a bench", name).with_fix(usage()));
  return done ? *done : report(done.error());
}

}  // namespace hocket
