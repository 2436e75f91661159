//! Prints a template value as Python does: json.dumps, str() and repr().
use crate::budget::make;
use crate::nested::weight;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, Output, State};
use std::fmt::Write;

/// Name of the template variable that holds the mark (see marks.rs), which is never escaped.
pub const MARK_VARIABLE: &str = "__hocket_mark";
const DEPTH_MAX: usize = 200;

/// Writes a float like repr(): the shortest digits, an exponent of two digits below 1e-4 and from
/// 1e16 on.
pub fn float(f: f64) -> String {
    if f.is_nan() {
        return "nan".into();
    }
    if f.is_infinite() {
        return if f > 0.0 { "inf" } else { "-inf" }.into();
    }
    let scientific = format!("{f:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = f.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

pub fn is_float(v: &Value) -> bool {
    v.kind() == ValueKind::Number && !v.is_integer()
}
fn as_float(v: &Value) -> f64 {
    f64::try_from(v.clone()).unwrap_or(f64::NAN)
}

/// Limits the depth, because writing recurses and a template can nest lists without end.
fn check_depth(depth: usize) -> Result<(), Error> {
    if depth <= DEPTH_MAX {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidOperation,
        format!("a value nests deeper than {DEPTH_MAX} levels"),
    ))
}

fn repr_string(out: &mut String, s: &str) {
    let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in s.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() || (c.is_whitespace() && c != ' ') => {
                let code = c as u32;
                let _ = match code {
                    0..=0xFF => write!(out, "\\x{code:02x}"),
                    _ => write!(out, "\\u{code:04x}"),
                };
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

fn repr(out: &mut String, v: &Value, depth: usize) -> Result<(), Error> {
    check_depth(depth)?;
    match v.kind() {
        ValueKind::String => repr_string(out, v.as_str().unwrap_or_default()),
        ValueKind::Seq => {
            out.push('[');
            for (i, item) in v.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(out, &item, depth + 1)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in v.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(out, &key, depth + 1)?;
                out.push_str(": ");
                repr(out, &v.get_item(&key)?, depth + 1)?;
            }
            out.push('}');
        }
        _ if is_float(v) => out.push_str(&float(as_float(v))),
        _ => {
            let _ = write!(out, "{v}");
        }
    }
    Ok(())
}

/// Returns a list, a mapping or a number as Python's str() writes it, and any other value unchanged,
/// because the engine already writes it so.
pub fn text(v: Value) -> Result<Value, Error> {
    match v.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Number => {
            make(weight(&v).saturating_mul(4))?; // a character takes up to ten in Python's quotes
            let mut text = String::new();
            repr(&mut text, &v, 0)?;
            Ok(Value::from(text))
        }
        _ => Ok(v),
    }
}

/// Prints `{{ value }}` as Python's str().
pub fn print(out: &mut Output, _: &State, v: &Value) -> Result<(), Error> {
    let v = text(v.clone())?;
    make(v.as_str().map_or_else(|| weight(&v).saturating_mul(4), |text| text.len() as u64))?;
    Ok(write!(out, "{v}")?)
}

struct Dumps {
    out: String,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
    ascii: bool,
    mark: Option<char>,
}

impl Dumps {
    fn string(&mut self, s: &str) {
        self.out.push('"');
        for c in s.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if (c as u32) < 0x20 || self.ascii && c > '~' && Some(c) != self.mark => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn new_line(&mut self, depth: usize) -> Result<(), Error> {
        if let Some(step) = &self.indent {
            make((step.len() * depth) as u64)?;
            self.out.push('\n');
            self.out.push_str(&step.repeat(depth));
        }
        Ok(())
    }

    fn number(v: &Value) -> String {
        if !is_float(v) {
            return v.to_string();
        }
        match as_float(v) {
            f if f.is_nan() => "NaN".into(),
            f if f.is_infinite() => if f > 0.0 { "Infinity" } else { "-Infinity" }.into(),
            f => float(f),
        }
    }

    fn atom(v: &Value) -> Option<String> {
        match v.kind() {
            ValueKind::None => Some("null".into()),
            ValueKind::Bool => Some(if v.is_true() { "true" } else { "false" }.into()),
            ValueKind::Number => Some(Self::number(v)),
            _ => None,
        }
    }

    fn value(&mut self, v: &Value, depth: usize) -> Result<(), Error> {
        check_depth(depth)?;
        if let Some(atom) = Self::atom(v) {
            self.out.push_str(&atom);
            return Ok(());
        }
        match v.kind() {
            ValueKind::String => self.string(v.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = v.try_iter()?.collect();
                self.out.push('[');
                for (i, item) in items.iter().enumerate() {
                    self.separate(i, depth + 1)?;
                    self.value(item, depth + 1)?;
                }
                self.close(']', items.len(), depth)?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = v.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.out.push('{');
                for (i, key) in keys.iter().enumerate() {
                    self.separate(i, depth + 1)?;
                    let name = Self::atom(key).unwrap_or_else(|| key.to_string());
                    self.string(&name);
                    make(self.key_separator.len() as u64)?;
                    self.out.push_str(&self.key_separator);
                    self.value(&v.get_item(key)?, depth + 1)?;
                }
                self.close('}', keys.len(), depth)?;
            }
            kind => {
                return Err(Error::new(
                    ErrorKind::BadSerialization,
                    format!("tojson cannot write a value of kind {kind}"),
                ))
            }
        }
        Ok(())
    }

    fn separate(&mut self, index: usize, depth: usize) -> Result<(), Error> {
        if index > 0 {
            make(self.item_separator.len() as u64)?;
            self.out.push_str(&self.item_separator);
        }
        self.new_line(depth)
    }
    fn close(&mut self, bracket: char, len: usize, depth: usize) -> Result<(), Error> {
        if len > 0 {
            self.new_line(depth)?;
        }
        self.out.push(bracket);
        Ok(())
    }
}

/// Writes `v` as `json.dumps(v, ensure_ascii=False)`.
pub fn dumps(v: Value) -> Result<String, Error> {
    make(weight(&v).saturating_mul(2))?;
    let mut dumps = Dumps {
        out: String::new(),
        indent: None,
        item_separator: ", ".into(),
        key_separator: ": ".into(),
        sort_keys: false,
        ascii: false,
        mark: None,
    };
    dumps.value(&v, 0)?;
    Ok(dumps.out)
}

/// The filter `tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
pub fn tojson(
    state: &State,
    v: Value,
    ensure_ascii: Option<bool>,
    options: Kwargs,
) -> Result<Value, Error> {
    let indent: Option<Value> = options.get("indent")?;
    let indent = indent.filter(|v| !v.is_none() && !v.is_undefined());
    let indent = match &indent {
        None => None,
        Some(v) => Some(match v.as_str() {
            Some(s) => s.to_string(),
            None => " ".repeat(u8::try_from(v.clone())? as usize),
        }),
    };
    let separators: Option<Vec<String>> = options.get("separators")?;
    let (comma, colon) = match separators.as_deref() {
        Some([comma, colon]) => (comma.clone(), colon.clone()),
        _ => (if indent.is_some() { "," } else { ", " }.into(), ": ".into()),
    };
    let mut dumps = Dumps {
        out: String::new(),
        indent,
        item_separator: comma,
        key_separator: colon,
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ascii: ensure_ascii.or(options.get("ensure_ascii")?).unwrap_or(false),
        mark: state.lookup(MARK_VARIABLE).and_then(|m| m.as_str().and_then(|m| m.chars().next())),
    };
    options.assert_all_used()?;
    make(weight(&v).saturating_mul(if dumps.sort_keys { 8 } else { 2 }))?;
    dumps.value(&v, 0)?;
    Ok(Value::from_safe_string(dumps.out))
}

#[cfg(test)]
mod tests {
    use super::float;

    #[test]
    fn floats_as_python_writes_them() {
        for (f, text) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.2345678901234567e17, "1.2345678901234566e+17"),
            (1e300, "1e+300"),
            (5e-324, "5e-324"),
        ] {
            assert_eq!(float(f), text);
        }
    }
}
