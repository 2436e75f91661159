//! Checks a grammar before it is compiled, because llguidance follows rules, references and
//! brackets by recursion, and builds automata as large as the numbers in a schema.
use crate::Res;
use llguidance::derivre::{raw::ExprSet, ExprRef};
use serde_json::{Deserializer, Value};
use std::collections::{HashMap, HashSet};

/// Most levels of recursion: the rules of a Lark grammar and the brackets in them, counted as if
/// each stood inside the one before; or the sum of the depths to which the references of a schema
/// lead. The stack of a compilation (src/text/grammar/grammar.h) holds four times as many.
pub const LEVELS_MAX: usize = 16_384;
/// Most brackets inside one another in one rule.
pub const NESTING_MAX: usize = 64;
/// Largest `multipleOf`, its digits read as one integer: an automaton has as many states.
pub const MULTIPLE_MAX: u64 = 100_000;
/// Most ways in which the parts of a conjunction (`&`, `allOf`) can go on together with the same
/// byte. One step of the lexer looks at all of them, some 0.1 us each, and its fuel does not
/// interrupt a step.
pub const WAYS_MAX: f64 = 4e5;
/// Most expressions that the check looks at, so that it takes little time itself.
const VISITS_MAX: usize = 4_000_000;

pub fn check_lark(text: &str) -> Res<()> {
    let Nesting { levels, deepest } = nesting(text.as_bytes());
    if deepest > NESTING_MAX {
        let why = format!("brackets are {deepest} levels deep, at most {NESTING_MAX} are taken");
        return Err(why.into());
    }
    if levels > LEVELS_MAX {
        return Err(format!(
            "its rules and the brackets in them are {levels} levels, at most {LEVELS_MAX} are taken"
        )
        .into());
    }
    // A piece that is not JSON is not a schema either; llguidance reports its mistake.
    for (at, word) in text.match_indices("%json") {
        let mut json = Deserializer::from_str(&text[at + word.len()..]).into_iter::<Value>();
        if let Some(Ok(schema)) = json.next() {
            check_schema(&schema)?;
        }
    }
    Ok(())
}

struct Nesting {
    levels: usize,
    deepest: usize,
}

/// Counts levels of rules and brackets. A definition is a colon behind a name or its attributes;
/// the content of strings, regexes, comments and special tokens does not count.
fn nesting(text: &[u8]) -> Nesting {
    let (mut levels, mut deepest, mut deepest_here, mut depth) = (0, 0, 0, 0_usize);
    let (mut last, mut at) = (b' ', 0);
    while at < text.len() {
        let c = text[at];
        let ends_a_name = last.is_ascii_alphanumeric() || matches!(last, b'_' | b'-' | b']' | b'}');
        match c {
            b'"' | b'<' | b'#' => at = end_of(text, at),
            b'/' => at = end_of(text, at),
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b':' if ends_a_name => {
                levels += 1 + deepest_here;
                deepest_here = 0;
            }
            _ => {}
        }
        deepest_here = deepest_here.max(depth);
        deepest = deepest.max(depth);
        if c != b' ' && c != b'\t' {
            last = c;
        }
        at += 1;
    }
    Nesting { levels: levels + deepest_here, deepest }
}

/// Returns the index of the last byte of the string, regex, comment or special token that begins at
/// `at`; `at` itself if it has no end.
fn end_of(text: &[u8], at: usize) -> usize {
    let comment = text[at] == b'#' || text[at..].starts_with(b"//");
    let (mut i, end) = match text[at] {
        _ if comment => (at + 1, b'\n'),
        b'<' => (at + 1, b'>'),
        quote => (at + 1, quote),
    };
    while i < text.len() {
        match text[i] {
            c if c == end => return i,
            b'\\' if !comment => i += 1,
            b'\n' if end == b'"' => return at,
            c if end == b'>' && (c == b'<' || c.is_ascii_whitespace()) => return at,
            _ => {}
        }
        i += 1;
    }
    if comment {
        text.len() - 1
    } else {
        at
    }
}

