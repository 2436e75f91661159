//! Limits of a tokenizer.json, checked before a library builds anything from it.
use crate::Res;
use serde::Deserialize;
use serde_json::Value;

/// The largest vocabularies have some 262,000 tokens; tables are as long as the largest id.
pub const TOKENS_MAX: usize = 1 << 24;
const ADDED_TOKEN_BYTES_MAX: usize = 256;
/// Most bytes that a step may write in place of each match.
const WRITTEN_BYTES_MAX: usize = 1024;
/// Bytes of a pattern, times its counted repeats, because Oniguruma copies the repeated part.
const PATTERN_SIZE_MAX: usize = 1 << 20;
/// WordPiece tries every length of a word at every place of it.
const WORD_CHARS_MAX: u64 = 1024;

#[derive(Deserialize)]
struct AddedToken {
    id: u64,
    content: String,
}
#[derive(Deserialize)]
struct Model {
    max_input_chars_per_word: Option<u64>,
}
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
    model: Model,
}

/// Checks a tokenizer.json; the error is a sentence about the file.
pub fn check_file(json: &[u8]) -> Res<()> {
    let file: File = serde_json::from_slice(json)?;
    for token in &file.added_tokens {
        if token.id >= TOKENS_MAX as u64 {
            return Err(format!(
                "an added token has the id {}, the limit is {TOKENS_MAX}",
                token.id
            )
            .into());
        }
        let bytes = token.content.len();
        if bytes > ADDED_TOKEN_BYTES_MAX {
            return Err(format!(
                "the added token {} has {bytes} bytes, the limit is {ADDED_TOKEN_BYTES_MAX}",
                token.id
            )
            .into());
        }
    }
    if let Some(chars) = file.model.max_input_chars_per_word.filter(|&n| n > WORD_CHARS_MAX) {
        return Err(
            format!("max_input_chars_per_word is {chars}, the limit is {WORD_CHARS_MAX}").into()
        );
    }
    check_step(&file.normalizer)?;
    check_step(&file.pre_tokenizer)?;
    check_step(&file.decoder)
}

/// Checks a step and those inside it; serde_json accepts at most 128 levels.
fn check_step(step: &Value) -> Res<()> {
    match step {
        Value::Array(steps) => steps.iter().try_for_each(check_step),
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| match value {
            Value::String(text) => check_text(name, text),
            other => check_step(other),
        }),
        _ => Ok(()),
    }
}

fn check_text(name: &str, text: &str) -> Res<()> {
    let (size, limit) = match name {
        "precompiled_charsmap" => return Ok(()),
        "Regex" => (text.len().saturating_mul(repeats(text)), PATTERN_SIZE_MAX),
        _ => (text.len(), WRITTEN_BYTES_MAX),
    };
    if size <= limit {
        return Ok(());
    }
    Err(format!("a {name} of its steps has the size {size}, the limit is {limit}").into())
}

/// Returns the product of all counted repeats, `{3}` and `{1,3}`.
fn repeats(pattern: &str) -> usize {
    pattern.split('{').skip(1).fold(1, |product: usize, rest| {
        let inner = rest.split('}').next().unwrap_or_default();
        let count = inner.rsplit(',').find_map(|n| n.parse::<usize>().ok()).unwrap_or(1);
        product.saturating_mul(count.max(1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_repeats_multiply() {
        assert_eq!(repeats(r"\p{N}{1,3}| ?[^\s\p{L}]+[\r\n]*"), 3);
        assert_eq!(repeats("((a{1000}){1000}){9,}"), 9_000_000);
        assert_eq!(repeats("{99999999999999999999}"), 1);
    }
}
