// hocket doctor: what this machine offers and what to change, one line a fact.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/flags.h"
#include "base/host_findings.h"
#include "compute/comm/ucx_settings.h"
#include "server/wire/http.h"

namespace hocket {
namespace {

struct DoctorOptions {
  std::string host = "127.0.0.1";
  int port = 30000;
  bool json = false;
};

// What ranks in processes of their own reach each other by.
Finding ucx_finding() {
  const auto end = UcxTransport::create(0, 1, {});
  if (!end) return {"UCX", end.error().message, end.error().fix, Weight::hint};
  return {"UCX", fmt::format("{}; devices {}", (*end)->describe(), ucx_devices_here()), "",
          Weight::fine};
}

// Whether a server could listen where it would.
Finding port_finding(const DoctorOptions& options) {
  Finding finding{"port", fmt::format("{} of {} is free", options.port, options.host), "",
                  Weight::fine};
  HttpOptions http;
  http.host = options.host;
  http.port = options.port;
  const auto server =
      HttpServer::create(http, [](HttpRequest&&, const std::shared_ptr<HttpExchange>&) {});
  if (!server) finding = {"port", server.error().message, server.error().fix, Weight::bad};
  return finding;
}

Finding isa_finding() {
  const Result<Isa> chosen = choose_isa();
  if (!chosen) return {"HOCKET_ISA", chosen.error().message, chosen.error().fix, Weight::bad};
  Finding finding{"HOCKET_ISA", std::string(isa_name(*chosen)), "", Weight::fine};
  if (*chosen < detect_isa()) {
    finding.weight = Weight::slow;
    finding.remedy = fmt::format("unset HOCKET_ISA: this processor has {}", isa_name(detect_isa()));
  }
  return finding;
}

void print(const Finding& finding, bool json) {
  if (json) {
    fmt::print("{}\n", nlohmann::json({{"name", finding.name},
                                       {"value", finding.value},
                                       {"weight", weight_name(finding.weight)},
                                       {"remedy", finding.remedy}})
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("{:<16} {}\n", finding.name, finding.value);
  if (finding.weight != Weight::fine)
    fmt::print("{:<16}   {}: {}\n", "", weight_name(finding.weight), finding.remedy);
}

Result<int> examine_machine(const Arguments& arguments) {
  DoctorOptions options;
  HOCKET_TRY(const bool go,
             parse_flags({.command = "doctor",
                          .about = "what this machine offers, and what to change",
                          .groups = {{"Output", {{"json", &options.json, "one object a line", ""}}},
                                     {"Server",
                                      {{"host", &options.host, "where it would listen", ""},
                                       {"port", &options.port, "looked at: is it free", ""}}}},
                          .takes_config = false},
                         arguments));
  if (!go) return 0;
  std::vector<Finding> findings = judge(inspect_machine(), read_host_facts());
  findings.push_back(port_finding(options));
  findings.push_back(ucx_finding());
  findings.push_back(isa_finding());
  bool works = true;
  for (const Finding& finding : findings) {
    print(finding, options.json);
    works = works && finding.weight != Weight::bad;
  }
  return works ? 0 : 1;
}

}  // namespace

int doctor(const Arguments& arguments) {
  const Result<int> done = examine_machine(arguments);
  return done ? *done : report(done.error());
}

}  // namespace hocket