/// Checks a schema. Precondition: it is not deeper than serde_json reads.
pub fn check_schema(schema: &Value) -> Res<()> {
    let (mut refs, mut num_ids, mut todo) = (vec![], 0, vec![schema]);
    while let Some(value) = todo.pop() {
        match value {
            Value::Array(items) => todo.extend(items),
            Value::Object(fields) => {
                if let Some(Value::String(to)) = fields.get("$ref") {
                    refs.push(to.as_str());
                }
                num_ids += (fields.contains_key("$id") || fields.contains_key("id")) as usize;
                if let Some(Value::Number(n)) = fields.get("multipleOf") {
                    check_multiple(n)?;
                }
                todo.extend(fields.values());
            }
            _ => {}
        }
    }
    // The same reference names another place below another $id.
    if num_ids <= 1 {
        refs.sort_unstable();
        refs.dedup();
    }
    let root = depth(schema);
    // A reference that is not a JSON pointer may name any place, so it counts as the whole schema.
    let depth_of =
        |to: &&str| to.strip_prefix('#').and_then(|p| schema.pointer(p)).map_or(root, depth);
    let levels = root + refs.iter().map(depth_of).sum::<usize>();
    if levels > LEVELS_MAX {
        let n = refs.len();
        return Err(format!(
            "its {n} $refs lead to {levels} levels of schemas, at most {LEVELS_MAX} are taken"
        )
        .into());
    }
    Ok(())
}

