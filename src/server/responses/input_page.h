// One page of what an answer of /v1/responses was made from.   Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "server/access/request_memory.h"
#include "server/responses/response_store.h"

namespace hocket {

// The value of a query's parameter, as sent: ids and numbers need no escapes.
std::string_view query_value(std::string_view query, std::string_view name);

// Items before the output, the newest first unless order=asc, as JSON. Turns are read up to the end
// of the page, as text, and only its own items are copied. Errors: invalid_request; those of
// `held`.
Result<std::string> input_page(const ResponseStore::Record& record, std::string_view query,
                               HeldBytes held);

}  // namespace hocket
