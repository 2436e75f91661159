#include "apps/measure/bench_speculation.h"

#include <optional>
#include <string>
#include <vector>

#include "apps/flags.h"
#include "apps/loaded_model.h"
#include "apps/measure/bench_lists.h"
#include "base/log.h"
#include "bench/dummy_shape.h"
#include "bench/speculation.h"

namespace hocket {

Result<int> speculation_command(const Arguments& arguments) {
  BenchSpeculationOptions o;
  std::string shape;
  std::vector<std::string> acceptances, answers, contexts, drafts, edits;
  std::vector<FlagGroup> groups = model_flags(o.settings);
  groups.insert(
      groups.begin(),
      {"Bench",
       {{"shape", &shape, "small, mid, hybrid, hybrid-small, gptoss: random weights", ""},
        {"acceptances", &acceptances, "percent of drafts that are accepted: 30,60,80,90", ""},
        {"edits", &edits,
         "drafts by look-up instead, in answers that quote their prompt: percent of its tokens "
         "with an edit",
         ""},
        {"speculative-algorithm", &o.algorithm,
         "NGRAM, NEXTN or auto: the model's own drafts instead of imposed ones", ""},
        {"answers", &answers, "at a time, over all ranks: 1,4,16,64", ""},
        {"contexts", &contexts, "tokens of a prompt: 512", ""},
        {"drafts", &drafts, "fixed numbers of drafts to compare with the gate's choice: 1,2,3,4",
         ""},
        {"output-len", &o.output_len, "tokens of an answer", ""},
        {"rounds", &o.rounds, "counted rounds", ""},
        {"seconds", &o.seconds, "seconds of steps timed together, at least", ""},
        {"gate-steps", &o.gate_steps, "steps in which the gate may learn", ""},
        {"point-seconds", &o.point_seconds, "ends a point early; 0: no limit", ""},
        {"json", &o.json, "prints JSON, one object a line", ""}}});
  HOCKET_TRY(const bool go, parse_flags({.command = "bench speculation",
                                         .about = "speed-up by drafts at given rates of acceptance",
                                         .groups = std::move(groups)},
                                        arguments));
  if (!go) return 0;
  HOCKET_TRY_VOID(replace_list(acceptances, "acceptances", o.acceptances));
  HOCKET_TRY_VOID(replace_list(edits, "edits", o.edits));
  HOCKET_TRY_VOID(replace_list(answers, "answers", o.answers));
  HOCKET_TRY_VOID(replace_list(contexts, "contexts", o.contexts));
  HOCKET_TRY_VOID(replace_list(drafts, "drafts", o.drafts));
  std::optional<DummyShape> dummy;
  if (shape.empty()) HOCKET_TRY_VOID(choose_model(o.settings));
  if (!shape.empty()) {
    HOCKET_TRY(dummy, DummyShape::create(shape));
    o.settings.model.model_path = dummy->folder().string();
    o.settings.model.load_format = "dummy";
  }
  log::set_level(log::Level::warning);
  return bench_speculation(o);
}

}  // namespace hocket
