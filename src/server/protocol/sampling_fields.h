// The fields by which all APIs say how tokens are chosen and where an answer ends.
#pragma once

#include "core/model_config.h"
#include "server/protocol/generation_request.h"
#include "server/protocol/json_body.h"

namespace hocket {

// temperature, top_p, top_k, min_p, penalties, logit_bias, seed, ignore_eos, stop, stop_token_ids;
// refuses those that a later version serves. `prompt.sampling` holds the defaults.
void read_sampling(Fields& fields, const ServedModel& model, GenerationRequest& request,
                   Prompt& prompt);
// generation_config.json's wishes over SamplingParams' own.
SamplingParams default_sampling(const GenerationDefaults& defaults);

// A list of token ids below the vocabulary's size.
void read_ids(Fields& fields, std::string_view name, const Json& list, const ServedModel& model,
              std::vector<TokenId>& out);
// The name by which a client can abort its request.
void read_rid(Fields& fields, std::string& rid);
// priority, cache_salt, user and the like, at the top level everywhere.
void read_envelope(Fields& fields, GenerationRequest& request);

}  // namespace hocket
