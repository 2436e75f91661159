use super::*;
use crate::Parts;
use serde_json::json;

fn file(name: &str) -> Value {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let path = match name {
        "bundled" => root.join("models/hocket-tiny-qwen3-moe/tokenizer.json"),
        _ => root.join("tests/golden/tokenizers").join(name).join("tokenizer.json"),
    };
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}
fn split(regex: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated",
           "invert": false})
}
/// Returns the steps of DeepSeek-LLM and DeepSeek-V2 with another vocabulary.
fn deepseek_v2() -> Value {
    let mut json = file("qwen2");
    json["normalizer"] = Value::Null;
    json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
        split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(r"\s+$"),
        split("[一-龥ࠀ-一가-\u{D7FF}]+"), {"type": "Digits", "individual_digits": true},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
         "use_regex": false}]});
    json
}
fn parts(json: &Value) -> Parts {
    Parts::new(json.to_string().as_bytes()).unwrap()
}
fn tokenizers() -> Vec<(&'static str, Value)> {
    let mut all: Vec<_> =
        ["qwen2", "llama3", "deepseek_v3", "bundled"].map(|name| (name, file(name))).into();
    all.push(("deepseek_v2", deepseek_v2()));
    all
}

/// Returns short texts of the characters that patterns treat differently.
fn texts() -> impl Iterator<Item = String> {
    let characters: Vec<char> =
        "  \n\n\r\t1234aZéß中文!.-_'s\u{3000}\u{85}١𝟙🙂<>|".chars().collect();
    let mut state = 1u64;
    let mut next = move |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let short = (0..2_000)
        .map(move |_| (0..next(24)).map(|_| characters[next(characters.len())]).collect());
    let long = ["word", "12", "é!", "  \n a中"];
    short.chain(long.map(|run| run.repeat(SEARCH_BYTES_MAX / run.len() + 999) + "1"))
}

#[test]
fn texts_are_cut_as_the_library_cuts_them() {
    for (name, json) in tokenizers() {
        let parts = parts(&json);
        for text in texts() {
            let want = parts.tokenizer.encode_fast(text.as_str(), true).unwrap();
            let got = parts.encode_marked(&text, None, true).unwrap();
            assert_eq!(got, want.get_ids(), "{name}: {text:?}");
        }
    }
}

/// Cuts runs of each kind of character and prints the speed.
#[test]
fn runs_are_cut_in_time() {
    for (name, json) in tokenizers() {
        let parts = parts(&json);
        for run in [" ", "\n", " \n", "a", "1", "!", "中", "é ", "\u{3000}", "a1!"] {
            let text = run.repeat(5_000) + "1";
            let began = Instant::now();
            parts.encode_marked(&text, None, false).unwrap();
            let seconds = began.elapsed().as_secs_f64();
            let rate = text.len() as f64 / 1e6 / seconds;
            println!("{name:12} {run:?} x 5000: {rate:.2} MB/s");
        }
    }
}

#[test]
fn slow_patterns_end_with_a_sentence() {
    let search = Search(Regex::new(r"\s+$").unwrap());
    let text = " ".repeat(200_000) + "1";
    let meter = Meter::with_time(text.len(), Duration::from_millis(20));
    let error = search.all(&text, &meter).unwrap_err().to_string();
    assert!(error.contains("are slow on this text"), "{error}");
    assert_eq!(Search::new(r"\s+$").unwrap().all(&text, &meter).unwrap_err().to_string(), error);

    let meter = Meter::new(text.len());
    assert!(Search::new(r"\s+$").unwrap().all(&text, &meter).unwrap().is_empty());
    let mut json = file("qwen2");
    json["pre_tokenizer"] = split("(a|a)*$");
    let text = "a".repeat(2_000) + "b";
    let error = parts(&json).encode_marked(&text, None, false).unwrap_err().to_string();
    assert!(error.contains("retry-limit-in-match over"), "{error}");
}

#[test]
fn steps_do_not_grow_a_text_without_end() {
    let mut json = file("qwen2");
    let dots = json!({"type": "Replace", "pattern": {"Regex": "."}, "content": "x".repeat(50)});
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                       "use_regex": false});
    let nothing = json!({"type": "Replace", "pattern": {"Regex": "y*"}, "content": "z"});
    for (place, step, says) in [
        ("normalizer", json!({"type": "Sequence", "normalizers": vec![&dots; 4]}), "longer than"),
        ("normalizer", json!({"type": "Sequence", "normalizers": [nothing]}), "the empty text"),
        (
            "pre_tokenizer",
            json!({"type": "Sequence", "pretokenizers": vec![&bytes; 40]}),
            "longer than",
        ),
    ] {
        json["normalizer"] = Value::Null;
        json["pre_tokenizer"] = Value::Null;
        json[place] = step;
        let error = parts(&json).encode_marked(&"é".repeat(999), None, false).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn files_beyond_the_limits_are_refused() {
    let refused = |place: &str, value: Value, says: &str| {
        let mut json = file("qwen2");
        json[place] = value;
        let error = Parts::new(json.to_string().as_bytes()).err().expect("is taken").to_string();
        assert!(error.contains(says), "{error}");
    };
    let token = |id: u64, content: &str| {
        json!([{"id": id, "content": content, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true}])
    };
    let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    let steps = |n: usize| json!({"type": "Sequence", "pretokenizers": vec![split("a"); n]});
    let adds = json!({"SpecialToken": {"id": "<|im_end|>", "type_id": 0}});
    let processor = json!({"type": "TemplateProcessing", "single": vec![adds; 2000], "pair": [],
        "special_tokens": {"<|im_end|>": {"id": "<|im_end|>", "ids": [504],
                                          "tokens": ["<|im_end|>"]}}});
    refused("added_tokens", token(4_000_000_000, "zz"), "has the id 4000000000");
    refused("added_tokens", token(502, &"z".repeat(2000)), "has 2000 bytes");
    refused("normalizer", json!({"type": "Prepend", "prepend": "x".repeat(2000)}), "2000");
    refused("normalizer", replace(json!({"String": ""}), "x"), "is the empty text");
    refused("normalizer", replace(json!({"String": "a"}), &"x".repeat(2000)), "2000");
    refused("pre_tokenizer", split("((a{1000}){1000}){1000}"), "size 23000000000");
    refused("pre_tokenizer", steps(65), "66 normalizers and pre-tokenizers");
    refused("decoder", replace(json!({"String": "a"}), &"x".repeat(2000)), "2000");
    refused("post_processor", processor, "adds 2000 tokens");
    refused("model", json!({"max_input_chars_per_word": 5000}), "is 5000");
}

#[test]
fn slow_patterns_are_found_at_load() {
    for (name, json) in tokenizers() {
        assert_eq!(parts(&json).slow_pattern(), "", "{name}");
    }
    let mut json = file("qwen2");
    for slow in [r"[\s]+$", r"\p{L}+$", r"(\d|\d)*$"] {
        json["pre_tokenizer"] = split(slow);
        assert_eq!(parts(&json).slow_pattern(), slow);
    }
}
