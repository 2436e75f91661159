//! Structured output: turns a JSON schema, regex or Lark grammar into masks of allowed tokens
//! (llguidance).
use crate::grammar_bounds::{check_conjunctions, check_lark, check_schema};
use crate::held_bytes::held_bytes;
use crate::*;
use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Matcher, ParserFactory};
use std::sync::Arc;
use toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

struct Vocabulary {
    trie: TokTrie,
    parts: Arc<Parts>,
}
impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }
    fn tokenize_bytes(&self, s: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(s, |s| {
            let spelled = |special_as_text| {
                let how = HkEncode { add_special: false, special_as_text, mark: 0 };
                let ids = self.parts.encode(s, &how).ok()?;
                (self.trie.decode_raw(&ids) == s.as_bytes()).then_some(ids)
            };
            // The text may contain a control token's spelling, or text that a normalizer would
            // change.
            let ids = spelled(false).or_else(|| spelled(true));
            ids.unwrap_or_else(|| self.trie.greedy_tokenize(s.as_bytes()))
        })
    }
}

/// One for each model: the token trie, and slices that make masks cheap.
pub struct HkGrammar(ParserFactory);
/// One for each answer, or the original from which answers' matchers are copied.
pub struct HkMatcher {
    matcher: Matcher,
    ends: Arc<[TokenId]>, // the model's end tokens
    bytes: isize,         // bytes that it holds
}
impl HkMatcher {
    /// Every call of the matcher goes through this, because it keeps everything it learns of its
    /// grammar.
    fn with<T>(&mut self, f: impl FnOnce(&mut Matcher) -> T) -> Res<T> {
        if self.bytes > MATCHER_BYTES_MAX {
            let (have, most) = (self.bytes, MATCHER_BYTES_MAX);
            return Err(format!("it holds {have} bytes, at most {most} are given to one").into());
        }
        let before = held_bytes();
        let result = f(&mut self.matcher);
        self.bytes += held_bytes() - before;
        Ok(result)
    }
}

/// `ParserLimits` limits the cost of a mask to less than 0.1 s (docs/contracts/requests.md).
const MAX_LEXER_STATES: usize = 50_000;
const MATCHER_BYTES_MAX: isize = 64 << 20;
/// Blanks that may stand between the parts of JSON if the schema says nothing about them. They are
/// limited, since a model without more to say could write blanks for ever.
const JSON_BLANKS: &str = r"[ \n\r\t]{0,16}";

fn schema_from(text: &str) -> Res<serde_json::Value> {
    let mut schema: serde_json::Value = serde_json::from_str(text)?;
    check_schema(&schema)?;
    if let Some(root) = schema.as_object_mut() {
        root.entry("x-guidance").or_insert_with(
            || serde_json::json!({"whitespace_flexible": true, "whitespace_pattern": JSON_BLANKS}),
        );
    }
    Ok(schema)
}

