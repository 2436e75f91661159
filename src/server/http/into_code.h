// The completion token of the wire's coroutines: an operation's error is no exception.
#pragma once

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace hocket {

// Awaits an operation and puts its error into `code`, which must outlive it:
// `co_await timer.async_wait(into(code))`.
inline auto into(boost::system::error_code& code) {
  return boost::asio::redirect_error(boost::asio::use_awaitable, code);
}

}  // namespace hocket