fn depth(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn check_multiple(n: &serde_json::Number) -> Res<()> {
    let written = n.as_f64().map_or(String::new(), |f| f.abs().to_string());
    let digits: String = written.chars().filter(char::is_ascii_digit).collect();
    match digits.parse::<u64>() {
        Ok(value) if value <= MULTIPLE_MAX => Ok(()),
        _ => Err(format!(
            "multipleOf {n} needs an automaton too large: its digits may be at most {MULTIPLE_MAX}; \
             leave it out and check the number yourself"
        )
        .into()),
    }
}

/// Counts, by byte, the different byte sets in an expression that contain it.
type Overlaps = [f64; 256];

/// Checks all conjunctions. Derivatives add no byte sets except intersections of existing ones, so
/// a limit that holds for a conjunction also holds for everything derived from it.
pub fn check_conjunctions(exprs: &ExprSet) -> Res<()> {
    let mut kinds = ExprSet::new(256);
    let (a, b) = (kinds.mk_byte_literal(b"ab"), kinds.mk_byte_literal(b"cd"));
    let (and, not) = (kinds.mk_and(&mut vec![a, b]), kinds.mk_not(a));
    let is = |e: ExprRef, kind: ExprRef| exprs.get_tag(e) == kinds.get_tag(kind);

    let mut conjunctions: HashMap<u32, Overlaps> = HashMap::new();
    let mut num_visits = 0;
    // The parts of an expression have smaller ids, so `conjunctions` holds them already.
    for id in 1..exprs.len() as u32 {
        let conjunction = ExprRef::new(id);
        if !is(conjunction, and) {
            continue;
        }
        let mut ways: Overlaps = [1.0; 256];
        for &part in exprs.get_args(conjunction) {
            let mut sets: Overlaps = [0.0; 256];
            let mut single_bytes = 0.0;
            let (mut seen, mut todo) = (HashSet::new(), vec![part]);
            while let Some(e) = todo.pop() {
                if !seen.insert(e.as_u32()) {
                    continue;
                }
                num_visits += 1;
                if is(e, and) {
                    let known = &conjunctions[&e.as_u32()];
                    sets.iter_mut().zip(known).for_each(|(n, more)| *n += more);
                } else if is(e, not) {
                    // The sets of a negation do not overlap, so each byte is in one of them.
                    sets.iter_mut().for_each(|n| *n += 1.0);
                } else if is(e, ExprRef::ANY_BYTE) {
                    let set = exprs.get(e);
                    for (byte, n) in (0..=255u8).zip(&mut sets) {
                        *n += set.matches_byte(byte) as u8 as f64;
                    }
                } else {
                    single_bytes = 1.0;
                    todo.extend_from_slice(exprs.get_args(e));
                }
            }
            ways.iter_mut().zip(sets).for_each(|(n, more)| *n *= more + single_bytes);
        }
        if ways.iter().sum::<f64>() > WAYS_MAX || num_visits > VISITS_MAX {
            return Err("what must hold at once (& or allOf) can go on in too many ways; \
                        fewer conditions, or fewer different classes of characters in them"
                .into());
        }
        conjunctions.insert(id, ways);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_and_their_brackets_are_counted() {
        let count = |text: &str| nesting(text.as_bytes());
        assert_eq!(
            count("start: a\na[lazy] : /(?:x)/\nA.1:\"a: ((\\\"\" -> b c{p}: d\n").levels,
            6
        );
        assert_eq!(count("a: b // x: (\nb: <[5]> <((>\n# c: ((\n").levels, 2);
        assert_eq!(count("a: ((b) [c]\nb: c %if not(not(not(x)))\n").deepest, 4);
        let chain = |n: usize| (0..n).map(|i| format!("a{i}: a{}\n", i + 1)).collect::<String>();
        assert!(check_lark(&chain(LEVELS_MAX)).is_ok());
        let why = check_lark(&chain(LEVELS_MAX + 1)).unwrap_err().to_string();
        assert!(why.contains("16385 levels, at most 16384"), "{why}");
        let why = check_lark(&format!("start: {}", "(".repeat(65))).unwrap_err().to_string();
        assert!(why.contains("65 levels deep, at most 64"), "{why}");
    }

    #[test]
    fn references_are_followed_once_each() {
        let chain = |n: usize| {
            let mut defs = serde_json::Map::new();
            for i in 0..n {
                defs.insert(format!("a{i}"), json!({"$ref": format!("#/$defs/a{}", i + 1)}));
            }
            defs.insert(format!("a{n}"), json!({"type": "string"}));
            json!({"$ref": "#/$defs/a0", "$defs": defs})
        };
        assert!(check_schema(&chain(8_000)).is_ok());
        let why = check_schema(&chain(20_000)).unwrap_err().to_string();
        assert!(why.contains("20001 $refs"), "{why}");
        assert!(check_lark(&format!("start: %json {}\n", chain(20_000))).is_err());
        // A repeated reference costs nothing.
        let same = json!({"$defs": {"a": {"type": "string"}},
                          "anyOf": vec![json!({"$ref": "#/$defs/a"}); 50_000]});
        assert!(check_schema(&same).is_ok());
    }

    #[test]
    fn conjunctions_go_on_in_a_bounded_number_of_ways() {
        // Each part has `classes` different sets that contain the letter z.
        let ways = |classes: u8, parts: usize| {
            let mut exprs = ExprSet::new(256);
            let mut all = vec![];
            for part in 0..parts {
                let mut one = ExprRef::EMPTY_STRING;
                for n in 0..classes {
                    let mut set = vec![0u32; 8];
                    let other = part as u8 * classes + n;
                    for byte in [b'z', 128 + other] {
                        set[byte as usize / 32] |= 1u32 << (byte % 32);
                    }
                    let set = exprs.mk_byte_set(&set);
                    one = exprs.mk_concat(set, one);
                }
                all.push(one);
            }
            exprs.mk_and(&mut all);
            check_conjunctions(&exprs)
        };
        assert!(ways(30, 3).is_ok()); // some 30,000 ways
        assert!(ways(28, 4).is_err()); // some 700,000 ways
    }

    #[test]
    fn multiples_are_small() {
        for good in [json!(7), json!(0.01), json!(100000), json!(-2.5), json!(1.0)] {
            assert!(check_schema(&json!({"multipleOf": good})).is_ok(), "{good}");
        }
        for bad in [json!(999983), json!(4294967295u64), json!(123.4567)] {
            let why = check_schema(&json!({"items": {"multipleOf": bad}})).unwrap_err().to_string();
            assert!(why.contains("at most 100000"), "{why}");
        }
    }
}
