//! The tokenizer, and the incremental decoder for tokens that are not plain bytes.
use crate::cutting::Cutter;
use crate::marks::{FreeMarks, Guard};
use crate::tokenizer_file::{check_file, TOKENS_MAX};
use crate::*;
use std::sync::Arc;
use tokenizers::tokenizer::{step_decode_stream, OffsetType};
use tokenizers::{DecoderWrapper, Tokenizer};

pub struct HkTokenizer(pub(crate) Arc<Parts>);

pub struct Parts {
    pub(crate) tokenizer: Tokenizer,
    special: Guard,
    /// Special tokens, and those that only look special: DeepSeek's role marks are not flagged.
    pub(crate) control: Guard,
    cutter: Cutter,
}

/// Most tokens that a post-processor may add to each text.
const ADDED_BY_PROCESSOR_MAX: usize = 1024;

fn looks_like_control(token: &str) -> bool {
    (token.starts_with("<|") && token.ends_with("|>"))
        || (token.starts_with("<｜") && token.ends_with("｜>"))
}

impl Parts {
    pub(crate) fn new(json: &[u8]) -> Res<Self> {
        check_file(json)?;
        let mut tokenizer = Tokenizer::from_bytes(json)?;
        // A file may carry settings of its last training run; a prompt is never cut or filled.
        tokenizer.with_truncation(None)?;
        tokenizer.with_padding(None);
        let added = tokenizer.get_added_tokens_decoder();
        let special = || added.values().filter(|t| t.special).map(|t| t.content.as_str());
        let control = || {
            added
                .values()
                .filter(|t| t.special || looks_like_control(&t.content))
                .map(|t| t.content.as_str())
        };
        let (special, control) = (Guard::new(special())?, Guard::new(control())?);
        let cutter = Cutter::new(&tokenizer)?;
        let parts = Parts { special, control, cutter, tokenizer };
        let added = parts.encode_marked("", None, true)?.len();
        if added > ADDED_BY_PROCESSOR_MAX {
            return Err(format!(
                "its post_processor adds {added} tokens to each text, the limit is \
                 {ADDED_BY_PROCESSOR_MAX}"
            )
            .into());
        }
        Ok(parts)
    }

    pub(crate) fn slow_pattern(&self) -> &str {
        self.cutter.slow.as_deref().unwrap_or_default()
    }

    /// Does `Tokenizer::encode_fast` within the limits of `Cutter`, and removes the mark once the
    /// added tokens have been found.
    pub(crate) fn encode_marked(
        &self,
        text: &str,
        mark: Option<char>,
        add_special: bool,
    ) -> Res<Vec<u32>> {
        let pieces = self.cutter.cut(&self.tokenizer, text, mark)?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None)?;
        Ok(self.tokenizer.post_process(encoding, None, add_special)?.get_ids().to_vec())
    }

    pub(crate) fn encode(&self, text: &str, how: &HkEncode) -> Res<Vec<u32>> {
        if how.special_as_text {
            let mark = FreeMarks::new().without(text).take()?;
            let mut marked = text.to_string();
            self.special.mark(&mut marked, mark);
            return self.encode_marked(&marked, Some(mark), how.add_special);
        }
        let mark = char::from_u32(how.mark).filter(|&c| c != '\0' && text.contains(c));
        self.encode_marked(text, mark, how.add_special)
    }
}

/// Converts tokens of a byte-level vocabulary to bytes. Each byte is written as one printable
/// character: bytes that are printable in Latin-1 as themselves, the others from U+0100 on.
struct ByteLevel([Option<u8>; 0x144]);

