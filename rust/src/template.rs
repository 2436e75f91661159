//! Chat templates: runs Jinja as Hugging Face does.
use crate::marks::FreeMarks;
use crate::program::Program;
use crate::*;
use minijinja::{Environment, Error, ErrorKind, State};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;

/// Most steps of one rendering; a long conversation takes some 100,000.
const FUEL: u64 = 10_000_000;
/// Most bytes of a message that a template writes about itself or a request.
const SENTENCE_BYTES_MAX: usize = 4096;
const NOW_VARIABLE: &str = "__hocket_now";

pub struct HkTemplate {
    program: Program,
    environment: Environment<'static>,
    variables: Map<String, Value>,
    source: String,
    guard: Option<Arc<Parts>>,
}

/// The text given to raise_exception, kept apart from errors of the engine.
#[derive(Debug)]
struct Raised(String);
impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Raised {}

fn raise_exception(text: String) -> Result<minijinja::Value, Error> {
    Err(Error::from(ErrorKind::InvalidOperation).with_source(Raised(text)))
}

fn strftime_now(state: &State, format: String) -> Result<String, Error> {
    let bad = |text: &str| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {text}"));
    let now = state.lookup(NOW_VARIABLE).and_then(|v| v.as_i64()).ok_or_else(|| bad("no time"))?;
    // One character more keeps an empty result apart from a failure.
    let format = std::ffi::CString::new(format + "x").map_err(|_| bad("NUL in the format"))?;
    let mut out = vec![0u8; 1024];
    let n = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::gmtime_r(&now, &mut tm).is_null() {
            return Err(bad("time out of range"));
        }
        libc::strftime(out.as_mut_ptr() as *mut c_char, out.len(), format.as_ptr(), &tm)
    };
    if n == 0 {
        return Err(bad("the result is longer than 1,022 bytes"));
    }
    out.truncate(n - 1);
    String::from_utf8(out).map_err(|_| bad("the result is not UTF-8"))
}

/// Ends each line with a line feed, as Jinja does before it reads a template.
fn with_line_feeds(source: &str) -> Cow<'_, str> {
    match source.contains('\r') {
        true => source.replace("\r\n", "\n").replace('\r', "\n").into(),
        false => source.into(),
    }
}

/// Makes `{% generation %}`, which marks the assistant's text for training, a plain block.
fn without_generation_tags(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return source.into();
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let Some(len) = rest[open..].find("%}") else { break };
        let inner = &rest[open + 2..open + len];
        let word = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        out.push_str(&rest[..open + 2]);
        match word {
            "generation" => out.push_str(&inner.replace(word, "if true")),
            "endgeneration" => out.push_str(&inner.replace(word, "endif")),
            _ => out.push_str(inner),
        }
        rest = &rest[open + len..];
    }
    out.push_str(rest);
    out.into()
}

fn environment() -> Environment<'static> {
    let mut e = Environment::new();
    e.set_fuel(Some(FUEL));
    e.set_formatter(python::print);
    charges::add_all(&mut e);
    e.add_filter("tojson", python::tojson);
    e.add_function("raise_exception", raise_exception);
    e.add_function("strftime_now", strftime_now);
    e
}