/// `vocab` is the width of the logits; ids beyond the tokenizer's are never allowed.
#[no_mangle]
pub unsafe extern "C" fn hk_grammar_new(
    t: *const HkTokenizer,
    json: *const c_char,
    n: usize,
    vocab: usize,
    eos: *const u32,
    eos_n: usize,
    out: *mut *mut HkGrammar,
) -> i32 {
    guard(|| {
        let json: serde_json::Value = serde_json::from_slice(bytes(json, n))?;
        let mut words = llguidance::token_bytes_from_tokenizer_json(&json)?;
        if words.len() > vocab {
            let have = words.len();
            return Err(format!("tokenizer has {have} tokens, logits only {vocab}").into());
        }
        words.resize(vocab, vec![]);
        let ends: Vec<TokenId> = match eos_n {
            0 => vec![],
            _ => std::slice::from_raw_parts(eos, eos_n).to_vec(),
        };
        let [first, ..] = ends[..] else {
            return Err("the model has no end token".into());
        };
        if let Some(id) = ends.iter().find(|&&id| id as usize >= vocab) {
            return Err(format!("end token {id} is outside the logits of {vocab}").into());
        }
        let info = TokRxInfo::new(u32::try_from(vocab)?, first);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&ends);
        let env: TokEnv = Arc::new(Vocabulary { trie, parts: (*t).0.clone() });
        let can = InferenceCapabilities { ff_tokens: true, ..Default::default() };
        let mut factory = ParserFactory::new(&env, can, &SlicedBiasComputer::general_slices())?;
        factory.quiet();
        factory.limits_mut().max_lexer_states = MAX_LEXER_STATES;
        factory.limits_mut().verbose_errors = false;
        *out = Box::into_raw(Box::new(HkGrammar(factory)));
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_grammar_free(g: *mut HkGrammar) {
    release(g)
}

#[no_mangle]
pub unsafe extern "C" fn hk_matcher_new(
    g: *const HkGrammar,
    kind: *const c_char,
    kind_n: usize,
    text: *const c_char,
    n: usize,
    out: *mut *mut HkMatcher,
) -> i32 {
    guard(|| {
        let before = held_bytes();
        let text = utf8(text, n)?;
        let grammar = match utf8(kind, kind_n)? {
            "json_schema" => TopLevelGrammar::from_json_schema(schema_from(text)?),
            "regex" => TopLevelGrammar::from_regex(text),
            "lark" => {
                check_lark(text)?;
                TopLevelGrammar::from_lark(text.to_string())
            }
            other => return Err(format!("unknown grammar kind {other}").into()),
        };
        let factory = &(*g).0;
        let env = Some(factory.tok_env().clone());
        let (grammar, lexer) =
            GrammarInit::Serialized(grammar).to_internal(env, factory.limits().clone())?;
        check_conjunctions(lexer.regex_builder.exprset())?;
        let init = GrammarInit::Internal(grammar, lexer);
        let matcher = Matcher::new(factory.create_parser_from_init_default(init));
        if let Some(e) = matcher.get_error() {
            return Err(e.into());
        }
        let ends = factory.tok_env().tok_trie().eos_tokens().into();
        let bytes = held_bytes() - before;
        let mut made = HkMatcher { matcher, ends, bytes };
        made.with(|_| ())?;
        *out = Box::into_raw(Box::new(made));
        Ok(())
    })
}
/// Makes a copy that shares nothing with its original, so that no answer depends on another one.
#[no_mangle]
pub unsafe extern "C" fn hk_matcher_copy(m: *const HkMatcher, out: *mut *mut HkMatcher) -> i32 {
    guard(|| {
        let before = held_bytes();
        let m = &*m;
        let (matcher, ends) = (m.matcher.deep_clone(), m.ends.clone());
        let bytes = held_bytes() - before;
        *out = Box::into_raw(Box::new(HkMatcher { matcher, ends, bytes }));
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_matcher_free(m: *mut HkMatcher) {
    release(m)
}

#[no_mangle]
pub unsafe extern "C" fn hk_matcher_bytes(m: *const HkMatcher) -> usize {
    let m = &*m;
    m.bytes.max(0) as usize
}

#[no_mangle]
pub unsafe extern "C" fn hk_matcher_mask(m: *mut HkMatcher, mask: *mut u32, words: usize) -> i32 {
    guard(|| {
        let m = &mut *m;
        let allowed = m.with(|matcher| matcher.compute_mask_or_eos())??;
        let need = allowed.len().div_ceil(32);
        if words < need {
            return Err(format!("mask needs {need} words, got {words}").into());
        }
        let out = std::slice::from_raw_parts_mut(mask, words);
        out[..need].copy_from_slice(&allowed.as_slice()[..need]);
        out[need..].fill(0);
        m.bytes -= 4 * allowed.as_slice().len() as isize; // freed after the count was taken
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_matcher_accept(m: *mut HkMatcher, id: u32) -> i32 {
    guard(|| {
        let m = &mut *m;
        // A complete matcher stops by itself and would refuse the end token.
        if m.matcher.is_stopped() {
            let end = m.ends.contains(&id);
            return end
                .then_some(())
                .ok_or("the grammar is complete; only the end may follow".into());
        }
        // Later lines of an error quote the answer, so they are left out.
        let taken = m.with(|matcher| matcher.consume_token(id))?;
        taken.map_err(|e| e.to_string().lines().next().unwrap_or("").into())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_matcher_rollback(m: *mut HkMatcher, n: usize) -> i32 {
    guard(|| {
        let m = &mut *m;
        m.with(|matcher| matcher.rollback(n))??;
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_matcher_forced(m: *mut HkMatcher, out: *mut HkBuf) -> i32 {
    guard(|| {
        let m = &mut *m;
        let forced = m.with(|matcher| matcher.compute_ff_tokens())?;
        m.bytes -= 4 * forced.capacity() as isize; // freed after the count was taken
        out.write(forced.as_slice().into());
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_matcher_allowed(
    m: *mut HkMatcher,
    ids: *const u32,
    n: usize,
    out: *mut usize,
) -> i32 {
    guard(|| {
        let m = &mut *m;
        *out = 0;
        if n == 0 || m.matcher.is_stopped() {
            return Ok(());
        }
        let ids = std::slice::from_raw_parts(ids, n);
        // The matcher stops for good at a number that is no token.
        let vocab = m.matcher.tok_env()?.tok_trie().vocab_size();
        let known = ids.iter().take_while(|&&id| (id as usize) < vocab).count();
        *out = m.with(|matcher| matcher.validate_tokens(&ids[..known]))??;
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_matcher_state(m: *mut HkMatcher, out: *mut u32) -> i32 {
    guard(|| {
        let m = &mut *m;
        let accepting = m.with(|matcher| matcher.is_accepting())??;
        *out = accepting as u32 | (m.matcher.is_stopped() as u32) << 1;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    const JSON: &str = include_str!("../../tests/golden/tokenizers/qwen2/tokenizer.json");
    const VOCAB: usize = 640;
    const EOS: u32 = 504;
    const ENDS: [u32; 2] = [EOS, 600];

    struct Model(*mut HkTokenizer, *mut HkGrammar);
    impl Model {
        fn new() -> Self {
            let (mut t, mut g) = (null_mut(), null_mut());
            let (json, n) = (JSON.as_ptr() as *const c_char, JSON.len());
            unsafe {
                assert_eq!(hk_tokenizer_new(json, n, &mut t), 0);
                assert_eq!(hk_grammar_new(t, json, n, VOCAB, ENDS.as_ptr(), ENDS.len(), &mut g), 0);
            }
            Model(t, g)
        }
        fn tokenizer(&self) -> &tokenizers::Tokenizer {
            let t = unsafe { &*self.0 };
            &t.0.tokenizer
        }
        fn matcher(&self, kind: &str, text: &str) -> Option<*mut HkMatcher> {
            let mut m = null_mut();
            let chars = |s: &str| s.as_ptr() as *const c_char;
            let (k, t) = (chars(kind), chars(text));
            let status = unsafe { hk_matcher_new(self.1, k, kind.len(), t, text.len(), &mut m) };
            (status == 0).then_some(m)
        }
        /// Feeds `text` and the end token; returns true if every token was allowed.
        fn accepts(&self, m: *mut HkMatcher, text: &str) -> bool {
            let tokenizer = self.tokenizer();
            let mut ids = tokenizer.encode_fast(text, false).unwrap().get_ids().to_vec();
            ids.push(EOS);
            let mut mask = [0u32; VOCAB / 32];
            let all = ids.iter().all(|&id| unsafe {
                assert_eq!(hk_matcher_mask(m, mask.as_mut_ptr(), mask.len()), 0);
                let past = mask[512 / 32..].iter().map(|w| w.count_ones()).sum::<u32>();
                assert_eq!(past, mask[600 / 32] >> (600 % 32) & 1);
                let allowed = mask[id as usize / 32] >> (id % 32) & 1 == 1;
                let accepted = hk_matcher_accept(m, id) == 0;
                assert_eq!(allowed, accepted);
                accepted
            });
            unsafe { hk_matcher_free(m) };
            all
        }
    }
    impl Drop for Model {
        fn drop(&mut self) {
            unsafe {
                hk_tokenizer_free(self.0);
                hk_grammar_free(self.1);
            }
        }
    }

    #[test]
    fn masks_follow_the_grammar() {
        let model = Model::new();
        let schema = r#"{"type":"object","properties":{"n":{"type":"integer","maximum":150}},
                         "required":["n"],"additionalProperties":false}"#;
        let lark = "start: term (\"+\" term)*\nterm: /[0-9]+/ | \"(\" start \")\"\n";
        for (kind, grammar, good, bad) in [
            ("json_schema", schema, r#"{"n": 150}"#, r#"{"n": 151}"#),
            ("json_schema", schema, r#"{"n": -7}"#, r#"{"m": 1}"#),
            ("regex", "(yes|no)( indeed)*", "no indeed indeed", "no way"),
            ("lark", lark, "1+(22+3)+4", "1+(22+3"),
        ] {
            assert!(model.accepts(model.matcher(kind, grammar).unwrap(), good), "{good}");
            assert!(!model.accepts(model.matcher(kind, grammar).unwrap(), bad), "{bad}");
        }
    }

    #[test]
    fn all_end_tokens_end() {
        let model = Model::new();
        for end in ENDS {
            let m = model.matcher("regex", "(ab)*").unwrap();
            let mut mask = [0u32; VOCAB / 32];
            unsafe {
                assert_eq!(hk_matcher_mask(m, mask.as_mut_ptr(), mask.len()), 0);
                assert_eq!(mask[end as usize / 32] >> (end % 32) & 1, 1);
                assert_eq!(hk_matcher_accept(m, end), 0);
                let mut state = 0;
                assert_eq!(hk_matcher_state(m, &mut state), 0);
                assert_eq!(state & 2, 2);
                hk_matcher_free(m);
            }
        }
    }

    #[test]
    fn copies_go_their_own_ways() {
        let model = Model::new();
        let original = model.matcher("regex", "yes|no").unwrap();
        for text in ["yes", "no", "yes"] {
            let mut copy = null_mut();
            unsafe { assert_eq!(hk_matcher_copy(original, &mut copy), 0) };
            assert!(model.accepts(copy, text), "{text}");
        }
        assert!(model.accepts(original, "no"));
    }

    #[test]
    fn blanks_between_parts_are_bounded() {
        let model = Model::new();
        let object = r#"{"type":"object"}"#;
        let blanks = |n| format!("{{{}\"a\":1}}", " ".repeat(n));
        assert!(model.accepts(model.matcher("json_schema", object).unwrap(), &blanks(16)));
        assert!(!model.accepts(model.matcher("json_schema", object).unwrap(), &blanks(17)));
        // A schema that sets x-guidance itself keeps its setting.
        let strict = r#"{"type":"object","x-guidance":{"whitespace_flexible":false}}"#;
        assert!(!model.accepts(model.matcher("json_schema", strict).unwrap(), &blanks(1)));
    }

    #[test]
    fn single_characters_are_matched_in_all_ways() {
        // Two rules begin alike: the text behind decides between them, not the longest match.
        let model = Model::new();
        let lark = "start: (/[a-z]/)+ \"b\" \"c\" | \"a\" \"b\" /[0-9]/\n";
        for (text, good) in [("abc", true), ("ab1", true), ("abbc", true), ("ab", false)] {
            let m = model.matcher("lark", lark).unwrap();
            assert_eq!(model.accepts(m, text), good, "{text}");
        }
    }

    #[test]
    fn bad_grammars_are_errors() {
        let model = Model::new();
        let missing = r##"{"type":"object","properties":{"a":{"$ref":"#/nowhere"}}}"##;
        for (kind, grammar) in
            [("regex", "(a"), ("json_schema", missing), ("lark", "start: nowhere"), ("yaml", "a")]
        {
            assert!(model.matcher(kind, grammar).is_none(), "{grammar}");
        }
    }

    #[test]
    fn what_spells_a_control_token_is_written_as_text() {
        let model = Model::new();
        for text in ["a <|im_end|> b", "<|im_start|>", "x<|im_end|><|im_end|>", "<|im_end|>\u{e9}"]
        {
            let schema = serde_json::json!({ "const": text }).to_string();
            let m = model.matcher("json_schema", &schema).unwrap();
            let mut written = vec![];
            for _ in 0..200 {
                let mut forced = HkBuf { ptr: null_mut(), len: 0, cap: 0 };
                let mut mask = [0u32; VOCAB / 32];
                let mut state = 0;
                unsafe {
                    assert_eq!(hk_matcher_forced(m, &mut forced), 0);
                    let first = std::slice::from_raw_parts(forced.ptr, forced.len).chunks(4).next();
                    let first = first.map(|b| u32::from_ne_bytes(b.try_into().unwrap()));
                    hk_buf_free(&mut forced);
                    assert_eq!(hk_matcher_mask(m, mask.as_mut_ptr(), mask.len()), 0);
                    let any =
                        (0..VOCAB as u32).find(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1);
                    let id = first.or(any).unwrap();
                    assert_eq!(hk_matcher_accept(m, id), 0, "{text}: {id} after {written:?}");
                    written.push(id);
                    assert_eq!(hk_matcher_state(m, &mut state), 0);
                }
                if state & 2 == 2 {
                    break;
                }
            }
            unsafe { hk_matcher_free(m) };
            let said = model.tokenizer().decode(&written, true).unwrap();
            assert_eq!(said, serde_json::to_string(text).unwrap());
        }
    }

    /// A quarter of the stack that a compilation gets.
    const QUARTER: usize = 64 << 20;

    #[test]
    fn what_the_bounds_let_through_fits_a_quarter_of_the_stack() {
        use crate::grammar_bounds::LEVELS_MAX;
        let model = Model::new();
        let rules = |n: usize, open: &str, close: &str| {
            let each = |i| format!("a{i}: {open}a{}{close}\n", i + 1);
            format!("start: a0\n{}a{n}: \"x\"\n", (0..n).map(each).collect::<String>())
        };
        let refs = |n: usize, begin: &str, end: &str| {
            let each = |i| format!(r##""a{i}":{begin}{{"$ref":"#/$defs/a{}"}}{end},"##, i + 1);
            let all: String = (0..n).map(each).collect();
            format!(r##"{{"$ref":"#/$defs/a0","$defs":{{{all}"a{n}":{{"type":"string"}}}}}}"##)
        };
        let deep = LEVELS_MAX / 25;
        for (kind, grammar) in [
            ("lark", rules(LEVELS_MAX - 2, "", "")),
            ("lark", rules(LEVELS_MAX - 2, "", "").to_uppercase().replace("START", "start")),
            ("lark", rules(deep, &"(".repeat(24), &")".repeat(24))),
            ("lark", rules(deep, &"[".repeat(24), &"]".repeat(24))),
            ("json_schema", refs(LEVELS_MAX / 2 - 4, "", "")),
            ("json_schema", refs(LEVELS_MAX / 22 - 4, &r#"{"items":"#.repeat(20), &"}".repeat(20))),
            (
                "json_schema",
                refs(LEVELS_MAX / 5 - 4, r#"{"type":"array","items":{"allOf":["#, "]}}"),
            ),
        ] {
            let on_it = std::thread::Builder::new().stack_size(QUARTER);
            std::thread::scope(|scope| {
                let model = Sendable(&model);
                let grammar = &grammar;
                let run = move || {
                    let Sendable(model) = { model };
                    let m = model.matcher(kind, grammar).unwrap_or(null_mut());
                    // The grammar may be refused; only the stack matters here.
                    Sendable(m)
                };
                let made = on_it.spawn_scoped(scope, run).unwrap().join().unwrap();
                // Threads with usual stacks compute masks; this thread has a quarter of such a
                // stack.
                let on_usual = std::thread::Builder::new().stack_size(2 << 20);
                let run = move || {
                    let Sendable(m) = { made };
                    let mut mask = [0u32; VOCAB / 32];
                    if !m.is_null() {
                        unsafe { hk_matcher_mask(m, mask.as_mut_ptr(), mask.len()) };
                        unsafe { hk_matcher_free(m) };
                    }
                };
                on_usual.spawn_scoped(scope, run).unwrap().join().unwrap();
            });
        }
    }

    struct Sendable<T>(T);
    unsafe impl<T> Send for Sendable<T> {}

    /// A condition that explodes would stop an answer where it is met, perhaps far behind its
    /// beginning.
    #[test]
    fn conditions_that_explode_are_refused() {
        let model = Model::new();
        let classes = |n: u8| {
            let each = |i: u8| format!("[{}-{}]x{i}", 'a', (b'b' + i) as char);
            (0..n).map(each).collect::<Vec<_>>().join("|")
        };
        let all = |parts: usize, n: u8| {
            let each = |i| format!("/[pq]{{200}}({}|y{i})+z{{{i}}}!/", classes(n));
            let each: Vec<_> = (1..=parts).map(each).collect();
            format!("start: A\nA: {}\n", each.join(" & "))
        };
        assert!(model.matcher("lark", &all(5, 24)).is_none());
        for (kind, good) in [
            ("lark", all(2, 24)),
            ("lark", "start: A\nA: /(?s:.*)end/ & ~/.*a.*/ & ~/.*b.*/ & ~/.*c.*/\n".to_string()),
            (
                "json_schema",
                r#"{"type":"string","pattern":"^[a-z]+\\w*-\\d+$","minLength":4,"maxLength":40,
                    "allOf":[{"pattern":"^[a-z0-9-]*$"}]}"#
                    .to_string(),
            ),
        ] {
            let m = model.matcher(kind, &good);
            assert!(m.is_some(), "{good}");
            unsafe { hk_matcher_free(m.unwrap()) };
        }
    }

    #[test]
    fn bytes_are_those_that_a_matcher_holds() {
        let model = Model::new();
        let bytes = |m: *mut HkMatcher| unsafe { hk_matcher_bytes(m) };
        let small = model.matcher("regex", "a|b").unwrap();
        let large =
            model.matcher("json_schema", r#"{"type":"integer","multipleOf":9973}"#).unwrap();
        assert!(
            bytes(small) > 1000 && bytes(large) > 1_000_000,
            "{} {}",
            bytes(small),
            bytes(large)
        );
        let mut copy = null_mut();
        unsafe {
            assert_eq!(hk_matcher_copy(large, &mut copy), 0);
            assert!(bytes(copy) > 500_000, "{}", bytes(copy));
            let before = bytes(copy);
            let mut mask = [0u32; VOCAB / 32];
            for _ in 0..1000 {
                assert_eq!(hk_matcher_mask(copy, mask.as_mut_ptr(), mask.len()), 0);
            }
            assert!(bytes(copy) < before + 1_000_000, "{before} {}", bytes(copy));
            // A matcher that has grown too large refuses all calls.
            (*copy).bytes = MATCHER_BYTES_MAX + 1;
            assert_ne!(hk_matcher_mask(copy, mask.as_mut_ptr(), mask.len()), 0);
            for m in [small, large, copy] {
                hk_matcher_free(m);
            }
        }
    }

    #[test]
    fn tokens_are_checked_without_being_taken() {
        let model = Model::new();
        let tokenizer = model.tokenizer();
        let ids = |text: &str| tokenizer.encode(text, false).unwrap().get_ids().to_vec();
        let m = model.matcher("regex", "The quick (brown|red) fox").unwrap();
        let allowed = |ids: &[u32]| unsafe {
            let mut count = 99;
            assert_eq!(hk_matcher_allowed(m, ids.as_ptr(), ids.len(), &mut count), 0);
            count
        };
        let good = ids("The quick red fox");
        assert_eq!(allowed(&good), good.len());
        assert_eq!(allowed(&[]), 0);
        let mut bad = good.clone();
        bad[2] = ids("!")[0];
        assert_eq!(allowed(&bad), 2);
        bad[1] = u32::MAX;
        assert_eq!(allowed(&bad), 1);
        assert!(model.accepts(m, "The quick brown fox"));
    }

    #[test]
    fn forced_tokens_and_rollback() {
        let model = Model::new();
        let m = model.matcher("regex", "The quick brown fox").unwrap();
        let mut state = 0;
        unsafe {
            let mut forced = HkBuf { ptr: null_mut(), len: 0, cap: 0 };
            assert_eq!(hk_matcher_forced(m, &mut forced), 0);
            let ids: Vec<u32> = std::slice::from_raw_parts(forced.ptr, forced.len)
                .chunks(4)
                .map(|b| u32::from_ne_bytes(b.try_into().unwrap()))
                .collect();
            hk_buf_free(&mut forced);
            let tokenizer = model.tokenizer();
            let text = tokenizer.decode(&ids, false).unwrap();
            assert!("The quick brown fox".starts_with(&text) && text.len() > 10, "{text}");
            assert_eq!(hk_matcher_accept(m, ids[0]), 0);
            assert_eq!(hk_matcher_state(m, &mut state), 0);
            assert_eq!(state, 0);
            assert_eq!(hk_matcher_rollback(m, 1), 0);
        }
        assert!(model.accepts(m, "The quick brown fox"));
    }
}
