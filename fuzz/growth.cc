// A mutator for texts with a structure: JSON, grammars, templates, tool calls. In half of the calls
// it takes a piece of the input and repeats it, nests it, makes its text longer, replaces it by an
// extreme number, or makes a chain of names from it. Else libFuzzer mutates, which hardly ever
// nests a thousand deep.
//
// CMakeLists.txt names the fuzzers that it is linked to.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using Dice = std::minstd_rand;

constexpr std::string_view kOpening = "{[(<";
constexpr std::string_view kClosing = "}])>";
constexpr std::string_view kNumbers[] = {"0",
                                         "-1",
                                         "0.1",
                                         "-0.0",
                                         "1e308",
                                         "-1e308",
                                         "1e-45",
                                         "5e-324",
                                         "1e400",
                                         "NaN",
                                         "65536",
                                         "4999999",
                                         "2147483647",
                                         "2147483648",
                                         "4294967296",
                                         "9007199254740993",
                                         "9223372036854775807",
                                         "18446744073709551616"};

size_t below(Dice& dice, size_t end) {
  return end == 0 ? 0 : dice() % end;
}

// Returns 1, 2, 4 ... 131,072, each equally often.
size_t some_count(Dice& dice) {
  return size_t{1} << below(dice, 18);
}

struct Span {
  size_t begin = 0, end = 0;
};

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '.' || c == '-' || c == '$' || c == '#' || c == '/';
}

// Returns the piece that begins at `at`: to the bracket or quote that closes it, or to the end of a
// word, or one byte. Brackets inside quotes count too, which does no harm in a mutator.
Span piece_at(std::string_view text, size_t at) {
  const char first = text[at];
  if (const size_t kind = kOpening.find(first); kind != kOpening.npos) {
    size_t depth = 0;
    for (size_t i = at; i < text.size(); ++i) {
      if (text[i] == first) ++depth;
      if (text[i] == kClosing[kind] && --depth == 0) return {at, i + 1};
    }
  }
  if (first == '"') {
    for (size_t i = at + 1; i < text.size(); ++i) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        return {at, i + 1};
    }
  }
  size_t end = at;
  while (end < text.size() && is_word(text[end])) ++end;
  return {at, std::max(end, at + 1)};
}

std::string times(std::string_view piece, size_t count, std::string_view between, size_t room) {
  count = std::min(count, std::max<size_t>(1, room / (piece.size() + between.size() + 1)));
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out += between;
    out += piece;
  }
  return out;
}

std::string repeated(Dice& dice, std::string_view piece, size_t room) {
  constexpr std::string_view kBetween[] = {",", "", " ", "\n", "|", ", \"k\":"};
  return times(piece, some_count(dice), kBetween[below(dice, std::size(kBetween))], room);
}

std::string nested(Dice& dice, std::string_view piece, size_t room) {
  struct Shell {
    std::string_view open, close;
  };
  constexpr Shell kShells[] = {{"[", "]"},
                               {"(", ")"},
                               {"{{", "}}"},
                               {"not ", ""},
                               {"{\"a\":", "}"},
                               {"{\"items\":", "}"},
                               {"{\"allOf\":[", "]}"},
                               {"{\"elements\":[{\"content\":", "}]}"},
                               {"{% if 1 %}", "{% endif %}"}};
  const Shell& shell = kShells[below(dice, std::size(kShells))];
  const size_t depth =
      std::min(some_count(dice), room / (shell.open.size() + shell.close.size() + 2));
  return times(shell.open, depth, "", room) + std::string(piece) +
         times(shell.close, depth, "", room);
}

// Repeats the text between the quotes of `piece`, or all of it if it is not quoted.
std::string longer(Dice& dice, std::string_view piece, size_t room) {
  const bool quoted = piece.size() > 2 && piece.front() == '"' && piece.back() == '"';
  const std::string_view inner = quoted ? piece.substr(1, piece.size() - 2) : piece;
  const std::string text = times(inner, some_count(dice), "", room);
  return quoted ? '"' + text + '"' : text;
}

// Makes a chain of rules from `piece`, each naming the next one: "a0: a1", "a1: a2" ...
std::string chained(Dice& dice, std::string_view piece, size_t room) {
  constexpr std::string_view kSigns[] = {": ", " ::= ", "\":{\"$ref\":\"#/$defs/"};
  constexpr std::string_view kEnds[] = {"\\n", "\\n", "\"},\""};
  const size_t kind = below(dice, std::size(kSigns));
  const std::string name(piece.substr(0, 8));
  const size_t count = std::min(some_count(dice), room / (2 * name.size() + 36));
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out += name + std::to_string(i);
    out += kSigns[kind];
    out += name + std::to_string(i + 1);
    out += kEnds[kind];
  }
  return out;
}

std::string grown(Dice& dice, std::string_view piece, size_t room) {
  switch (below(dice, 6)) {
    case 0:
    case 1:
      return repeated(dice, piece, room);
    case 2:
      return nested(dice, piece, room);
    case 3:
      return longer(dice, piece, room);
    case 4:
      return std::string(kNumbers[below(dice, std::size(kNumbers))]);
    default:
      return chained(dice, piece, room);
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  Dice dice(seed + 1);
  dice.discard(4);  // neighbouring seeds give similar first numbers
  if (size == 0 || below(dice, 2) == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string text(reinterpret_cast<const char*>(data), size);
  const Span at = piece_at(text, below(dice, size));
  const std::string piece = text.substr(at.begin, at.end - at.begin);
  const size_t others = size - piece.size();
  const std::string made = text.substr(0, at.begin) +
                           grown(dice, piece, max_size > others ? max_size - others : 0) +
                           text.substr(at.end);
  if (made.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, made.data(), made.size());
  return made.size();
}
