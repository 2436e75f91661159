// hocket doctor: prints what this machine offers and what to change, one line a fact.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/start_checks.h"
#include "base/host_findings.h"
#include "compute/comm/ucx_settings.h"
#include "compute/kernels/choose.h"
#include "engine/tier/cache_store_setup.h"
#include "server/apis/apis.h"
#include "server/http/http.h"

namespace hocket {
namespace {

struct DoctorOptions {
  HttpSettings http;
  MemorySettings memory;  // the store alone
  bool json = false;
};

// Reports UCX, which carries messages between ranks in different processes.
Finding ucx_finding() {
  const auto end = UcxTransport::create(0, 1, {});
  if (!end) return {"UCX", end.error().message, end.error().fix, Severity::hint};
  return {"UCX", fmt::format("{}; devices {}", (*end)->describe(), ucx_devices_here()), "",
          Severity::fine};
}

// Tries to listen on this host and port, and reports the result.
Finding port_finding(const HttpSettings& http) {
  Finding finding{"port", fmt::format("{} of {} is free", http.port, http.host), "",
                  Severity::fine};
  HttpOptions options;
  options.host = http.host;
  options.port = http.port;
  options.error_format_of = error_format_of;
  const auto server =
      HttpServer::create(options, [](HttpRequest&&, const std::shared_ptr<HttpExchange>&) {});
  if (!server) finding = {"port", server.error().message, server.error().fix, Severity::bad};
  return finding;
}

// Warns if any client can reach a server at that address without a key.
Finding access_finding(const HttpSettings& http) {
  if (const auto open = open_to_all(http))
    return {"access", fmt::format("{}: {}", open->what, open->why), open->fix, Severity::slow};
  return {"access", "only clients with a key, or only this machine", "", Severity::fine};
}

// Connects to the store of prefixes, and reports what there is.
Finding store_finding(const MemorySettings& memory) {
  const Result<std::string> found = probe_store(memory);
  if (!found) return {"store", found.error().message, found.error().fix, Severity::bad};
  return {"store", *found, "", Severity::fine};
}

void add_level(std::vector<Finding>& findings) {
  const Result<Isa> chosen = choose_isa();
  if (!chosen) {
    findings.push_back({"HOCKET_ISA", chosen.error().message, chosen.error().fix, Severity::bad});
    return;
  }
  findings.push_back(judge_level(*chosen, detect_isa()));
  if (*chosen >= Isa::amx)  // tiles
    findings.push_back({"few rows",
                        fmt::format("below {} rows bf16 is multiplied by {}", kTileRows,
                                    uses_vdpbf16ps(*chosen) ? "VDPBF16PS (avx512_bf16)" : "FMA"),
                        "", Severity::fine});
}

void print(const Finding& finding, bool json) {
  if (json) {
    fmt::print("{}\n", nlohmann::json({{"name", finding.name},
                                       {"value", finding.value},
                                       {"weight", severity_name(finding.severity)},
                                       {"remedy", finding.remedy}})
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("{:<16} {}\n", finding.name, finding.value);
  if (finding.severity != Severity::fine)
    fmt::print("{:<16}   {}: {}\n", "", severity_name(finding.severity), finding.remedy);
}

Result<int> examine_machine(const Arguments& arguments) {
  DoctorOptions options;
  HOCKET_TRY(
      const bool go,
      parse_flags(
          {.command = "doctor",
           .about = "check this machine, and suggest changes",
           .groups = {{"Output", {{"json", &options.json, "prints JSON, one object a line", ""}}},
                      {"Server",
                       {{"host", &options.http.host, "where it would listen", ""},
                        {"port", &options.http.port, "checked: is it free", ""},
                        {"api-key", &options.http.api_key, "checked: would it ask for one", ""},
                        {"api-key-file", &options.http.api_key_file,
                         "checked: would it ask for a key", ""},
                        {"kv-cache-store", &options.memory.kv_cache_store,
                         "checked: does this Redis or Valkey answer", ""},
                        {"kv-cache-store-cacert", &options.memory.kv_cache_store_cacert,
                         "its CA, if it is rediss://", ""},
                        {"kv-cache-store-cert", &options.memory.kv_cache_store_cert,
                         "the server's certificate for it", ""},
                        {"kv-cache-store-key", &options.memory.kv_cache_store_key,
                         "the private key of that certificate", ""}}}},
           .takes_config = false},
          arguments));
  if (!go) return 0;
  std::vector<Finding> findings = judge(inspect_machine(), read_host_facts());
  findings.push_back(port_finding(options.http));
  findings.push_back(access_finding(options.http));
  findings.push_back(ucx_finding());
  if (!options.memory.kv_cache_store.empty()) findings.push_back(store_finding(options.memory));
  add_level(findings);
  bool works = true;
  for (const Finding& finding : findings) {
    print(finding, options.json);
    works = works && finding.severity != Severity::bad;
  }
  return works ? 0 : 1;
}

}  // namespace

int doctor(const Arguments& arguments) {
  const Result<int> done = examine_machine(arguments);
  return done ? *done : report(done.error());
}

}  // namespace hocket