impl ByteLevel {
    fn new() -> Self {
        let mut table = [None; 0x144];
        let mut next = 0x100;
        for b in 0..=255u8 {
            let printable = matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
            let c = if printable { b as usize } else { next };
            next += !printable as usize;
            table[c] = Some(b);
        }
        ByteLevel(table)
    }
    /// A token with any other character (an added token) stands for its own UTF-8.
    fn bytes(&self, token: &str) -> Vec<u8> {
        token
            .chars()
            .map(|c| self.0.get(c as usize).copied().flatten())
            .collect::<Option<Vec<u8>>>()
            .unwrap_or_else(|| token.as_bytes().to_vec())
    }
}

/// Converts SentencePiece spellings: U+2581 is a space, <0x41> is a byte.
fn piece_bytes(token: &str) -> Vec<u8> {
    let hex = token.strip_prefix("<0x").and_then(|t| t.strip_suffix('>')).filter(|h| h.len() == 2);
    match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
        Some(byte) => vec![byte],
        None => token.replace('\u{2581}', " ").into_bytes(),
    }
}

fn is_byte_level(decoder: &DecoderWrapper) -> bool {
    match decoder {
        DecoderWrapper::ByteLevel(_) => true,
        DecoderWrapper::Sequence(s) => {
            !s.get_decoders().is_empty() && s.get_decoders().iter().all(is_byte_level)
        }
        _ => false,
    }
}

#[repr(C)]
pub struct HkVocabulary {
    bytes: HkBuf,
    ends: HkBuf,
    flags: HkBuf,
    byte_exact: bool,
}
const KNOWN: u8 = 1;
const SPECIAL: u8 = 2;
const CONTROL: u8 = 4;

fn vocabulary(t: &Tokenizer) -> Res<HkVocabulary> {
    let size = t.get_vocab(true).values().max().map_or(0, |id| *id as usize + 1);
    if size > TOKENS_MAX {
        return Err(format!("its largest token id is {}, the limit {TOKENS_MAX}", size - 1).into());
    }
    let byte_exact = t.get_decoder().is_some_and(is_byte_level);
    let table = ByteLevel::new();
    let added = t.get_added_vocabulary().get_added_tokens_decoder();
    let (mut bytes, mut ends, mut flags) = (vec![], Vec::with_capacity(size), vec![0u8; size]);
    for (id, flag) in flags.iter_mut().enumerate() {
        if let Some(token) = t.id_to_token(id as u32) {
            bytes.extend(if byte_exact { table.bytes(&token) } else { piece_bytes(&token) });
            *flag = KNOWN;
            if let Some(a) = added.get(&(id as u32)) {
                let special = if a.special { SPECIAL } else { 0 };
                let control = if a.special || looks_like_control(&token) { CONTROL } else { 0 };
                *flag |= special | control;
            }
        }
        ends.push(u32::try_from(bytes.len())?);
    }
    Ok(HkVocabulary {
        bytes: bytes.into(),
        ends: ends.as_slice().into(),
        flags: flags.into(),
        byte_exact,
    })
}

