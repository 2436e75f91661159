//! Breaks the spellings of control tokens in a request's own text.
//!
//! One private character, the mark, is inserted into every such spelling. Templates treat it like
//! any other character when they trim, split and join. The tokenizer does not recognise the broken
//! spelling, and removes the mark before it cuts the text into tokens. Neighbouring strings may
//! also form a spelling together, so a string that ends with the beginning of a control token, or
//! begins with the end of one, is marked there, too.
use crate::Res;
use aho_corasick::AhoCorasick;
use serde_json::Value;
use std::collections::HashSet;

const FIRST: u32 = 0xF0000;
const COUNT: usize = 4096;

/// The private characters that neither the request nor the template uses.
pub struct FreeMarks([u64; COUNT / 64]);

impl FreeMarks {
    pub fn new() -> Self {
        FreeMarks([u64::MAX; COUNT / 64])
    }
    pub fn without(mut self, text: &str) -> Self {
        self.remove(text);
        self
    }
    fn remove(&mut self, text: &str) {
        for c in text.chars() {
            let i = (c as u32).wrapping_sub(FIRST) as usize;
            if i < COUNT {
                self.0[i / 64] &= !(1 << (i % 64));
            }
        }
    }
    pub fn remove_all(&mut self, value: &Value) {
        match value {
            Value::String(s) => self.remove(s),
            Value::Array(items) => items.iter().for_each(|v| self.remove_all(v)),
            Value::Object(map) => map.iter().for_each(|(k, v)| {
                self.remove(k);
                self.remove_all(v)
            }),
            _ => {}
        }
    }
    pub fn take(&mut self) -> Res<char> {
        let word = self.0.iter().position(|w| *w != 0).ok_or_else(|| {
            format!("the request uses all {COUNT} private characters from U+F0000 on")
        })?;
        let bit = self.0[word].trailing_zeros();
        self.0[word] &= !(1 << bit);
        Ok(char::from_u32(FIRST + 64 * word as u32 + bit).expect("private characters are valid"))
    }
}

/// Limit of the beginnings and ends of all control tokens, in bytes; ordinary models have some 200
/// KB.
const PARTS_BYTES_MAX: usize = 64 << 20;
/// Most control tokens within one control token; this limits the marks at one place of a text.
const WITHIN_MAX: usize = 8;

pub struct Guard {
    whole: AhoCorasick,
    heads: HashSet<String>, // proper prefixes
    tails: HashSet<String>, // proper suffixes
    longest: usize,
}

impl Guard {
    /// Leaves out tokens of one character, because they cannot be broken.
    pub fn new<'a>(tokens: impl Iterator<Item = &'a str>) -> Res<Self> {
        let tokens: Vec<&str> = tokens.filter(|t| t.chars().count() > 1).collect();
        if tokens.iter().map(|t| t.len() * t.len()).sum::<usize>() > PARTS_BYTES_MAX {
            return Err(
                format!("its {} control tokens are too many or too long", tokens.len()).into()
            );
        }
        let (mut heads, mut tails) = (HashSet::new(), HashSet::new());
        for t in &tokens {
            for (i, _) in t.char_indices().skip(1) {
                heads.insert(t[..i].to_string());
                tails.insert(t[i..].to_string());
            }
        }
        let longest = tokens.iter().map(|t| t.len()).max().unwrap_or(0);
        let whole = AhoCorasick::new(&tokens)?;
        if let Some(t) =
            tokens.iter().find(|t| whole.find_overlapping_iter(**t).nth(WITHIN_MAX).is_some())
        {
            let text = format!("its control token {t:?} spells more than {WITHIN_MAX} of them");
            return Err(text.into());
        }
        Ok(Guard { whole, heads, tails, longest })
    }

    /// Returns the byte offsets at which a mark belongs, ascending.
    fn places(&self, s: &str) -> Vec<usize> {
        let after_first = |i: usize| i + s[i..].chars().next().map_or(0, char::len_utf8);
        let mut at: Vec<usize> =
            self.whole.find_overlapping_iter(s).map(|m| after_first(m.start())).collect();
        // Templates trim, so white space at either end does not count.
        let end = s.trim_end().len();
        let mut low = end.saturating_sub(self.longest);
        while !s.is_char_boundary(low) {
            low += 1;
        }
        for (i, _) in s[low..end].char_indices() {
            if self.heads.contains(&s[low + i..end]) {
                at.push(after_first(low + i));
            }
        }
        let start = s.len() - s.trim_start().len();
        let begins_with_tail = s[start..]
            .char_indices()
            .map(|(i, c)| i + c.len_utf8())
            .take_while(|n| *n < self.longest)
            .any(|n| self.tails.contains(&s[start..start + n]));
        if begins_with_tail {
            at.push(start);
        }
        at.sort_unstable();
        at.dedup();
        at
    }

    pub fn mark(&self, s: &mut String, mark: char) {
        let places = self.places(s);
        if places.is_empty() {
            return;
        }
        let mut marked = String::with_capacity(s.len() + places.len() * mark.len_utf8());
        let mut done = 0;
        for i in places {
            marked.push_str(&s[done..i]);
            marked.push(mark);
            done = i;
        }
        marked.push_str(&s[done..]);
        *s = marked;
    }

    /// Marks every string of a request, including names.
    pub fn mark_all(&self, value: &mut Value, mark: char) {
        match value {
            Value::String(s) => self.mark(s, mark),
            Value::Array(items) => items.iter_mut().for_each(|v| self.mark_all(v, mark)),
            Value::Object(map) => {
                let clean = map.keys().all(|k| self.places(k).is_empty());
                if clean {
                    map.values_mut().for_each(|v| self.mark_all(v, mark));
                } else {
                    for (mut k, mut v) in std::mem::take(map) {
                        self.mark(&mut k, mark);
                        self.mark_all(&mut v, mark);
                        map.insert(k, v);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(s: &str) -> String {
        let mut s = s.to_string();
        Guard::new(["<|end|>", "</s>"].into_iter()).unwrap().mark(&mut s, '#');
        s
    }

    #[test]
    fn marks_spellings_and_their_halves() {
        assert_eq!(marked("plain <b> text"), "plain <b> text");
        assert_eq!(marked("a<|end|>b</s>"), "a<#|end|>b<#/s>");
        assert_eq!(marked("<|en<|end|>"), "<|en<#|end|>");
        assert_eq!(marked("cut <|en \n"), "cut <#|en \n");
        assert_eq!(marked(" d|> rest"), " #d|> rest");
        assert_eq!(marked(""), "");
    }

    #[test]
    fn tokens_beyond_the_limits_are_refused() {
        let refusal = |tokens: &[String]| {
            Guard::new(tokens.iter().map(|t| t.as_str())).err().expect("is taken").to_string()
        };
        let within: Vec<String> = (2..12).map(|n| "a".repeat(n)).collect();
        assert!(refusal(&within).contains("spells more than 8"));
        let long: Vec<String> = (0..2000).map(|n| format!("{n:0256}")).collect();
        assert!(refusal(&long).contains("2000 control tokens"));
    }

    #[test]
    fn takes_an_unused_character() {
        let mut free = FreeMarks::new().without("a\u{F0000}b");
        assert_eq!(free.take().unwrap(), '\u{F0001}');
        assert_eq!(free.take().unwrap(), '\u{F0002}');
        let all: String = (0..COUNT as u32).map(|i| char::from_u32(FIRST + i).unwrap()).collect();
        assert!(FreeMarks::new().without(&all).take().is_err());
    }
}
