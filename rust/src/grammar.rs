//! Structured output: schema, regex or Lark grammar -> bitmask of allowed tokens (llguidance).
use crate::*;
use llguidance::api::TopLevelGrammar;
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Matcher, ParserFactory};
use std::sync::Arc;
use toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

struct Env {
    trie: TokTrie,
    parts: Arc<Parts>,
}
impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }
    fn tokenize_bytes(&self, s: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(s, |s| {
            self.parts
                .tokenizer
                .encode_fast(s, false)
                .map(|e| e.get_ids().to_vec())
                .unwrap_or_default()
        })
    }
}

/// One per model: token trie plus slices that make masks cheap. Thread-safe.
pub struct HkGrammar(ParserFactory);
pub struct HkMatcher(Matcher, TokenId);

/// `vocab` is the width of the logits (>= tokenizer vocabulary); ids past the tokenizer's are never allowed.
#[no_mangle]
pub unsafe extern "C" fn hk_grammar_new(
    t: *const HkTokenizer,
    json: *const c_char,
    n: usize,
    vocab: usize,
    eos: u32,
    out: *mut *mut HkGrammar,
) -> i32 {
    guard(|| {
        let v: serde_json::Value = serde_json::from_slice(bytes(json, n))?;
        let mut words = llguidance::token_bytes_from_tokenizer_json(&v)?;
        if words.len() > vocab {
            return Err(format!("tokenizer has {} tokens, logits only {vocab}", words.len()).into());
        }
        words.resize(vocab, vec![]);
        let trie = TokTrie::from(&TokRxInfo::new(vocab as u32, eos), &words);
        let env: TokEnv = Arc::new(Env { trie, parts: (*t).0.clone() });
        let caps = toktrie::InferenceCapabilities { ff_tokens: true, ..Default::default() };
        let mut f = ParserFactory::new(&env, caps, &SlicedBiasComputer::general_slices())?;
        f.quiet();
        *out = Box::into_raw(Box::new(HkGrammar(f)));
        Ok(())
    })
}
/// kind: "json_schema", "regex" or "lark".
#[no_mangle]
pub unsafe extern "C" fn hk_matcher_new(
    g: *const HkGrammar,
    kind: *const c_char,
    kn: usize,
    text: *const c_char,
    n: usize,
    out: *mut *mut HkMatcher,
) -> i32 {
    guard(|| {
        let text = utf8(text, n)?;
        let top = match utf8(kind, kn)? {
            "json_schema" => TopLevelGrammar::from_json_schema(serde_json::from_str(text)?),
            "regex" => TopLevelGrammar::from_regex(text),
            "lark" => TopLevelGrammar::from_lark(text.to_string()),
            k => return Err(format!("unknown grammar kind {k}").into()),
        };
        let m = Matcher::new((*g).0.create_parser(top));
        if let Some(e) = m.get_error() {
            return Err(e.into());
        }
        *out = Box::into_raw(Box::new(HkMatcher(m, (*g).0.tok_env().eos_token())));
        Ok(())
    })
}
/// Writes one bit per token (bit i of word i/32); `words` must be at least vocab/32 rounded up.
#[no_mangle]
pub unsafe extern "C" fn hk_matcher_mask(m: *mut HkMatcher, mask: *mut u32, words: usize) -> i32 {
    guard(|| {
        let v = (*m).0.compute_mask_or_eos()?;
        let s = v.as_slice();
        let need = v.len().div_ceil(32);
        if words < need {
            return Err(format!("mask needs {need} words, got {words}").into());
        }
        let dst = std::slice::from_raw_parts_mut(mask, words);
        dst[..need].copy_from_slice(&s[..need]);
        dst[need..].fill(0);
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_matcher_accept(m: *mut HkMatcher, id: u32) -> i32 {
    guard(|| {
        let m = &mut *m;
        // The matcher stops by itself when nothing may follow; EOS after that is right, anything else is not.
        if m.0.is_stopped() {
            return if id == m.1 {
                Ok(())
            } else {
                Err("the grammar is complete; only end-of-sequence may follow".into())
            };
        }
        m.0.consume_token(id).map_err(|e| first_line(&e.to_string()).into()) // later lines would quote the user's text
    })
}
fn first_line(s: &str) -> String {
    s.lines().next().unwrap_or("").to_string()
}
#[no_mangle]
pub unsafe extern "C" fn hk_matcher_rollback(m: *mut HkMatcher, n: usize) -> i32 {
    guard(|| Ok((*m).0.rollback(n)?))
}
/// Tokens that the grammar forces next (jump-forward); empty if there is a choice.
#[no_mangle]
pub unsafe extern "C" fn hk_matcher_forced(m: *mut HkMatcher, out: *mut HkBuf) -> i32 {
    guard(|| {
        out.write((*m).0.compute_ff_tokens().as_slice().into());
        Ok(())
    })
}
/// bit 0: the text so far may end here; bit 1: nothing more may follow.
#[no_mangle]
pub unsafe extern "C" fn hk_matcher_state(m: *mut HkMatcher, out: *mut u32) -> i32 {
    guard(|| {
        *out = (*m).0.is_accepting()? as u32 | ((*m).0.is_stopped() as u32) << 1;
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_matcher_free(m: *mut HkMatcher) {
    release(m)
}
#[no_mangle]
pub unsafe extern "C" fn hk_grammar_free(g: *mut HkGrammar) {
    release(g)
}