/// Returns one sentence about an error, without the template's text or the user's.
fn sentence(e: &Error) -> String {
    let mut text = whole_sentence(e);
    if text.len() > SENTENCE_BYTES_MAX {
        let end = (0..=SENTENCE_BYTES_MAX).rev().find(|&i| text.is_char_boundary(i));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}

fn whole_sentence(e: &Error) -> String {
    let mut source: Option<&dyn std::error::Error> = Some(e);
    while let Some(inner) = source {
        if let Some(raised) = inner.downcast_ref::<Raised>() {
            return raised.0.clone();
        }
        if let Some(other) = inner.downcast_ref::<Error>() {
            if other.kind() == ErrorKind::OutOfFuel {
                return format!("the chat template took more than {FUEL} steps; does it loop?");
            }
        }
        source = inner.source();
    }
    let line = e.line().map(|n| format!(" in line {n}")).unwrap_or_default();
    let detail = e.detail().map(|d| format!(": {d}")).unwrap_or_default();
    format!("chat template{line}: {}{detail}", e.kind())
}

/// Appends `tag` to the text of the last message, or to its last text part.
fn tag_final_message(context: &mut Value, tag: &str) -> Res<()> {
    let content = context
        .get_mut("messages")
        .and_then(|m| m.as_array_mut()?.last_mut()?.get_mut("content"))
        .and_then(|content| match content {
            Value::Array(parts) => {
                parts.iter_mut().rev().find_map(|p| p.get_mut("text").filter(|t| t.is_string()))
            }
            text => Some(text),
        });
    match content {
        Some(Value::String(text)) => {
            text.push_str(tag);
            Ok(())
        }
        _ => Err("continue_final_message needs a last message with text content".into()),
    }
}

/// Cuts after the tagged text. The tag ends with a space, which shows if the template trims.
fn cut_at(rendered: &mut String, end: char) -> Res<()> {
    let at = rendered
        .rfind(end)
        .ok_or("continue_final_message: the chat template does not show the last message's text")?;
    let trimmed = !rendered[at + end.len_utf8()..].starts_with(' ');
    rendered.truncate(at);
    if trimmed {
        rendered.truncate(rendered.trim_end().len());
    }
    Ok(())
}

impl HkTemplate {
    fn new(source: &str, variables: Map<String, Value>, guard: Option<Arc<Parts>>) -> Res<Self> {
        let source = with_line_feeds(source);
        Ok(HkTemplate {
            program: Program::new(&without_generation_tags(&source)).map_err(|e| sentence(&e))?,
            environment: environment(),
            variables,
            source: source.into(),
            guard,
        })
    }

    fn render(&self, context: &[u8], how: &HkRender) -> Res<(String, char)> {
        budget::begin(context.len());
        let mut context: Value = serde_json::from_slice(context)?;
        if self.source.contains(typescript::VARIABLE) {
            typescript::declare_tools(&mut context).map_err(|e| sentence(&e))?;
        }
        let mut free = FreeMarks::new().without(&self.source);
        free.remove_all(&context);
        let (mark, end) = (free.take()?, free.take()?);
        if let Some(parts) = &self.guard {
            parts.control.mark_all(&mut context, mark);
        }
        if how.continue_final {
            tag_final_message(&mut context, &format!("{end} "))?;
        }
        let Value::Object(request) = context else { return Err("context is no object".into()) };
        let mut all = self.variables.clone();
        all.extend(request);
        all.insert(NOW_VARIABLE.into(), how.local_seconds.into());
        all.insert(python::MARK_VARIABLE.into(), mark.to_string().into());

        let mut text = nested::from_json(Value::Object(all))
            .and_then(|root| self.program.run(&self.environment, root))
            .map_err(|e| sentence(&e).replace([mark, end], ""))?;
        if how.continue_final {
            cut_at(&mut text, end)?;
        }
        Ok((text, mark))
    }
}

#[no_mangle]
pub unsafe extern "C" fn hk_template_new(
    source: *const c_char,
    n: usize,
    variables: *const c_char,
    variables_n: usize,
    tokenizer: *const HkTokenizer,
    out: *mut *mut HkTemplate,
) -> i32 {
    guard(|| {
        let variables = serde_json::from_slice(bytes(variables, variables_n))?;
        let guard = tokenizer.as_ref().map(|t| t.0.clone());
        let template = HkTemplate::new(utf8(source, n)?, variables, guard)?;
        *out = Box::into_raw(Box::new(template));
        Ok(())
    })
}

#[repr(C)]
pub struct HkRender {
    local_seconds: i64,
    continue_final: bool,
}
#[no_mangle]
pub unsafe extern "C" fn hk_template_render(
    t: *const HkTemplate,
    context: *const c_char,
    n: usize,
    how: *const HkRender,
    out: *mut HkBuf,
    mark: *mut u32,
) -> i32 {
    guard(|| {
        let (text, m) = (*t).render(bytes(context, n), &*how)?;
        out.write(text.into());
        *mark = m as u32;
        Ok(())
    })
}
#[no_mangle]
pub unsafe extern "C" fn hk_template_free(t: *mut HkTemplate) {
    release(t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_tags_become_plain_blocks() {
        let source = "{%- generation -%}a{% endgeneration %}{{ 'generation' }}";
        assert_eq!(
            without_generation_tags(source),
            "{%- if true -%}a{% endif %}{{ 'generation' }}"
        );
    }
}
