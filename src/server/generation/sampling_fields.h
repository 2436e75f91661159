// Reads the fields of all APIs that set how tokens are chosen and where an answer ends.
#pragma once

#include "server/generation/generation_request.h"
#include "server/http/json_body.h"

namespace hocket {

// Reads temperature, top_p, top_k, min_p, penalties, logit_bias, seed, ignore_eos, stop,
// stop_token_ids; refuses known fields that are not supported. `prompt.sampling` holds the defaults
// before.
void read_sampling(Fields& fields, const ServedModel& model, GenerationRequest& request,
                   Prompt& prompt);

// Reads a list of token ids below the vocabulary's size.
void read_ids(Fields& fields, std::string_view name, const Json& list, const ServedModel& model,
              std::vector<TokenId>& out);
// Reads the name by which a client can abort its request.
void read_rid(Fields& fields, std::string& rid);
// Reads priority, cache_salt, user and the like, which are at the top level in every API.
void read_envelope(Fields& fields, GenerationRequest& request);

}  // namespace hocket
