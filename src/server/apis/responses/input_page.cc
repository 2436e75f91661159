#include "server/apis/responses/input_page.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "server/apis/responses/response_items.h"
#include "server/http/json_body.h"
#include "server/http/request_target.h"

namespace hocket {
namespace {

constexpr size_t kMinItemBytes = 3;  // "{}," in a list

Error bad_query(std::string_view name, std::string_view must) {
  return error(ErrorCode::invalid_request, "{} must be {}", name, must)
      .with_param(std::string(name));
}

struct PageQuery {
  size_t limit = 20;
  bool newest_first = true;
  std::string after;  // an id as JSON; empty: from the beginning
};

Result<PageQuery> read_query(std::string_view query) {
  PageQuery out;
  if (const auto text = query_value(query, "limit"); !text.empty()) {
    const auto read = std::from_chars(text.data(), text.data() + text.size(), out.limit);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size() || out.limit < 1 ||
        out.limit > 100)
      return fail(bad_query("limit", "between 1 and 100"));
  }
  const std::string_view order = query_value(query, "order");
  if (!order.empty() && order != "asc" && order != "desc")
    return fail(bad_query("order", "asc or desc"));
  out.newest_first = order != "asc";
  if (const auto after = query_value(query, "after"); !after.empty())
    out.after = json_string(after);
  return out;
}

// One item of a turn's text.
struct Item {
  std::string_view text;
  std::string_view id;  // with quotes; empty: none
};

// Cuts a list of objects into its items. to_text() must have written it, so it has no spaces.
void cut_items(std::string_view list, std::vector<Item>& out) {
  int level = 0;
  Item item;
  size_t begin = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    const char c = list[i];
    if (c == '"') {
      const size_t end = end_of_json_string(list, i);
      const bool is_key = level == 2 && (list[i - 1] == '{' || list[i - 1] == ',');
      if (is_key && list.substr(i).starts_with(R"("id":")"))
        item.id = list.substr(end + 1, end_of_json_string(list, end + 1) - end - 1);
      i = end - 1;
    } else if (c == '[' || c == '{') {
      if (level++ == 1) {
        begin = i;
        item.id = {};
      }
    } else if (c == ']' || c == '}') {
      if (--level != 1) continue;
      item.text = list.substr(begin, i + 1 - begin);
      out.push_back(item);
    }
  }
}

// Builds a page. Takes one turn after another, in the order of the page, until the page is
// complete.
class PageWriter {
 public:
  PageWriter(PageQuery wanted, HeldBytes held)
      : wanted_(std::move(wanted)), held_(std::move(held)), found_(wanted_.after.empty()) {}

  Result<void> add_turn(std::string_view turn) {
    const size_t most = std::min(kMaxItems, turn.size() / kMinItemBytes + 1);
    if (most > items_.capacity())
      HOCKET_TRY_VOID(held_.grow(static_cast<int64_t>(most * sizeof(Item))));
    items_.clear();
    items_.reserve(most);
    cut_items(turn, items_);
    if (wanted_.newest_first) std::ranges::reverse(items_);
    for (const Item& item : items_) HOCKET_TRY_VOID(add(item));
    return {};
  }
  bool found() const { return found_; }
  bool is_whole() const { return has_more_; }
  std::string text() const {
    return fmt::format(
        R"({{"object":"list","data":[{}],"first_id":{},"last_id":{},"has_more":{}}})", data_,
        first_, last_, has_more_);
  }

 private:
  Result<void> add(const Item& item) {
    if (!found_) {
      found_ = item.id == wanted_.after;
      return {};
    }
    has_more_ = num_items_ == wanted_.limit;
    if (has_more_) return {};
    // The text exists twice while it grows, and once in the answer.
    HOCKET_TRY_VOID(held_.grow(3 * std::ssize(item.text)));
    last_ = item.id.empty() ? "null" : item.id;
    if (num_items_++ == 0)
      first_ = last_;
    else
      data_ += ',';
    data_ += item.text;
    return {};
  }

  const PageQuery wanted_;
  HeldBytes held_;
  std::vector<Item> items_;  // items of one turn
  std::string data_;
  std::string_view first_ = "null", last_ = "null";
  size_t num_items_ = 0;
  bool found_, has_more_ = false;
};

}  // namespace

Result<std::string> input_page(const ResponseStore::Record& record, std::string_view query,
                               HeldBytes held) {
  HOCKET_TRY(PageQuery wanted, read_query(query));
  const bool newest_first = wanted.newest_first;
  PageWriter page(std::move(wanted), std::move(held));
  const auto& turns = record.turns;
  for (size_t i = 0; i < turns.size() && !page.is_whole(); ++i) {
    const auto& turn = turns[newest_first ? turns.size() - 1 - i : i];
    HOCKET_TRY_VOID(page.add_turn(turn->str()));
  }
  if (!page.found()) return fail(bad_query("after", "the id of an item"));
  return page.text();
}

}  // namespace hocket
