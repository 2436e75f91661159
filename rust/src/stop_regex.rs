//! Regular expressions that end an answer, found byte by byte while the text grows, in linear time.
use crate::cutting::processor_time;
use crate::*;
use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::hybrid::LazyStateID;
use regex_automata::nfa::thompson;
use regex_automata::util::start;
use std::sync::Arc;
use std::time::Duration;

/// Largest automaton of the patterns, because each state that a text meets for the first time costs
/// a look at all of it.
const NFA_BYTES_MAX: usize = 1 << 20;
/// Memory of the states of one text.
const CACHE_BYTES: usize = 1 << 20;
/// Processor time of one answer's search, limited since one thread searches all answers. Ordinary
/// patterns soon meet known states, which take some nanoseconds a byte.
const TIME_BASE: Duration = Duration::from_millis(100);
const TIME_PER_BYTE: Duration = Duration::from_micros(4);
/// The processor time is read once per this many bytes, since reading it takes a system call.
const BYTES_PER_LOOK: usize = 16;

struct Patterns {
    dfa: DFA,
    looks: bool, // a pattern looks beyond the end of a match: `$`, `\b`
}
/// The patterns of a request.
pub struct HkStopRegex(Arc<Patterns>);
/// The state of a search in one text.
pub struct HkStopSearch {
    patterns: Arc<Patterns>,
    cache: Cache,
    state: LazyStateID,
    spent: Duration,
    allowed: Duration,
}

fn compile(patterns: &[String]) -> Res<Patterns> {
    let dfa = DFA::builder()
        .configure(Config::new().cache_capacity(CACHE_BYTES).skip_cache_capacity_check(true))
        .thompson(thompson::Config::new().nfa_size_limit(Some(NFA_BYTES_MAX)))
        .build_many(patterns)
        .map_err(|e| sentence(&e))?;
    let looks = !dfa.get_nfa().look_set_any().is_empty();
    let patterns = Arc::new(Patterns { dfa, looks });
    if HkStopSearch::begin(&patterns)?.ended()?.is_some() {
        return Err("it matches the empty text, with which every text begins".into());
    }
    Ok(Arc::into_inner(patterns).expect("one owner"))
}

/// Returns the innermost reason in one line.
fn sentence(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    let text = last.to_string();
    let line = text.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("unknown");
    line.trim().trim_start_matches("error: ").to_string()
}

impl HkStopSearch {
    fn begin(patterns: &Arc<Patterns>) -> Res<Self> {
        let mut cache = patterns.dfa.create_cache();
        let state = patterns.dfa.start_state(&mut cache, &start::Config::new())?;
        let patterns = patterns.clone();
        Ok(HkStopSearch { patterns, cache, state, spent: Duration::ZERO, allowed: TIME_BASE })
    }

    /// Returns the pattern whose match would end here if the text ended here.
    fn ended(&mut self) -> Res<Option<usize>> {
        let end = self.patterns.dfa.next_eoi_state(&mut self.cache, self.state)?;
        Ok(end.is_match().then(|| self.patterns.dfa.match_pattern(&self.cache, end, 0).as_usize()))
    }

    /// If a match ends the answer, returns the number of bytes of `text` in the answer, and the
    /// pattern.
    fn push(&mut self, text: &[u8]) -> Res<Option<(usize, usize)>> {
        for (n, piece) in text.chunks(BYTES_PER_LOOK).enumerate() {
            let begin = processor_time();
            if let Some((kept, id)) = self.step(piece)? {
                return Ok(Some((n * BYTES_PER_LOOK + kept, id)));
            }
            self.spent += processor_time().saturating_sub(begin);
            self.allowed += TIME_PER_BYTE * piece.len() as u32;
            if self.spent > self.allowed {
                let most = self.allowed.as_secs_f64();
                return Err(format!("it takes more than {most:.1} s on this answer").into());
            }
        }
        Ok(None)
    }

    fn step(&mut self, text: &[u8]) -> Res<Option<(usize, usize)>> {
        for (i, &byte) in text.iter().enumerate() {
            self.state = self.patterns.dfa.next_state(&mut self.cache, self.state, byte)?;
            if self.state.is_quit() {
                return Err("it cannot be followed through this answer".into());
            }
            // A match is seen one byte after its end.
            if self.state.is_match() {
                let id = self.patterns.dfa.match_pattern(&self.cache, self.state, 0);
                return Ok(Some((i, id.as_usize())));
            }
            if !self.patterns.looks {
                if let Some(id) = self.ended()? {
                    return Ok(Some((i + 1, id)));
                }
            }
        }
        Ok(None)
    }
}