#[no_mangle]
pub unsafe extern "C" fn hk_tokenizer_new(
    json: *const c_char,
    n: usize,
    out: *mut *mut HkTokenizer,
) -> i32 {
    guard(|| {
        let parts = Arc::new(Parts::new(bytes(json, n))?);
        *out = Box::into_raw(Box::new(HkTokenizer(parts)));
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_tokenizer_free(t: *mut HkTokenizer) {
    release(t)
}
#[no_mangle]
pub unsafe extern "C" fn hk_tokenizer_slow_pattern(t: *const HkTokenizer, out: *mut HkBuf) -> i32 {
    guard(|| {
        let parts = &(*t).0;
        out.write(parts.slow_pattern().to_string().into());
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_tokenizer_vocabulary(
    t: *const HkTokenizer,
    out: *mut HkVocabulary,
) -> i32 {
    guard(|| {
        let parts = &(*t).0;
        out.write(vocabulary(&parts.tokenizer)?);
        Ok(())
    })
}

#[repr(C)]
pub struct HkEncode {
    pub(crate) add_special: bool,
    pub(crate) special_as_text: bool,
    pub(crate) mark: u32,
}
#[no_mangle]
pub unsafe extern "C" fn hk_encode(
    t: *const HkTokenizer,
    s: *const c_char,
    n: usize,
    how: *const HkEncode,
    out: *mut HkBuf,
) -> i32 {
    guard(|| {
        out.write((*t).0.encode(utf8(s, n)?, &*how)?.as_slice().into());
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_decode(
    t: *const HkTokenizer,
    ids: *const u32,
    n: usize,
    skip_special: bool,
    out: *mut HkBuf,
) -> i32 {
    guard(|| {
        let ids = if n == 0 { &[] } else { std::slice::from_raw_parts(ids, n) };
        let parts = &(*t).0;
        out.write(parts.tokenizer.decode(ids, skip_special)?.into());
        Ok(())
    })
}

/// One for each running answer.
pub struct HkDetok {
    parts: Arc<Parts>,
    skip_special: bool,
    ids: Vec<u32>,
    prefix: String,
    index: usize,
}

/// Most tokens that wait for the end of a character; they are decoded again with each that follows.
const WAITING_MAX: usize = 64;

impl HkDetok {
    /// Gives up tokens that have waited too long: bytes that no character ends any more are
    /// returned as they are, and tokens without a text are dropped.
    fn let_go(&mut self) -> Res<String> {
        let given = if self.prefix.is_empty() { 0 } else { self.index };
        if self.ids.len() - given <= WAITING_MAX {
            return Ok(String::new());
        }
        let all = self.parts.tokenizer.decode(&self.ids, self.skip_special)?;
        // The same as in hk_detok_flush.
        let rest = all.strip_prefix(self.prefix.as_str()).unwrap_or("\u{FFFD}").to_string();
        if rest.is_empty() {
            self.ids.truncate(given);
        } else {
            self.ids.drain(..given);
            self.prefix = self.parts.tokenizer.decode(&self.ids, self.skip_special)?;
        }
        self.index = self.ids.len();
        Ok(rest)
    }
}

#[no_mangle]
pub unsafe extern "C" fn hk_detok_new(
    t: *const HkTokenizer,
    skip_special: bool,
    out: *mut *mut HkDetok,
) -> i32 {
    guard(|| {
        let parts = (*t).0.clone();
        let (ids, prefix, index) = (vec![], String::new(), 0);
        *out = Box::into_raw(Box::new(HkDetok { parts, skip_special, ids, prefix, index }));
        Ok(())
    })
}
/// Writes the text that became certain with this token; empty while bytes of a character are
/// missing.
#[no_mangle]
pub unsafe extern "C" fn hk_detok_step(d: *mut HkDetok, id: u32, out: *mut HkBuf) -> i32 {
    guard(|| {
        let d = &mut *d;
        let text = step_decode_stream(
            &d.parts.tokenizer,
            vec![id],
            d.skip_special,
            &mut d.ids,
            &mut d.prefix,
            &mut d.index,
        )?;
        let text = match text {
            Some(text) => text,
            None => d.let_go()?,
        };
        out.write(text.into());
        Ok(())
    })
}
/// Writes the text that is still held at the end (an incomplete character becomes U+FFFD).
#[no_mangle]
pub unsafe extern "C" fn hk_detok_flush(d: *mut HkDetok, out: *mut HkBuf) -> i32 {
    guard(|| {
        let d = &mut *d;
        let all = d.parts.tokenizer.decode(&d.ids, d.skip_special)?;
        // Byte fallback judges a run of bytes as a whole, so an incomplete one may contradict text
        // already sent.
        let rest = all.strip_prefix(d.prefix.as_str()).unwrap_or("\u{FFFD}").to_string();
        d.ids.clear();
        d.prefix.clear();
        d.index = 0;
        out.write(rest.into());
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_detok_free(d: *mut HkDetok) {
    release(d)
}
