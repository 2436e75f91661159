// Returns one page of the items that were the input of an answer of /v1/responses.   Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "server/apis/responses/response_store.h"
#include "server/usage/request_memory.h"

namespace hocket {

// Returns the items before the output as JSON, the newest first unless order=asc. Turns are read as
// text up to the end of the page, and only items of the page are copied. Errors: invalid_request;
// those of `held`.
Result<std::string> input_page(const ResponseStore::Record& record, std::string_view query,
                               HeldBytes held);

}  // namespace hocket