/// `json`: a list of patterns.
#[no_mangle]
pub unsafe extern "C" fn hk_stop_regex_new(
    json: *const c_char,
    n: usize,
    out: *mut *mut HkStopRegex,
) -> i32 {
    guard(|| {
        let patterns: Vec<String> = serde_json::from_slice(bytes(json, n))?;
        *out = Box::into_raw(Box::new(HkStopRegex(Arc::new(compile(&patterns)?))));
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_stop_regex_free(r: *mut HkStopRegex) {
    release(r)
}

#[no_mangle]
pub unsafe extern "C" fn hk_stop_search_new(
    r: *const HkStopRegex,
    out: *mut *mut HkStopSearch,
) -> i32 {
    guard(|| {
        *out = Box::into_raw(Box::new(HkStopSearch::begin(&(*r).0)?));
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_stop_search_push(
    s: *mut HkStopSearch,
    text: *const c_char,
    n: usize,
    pattern: *mut i32,
    kept: *mut usize,
) -> i32 {
    guard(|| {
        let found = (*s).push(bytes(text, n))?;
        *pattern = found.map_or(-1, |(_, id)| id as i32);
        *kept = found.map_or(n, |(kept, _)| kept);
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_stop_search_end(s: *mut HkStopSearch, pattern: *mut i32) -> i32 {
    guard(|| {
        *pattern = (*s).ended()?.map_or(-1, |id| id as i32);
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_stop_search_free(s: *mut HkStopSearch) {
    release(s)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text up to the first match, and its pattern; the text comes in pieces of `step`.
    fn find(patterns: &[&str], text: &str, step: usize) -> Option<(String, usize)> {
        let list: Vec<String> = patterns.iter().map(|p| p.to_string()).collect();
        let compiled = Arc::new(compile(&list).unwrap());
        let mut search = HkStopSearch::begin(&compiled).unwrap();
        let mut before = 0;
        for piece in text.as_bytes().chunks(step) {
            if let Some((kept, id)) = search.push(piece).unwrap() {
                return Some((text[..before + kept].to_string(), id));
            }
            before += piece.len();
        }
        search.ended().unwrap().map(|id| (text.to_string(), id))
    }

    fn found(patterns: &[&str], text: &str) -> Option<(String, usize)> {
        let whole = find(patterns, text, text.len().max(1));
        for step in 1..8 {
            assert_eq!(find(patterns, text, step), whole, "{patterns:?} in {text:?} by {step}");
        }
        whole
    }
    fn at(text: &str, id: usize) -> Option<(String, usize)> {
        Some((text.to_string(), id))
    }

    #[test]
    fn the_first_match_to_end_wins_however_the_text_is_cut() {
        assert_eq!(found(&[r"\d{3}"], "ab 12 345 678"), at("ab 12 345", 0));
        assert_eq!(found(&["zzz", "r+is"], "Paris, zzz"), at("Paris", 1));
        assert_eq!(found(&["né|你"], "rivers né 你"), at("rivers né", 0));
        assert_eq!(found(&["(?i)STOP"], "Please stop"), at("Please stop", 0));
        assert_eq!(found(&["x"], "abc"), None);
    }

    #[test]
    fn what_follows_a_match_is_looked_at_where_the_pattern_asks() {
        assert_eq!(found(&["end$"], "the end is the end"), at("the end is the end", 0));
        assert_eq!(found(&[r"(?m)^done$"], "not done\ndone\nmore"), at("not done\ndone", 0));
        assert_eq!(found(&[r"(?-u:\bcat\b)"], "concat cats cat."), at("concat cats cat", 0));
    }

    #[test]
    fn patterns_that_cannot_serve_say_why() {
        for (pattern, why) in [("(", "unclosed group"), ("a*", "empty text"), (r"\bx", "boundar")] {
            let error = compile(&[pattern.to_string()]).err().expect(pattern).to_string();
            assert!(error.contains(why), "{pattern}: {error}");
            assert!(!error.contains('\n'));
        }
        assert!(compile(&[r"\w{500}{500}".to_string()]).is_err());
    }

    #[test]
    fn slow_patterns_end_with_an_error() {
        // Each byte leads to a state not met before, which has some thousand parts.
        let pattern = r"a[ab]{200}(?:[ab]?){1500}c";
        let compiled = Arc::new(compile(&[pattern.to_string()]).unwrap());
        let mut search = HkStopSearch::begin(&compiled).unwrap();
        let mut x = 1u32;
        let text: Vec<u8> = std::iter::repeat_with(|| {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            b"ab"[(x >> 16) as usize % 2]
        })
        .take(100_000)
        .collect();
        let error = text.chunks(4).find_map(|piece| search.push(piece).err()).expect("an error");
        assert!(error.to_string().contains("s on this answer"), "{error}");
        assert!(search.spent < search.allowed + Duration::from_millis(100));
    }

    #[test]
    fn long_texts_take_bounded_memory() {
        let compiled = Arc::new(compile(&[r"(a|b)*c[ab]{12}d".to_string()]).unwrap());
        let mut search = HkStopSearch::begin(&compiled).unwrap();
        let mut x = 1u32;
        for _ in 0..200_000 {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            let byte = b"abc"[(x >> 16) as usize % 3];
            assert!(search.push(&[byte]).unwrap().is_none());
        }
        assert!(search.cache.memory_usage() < 4 * CACHE_BYTES);
    }
}
