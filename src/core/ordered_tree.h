// Builds a JSON tree that keeps the order of its fields, in n log n steps for n fields. nlohmann's
// own builder searches an object from its start for each key, so one with many keys takes minutes.
// Thread: any.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hocket {

// Takes the events of nlohmann's parser; `tree` is whole when they have ended. If an object has two
// equal keys, the last one's value is in the position of the first. A mistake ends the parsing
// without a message. A derived class may refuse equal keys, refuse depth and keep a message.
class OrderedTreeBuilder : public nlohmann::json_sax<nlohmann::ordered_json> {
 public:
  using Tree = nlohmann::ordered_json;

  Tree tree;

  bool null() override { return add(nullptr); }
  bool boolean(bool v) override { return add(v); }
  bool number_integer(number_integer_t v) override { return add(v); }
  bool number_unsigned(number_unsigned_t v) override { return add(v); }
  bool number_float(number_float_t v, const string_t&) override { return add(v); }
  bool string(string_t& v) override { return add(std::move(v)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Tree::object()); }
  bool start_array(size_t) override { return open(Tree::array()); }
  bool key(string_t& v) override;
  bool end_object() override;
  bool end_array() override;
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 protected:
  // Returns false to end the parsing. depth: how many lists and objects are open already.
  virtual bool may_open(size_t /*depth*/) { return true; }
  // Returns false to end the parsing. key: the first key that its object has twice.
  virtual bool may_repeat(const std::string& /*key*/) { return true; }

 private:
  struct Level {
    Tree* value;
    std::string key;
  };

  Tree* put(Tree&& value);
  bool add(Tree value);
  bool open(Tree value);

  std::vector<Level> levels_;
};

// Returns a discarded tree if `text` is not JSON.
nlohmann::ordered_json parse_ordered(std::string_view text);

// Adds a field without a search for its key. Precondition: `object` is an object without that key.
void append_field(nlohmann::ordered_json& object, std::string key, nlohmann::ordered_json value);

}  // namespace hocket
