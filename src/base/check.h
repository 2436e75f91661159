// HOCKET_CHECK tests an invariant of our own code. A failure is a bug: it prints both values and
// stops the process. It is always on. For mistakes of others (files, peers, clients) use
// base/result.h.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <type_traits>

namespace hocket {

// Prints `file:line: CHECK failed: what` to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, std::string_view what);

namespace check_detail {

template <class T>
std::string show(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return fmt::format("{}", static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::is_null_pointer_v<T>) {
    return "nullptr";
  } else if constexpr (std::is_pointer_v<T>) {
    return fmt::format("{}", static_cast<const void*>(value));
  } else if constexpr (fmt::is_formattable<T>::value) {
    return fmt::format("{}", value);
  } else {
    return "?";
  }
}

// Splits `a < b` into its sides, so that a failure can print both values.
template <class A>
struct LeftOperand {
  const A& value;
};
struct OperandSplitter {
  template <class A>
  LeftOperand<A> operator<=>(const A& a) const {
    return {a};
  }
};
struct ComparisonResult {
  bool ok;
  std::string values;
  explicit operator bool() const { return ok; }  // makes a && b and a || b possible
};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare"
#define HOCKET_CHECK_OP(op)                                          \
  template <class A, class B>                                        \
  ComparisonResult operator op(LeftOperand<A> a, const B& b) {       \
    if (a.value op b) return {true, {}};                             \
    return {false, fmt::format("{} vs {}", show(a.value), show(b))}; \
  }
HOCKET_CHECK_OP(==)
HOCKET_CHECK_OP(!=)
HOCKET_CHECK_OP(<)
HOCKET_CHECK_OP(<=)
HOCKET_CHECK_OP(>)
HOCKET_CHECK_OP(>=)
#undef HOCKET_CHECK_OP
#pragma GCC diagnostic pop
inline ComparisonResult verdict(ComparisonResult v) {
  return v;
}
inline ComparisonResult verdict(bool ok) {
  return {ok, {}};
}
template <class A>
ComparisonResult verdict(LeftOperand<A> a) {
  return {static_cast<bool>(a.value), {}};
}
inline std::string sentence(const char* condition, const ComparisonResult& v) {
  return v.values.empty() ? condition : fmt::format("{} ({})", condition, v.values);
}

}  // namespace check_detail
}  // namespace hocket

// <=> binds more tightly than comparisons, less tightly than arithmetic: it takes the left side.
#define HOCKET_CHECK(condition)                                                             \
  do {                                                                                      \
    if (auto hocket_verdict = ::hocket::check_detail::verdict(                              \
            ::hocket::check_detail::OperandSplitter{} <=> condition);                       \
        !hocket_verdict.ok) [[unlikely]]                                                    \
      ::hocket::check_failed(__FILE__, __LINE__,                                            \
                             ::hocket::check_detail::sentence(#condition, hocket_verdict)); \
  } while (false)
