//! The guarantees of the canonical form, by example and by property tests.

use proptest::prelude::*;
use serde_json::Value;
use tidegate_core::rng::Rng;

use super::*;

fn own(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

fn project(fields: &[&str], answer: &str) -> Result<String, ProjectError> {
    let projection = Projection::compile(&own(fields)).unwrap();
    let mut scratch = Scratch::default();
    let canonical = projection.project(answer.as_bytes(), &mut scratch)?;
    Ok(String::from_utf8(canonical.bytes.to_vec()).unwrap())
}

#[test]
fn only_wanted_fields_are_kept_in_order_and_without_space() {
    let answer = r#" { "z" : 1 , "noise" : {"deep":[{"z":2}]}, "list":[ {"b": "x","a":[ 1 , 2 ],"no":0}, {"a":null} ],
                       "o" : { "y" : { "k2": true, "k1" : {} } , "w" : 3 } } "#;
    let kept = project(&["z", "list[].a", "list[].b", "o.y", "absent.x"], answer).unwrap();
    assert_eq!(
        kept,
        r#"{"list":[{"a":[1,2],"b":"x"},{"a":null}],"o":{"y":{"k1":{},"k2":true}},"z":1}"#
    );
}

#[test]
fn numbers_stay_as_they_were_written() {
    let answer = r#"{"a":[1.0,1.00,1e5,-0,12345678901234567890123,0.1000]}"#;
    assert_eq!(project(&["a"], answer).unwrap(), answer);
}

#[test]
fn escapes_do_not_matter() {
    let plain = "{\"a\":\"가/\\\"\\\\\\n\u{7f}😀\",\"나\":[\"x\"]}";
    let escaped = r#"{"\ub098":["\u0078"],"\u0061":"\uac00\/\u0022\u005C\u000a\u007f\uD83D\ude00"}"#;
    let fields = ["a", "나"];
    assert_eq!(project(&fields, plain).unwrap(), plain);
    assert_eq!(project(&fields, escaped).unwrap(), plain);
}

#[test]
fn of_the_same_name_the_last_counts() {
    let answer = r#"{"a":1,"o":{"x":1,"y":2,"x":3},"a":2,"p":{"q":1},"p":{"r":2}}"#;
    assert_eq!(
        project(&["a", "o", "p.q"], answer).unwrap(),
        r#"{"a":2,"o":{"x":3,"y":2},"p":{}}"#
    );
}

#[test]
fn null_is_kept_where_an_object_or_a_list_could_be() {
    let answer = r#"{"o":null,"l":null,"m":[null,{"a":1}]}"#;
    assert_eq!(
        project(&["o.a", "l[].a", "m[].a"], answer).unwrap(),
        r#"{"l":null,"m":[null,{"a":1}],"o":null}"#
    );
}

#[test]
fn another_kind_is_named_with_its_place() {
    for (fields, answer, message) in [
        ("a", "[1]", "the answer is a list where an object is expected"),
        ("a", "null", "the answer is null where an object is expected"),
        ("a", "\"x\"", "the answer is a text where an object is expected"),
        ("a.b", r#"{"a":1.5}"#, "a is a number where an object is expected"),
        (
            "a[].b.c",
            r#"{"a":[{"b":true}]}"#,
            "a[].b is a boolean where an object is expected",
        ),
        (
            "a[].b",
            r#"{"a":{"b":1}}"#,
            "a is an object where a list is expected",
        ),
        (
            "a[].b",
            r#"{"a":[[]]}"#,
            "a[] is a list where an object is expected",
        ),
    ] {
        assert_eq!(project(&[fields], answer).unwrap_err().to_string(), message);
    }
}

#[test]
fn what_is_no_json_is_refused_without_its_words() {
    for answer in [
        "",
        "{",
        r#"{"a":"hunter2}"#,
        r#"{"a":hunter2}"#,
        "{\"a\":1} x",
        "{\"a\":\"\u{1}\"}",
        r#"{"a":01}"#,
    ] {
        let error = project(&["a"], answer).unwrap_err();
        assert!(matches!(error, ProjectError::Parse(_)), "{answer}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    assert!(matches!(
        project(&["a"], r#"{"a":"\ud800"}"#),
        Err(ProjectError::Parse(_))
    ));
    let mut scratch = Scratch::default();
    let projection = Projection::compile(&own(&["a"])).unwrap();
    assert!(projection.project(b"{\"a\":\"\xff\"}", &mut scratch).is_err());
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| {
        format!(
            r#"{{"skipped":{0}{1},"a":{0}{1}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    assert!(project(&["a"], &nested(100)).is_ok());
    for depth in [101, 200_000] {
        assert!(
            matches!(project(&["a"], &nested(depth)), Err(ProjectError::Parse(_))),
            "{depth}"
        );
    }
}

#[test]
fn required_fields_must_be_there() {
    let projection =
        Projection::with(&own(&["a", "o.b", "l[].c"]), &own(&["a", "o.b", "l[].c"]), None).unwrap();
    let mut scratch = Scratch::default();
    let mut missing = |answer: &str| match projection.project(answer.as_bytes(), &mut scratch) {
        Ok(_) => None,
        Err(ProjectError::MissingField(path)) => Some(path),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(missing(r#"{"a":1,"o":{"b":2},"l":[{"c":3}]}"#), None);
    assert_eq!(missing(r#"{"a":1,"o":{"b":2},"l":[]}"#), None);
    assert_eq!(missing(r#"{"o":{"b":2},"l":[]}"#).as_deref(), Some("a"));
    assert_eq!(missing(r#"{"a":null,"o":{"b":2},"l":[]}"#).as_deref(), Some("a"));
    assert_eq!(missing(r#"{"a":1,"o":null,"l":[]}"#).as_deref(), Some("o"));
    assert_eq!(missing(r#"{"a":1,"o":{},"l":[]}"#).as_deref(), Some("o.b"));
    assert_eq!(missing(r#"{"a":1,"o":{"b":2}}"#).as_deref(), Some("l"));
    assert_eq!(
        missing(r#"{"a":1,"o":{"b":2},"l":[{"c":3},{"d":1}]}"#).as_deref(),
        Some("l[].c")
    );
    assert_eq!(
        missing(r#"{"a":1,"a":null,"o":{"b":2},"l":[]}"#).as_deref(),
        Some("a")
    );
}

#[test]
fn activity_is_read_and_need_not_be_kept() {
    let answer = br#"{"last":{"login":1772357400,"x":1},"a":1}"#;
    let mut scratch = Scratch::default();
    let apart = Projection::with(&own(&["a"]), &[], Some("last.login")).unwrap();
    let canonical = apart.project(answer, &mut scratch).unwrap();
    assert_eq!(canonical.activity, Some(Timestamp(1_772_357_400_000)));
    assert_eq!(canonical.bytes, br#"{"a":1}"#);
    let kept = Projection::with(&own(&["last.login"]), &[], Some("last.login")).unwrap();
    let canonical = kept.project(answer, &mut scratch).unwrap();
    assert_eq!(canonical.activity, Some(Timestamp(1_772_357_400_000)));
    assert_eq!(canonical.bytes, br#"{"last":{"login":1772357400}}"#);
    assert_eq!(kept.project(b"{}", &mut scratch).unwrap().activity, None);
}

#[test]
fn the_core_of_a_character_is_a_twentieth_of_it() {
    let answer = tidegate_upstream::sample("가나다", 300_000);
    let kept = project(tidegate_upstream::CORE_FIELDS, &answer).unwrap();
    assert!(
        (14_000..20_000).contains(&kept.len()),
        "{} of {}",
        kept.len(),
        answer.len()
    );
    assert!(!kept.contains("2026-03-01T09:30:00Z"));
}

/// A value with names and texts that sometimes need escapes.
fn value() -> impl Strategy<Value = Value> {
    let text = || prop_oneof![3 => "[a-c]{1,3}", 1 => "[\"\\\\/\\n가😀\u{1}]{0,4}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn record() -> impl Strategy<Value = Value> {
    let item = (value(), value()).prop_map(|(kept, other)| serde_json::json!({"k": kept, "other": other}));
    (value(), value(), value(), prop::collection::vec(item, 0..4)).prop_map(|(a, b, noise, list)| {
        serde_json::json!({"a": a, "가": {"b": b, "noise": noise.clone()}, "noise": noise, "list": list})
    })
}

const FIELDS: [&str; 3] = ["a", "가.b", "list[].k"];

/// Writes `value` with the field order, white space and escapes that `dice` decides.
fn write_anyhow(value: &Value, dice: &mut dyn FnMut(usize) -> usize, out: &mut String) {
    let space =
        |dice: &mut dyn FnMut(usize) -> usize, out: &mut String| out.push_str(["", " ", "\n\t"][dice(3)]);
    space(dice, out);
    match value {
        Value::String(text) => write_text(text, dice, out),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write_anyhow(item, dice, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            for end in (1..fields.len()).rev() {
                fields.swap(end, dice(end + 1));
            }
            out.push('{');
            for (at, (name, value)) in fields.into_iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                space(dice, out);
                write_text(name, dice, out);
                space(dice, out);
                out.push(':');
                write_anyhow(value, dice, out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
    space(dice, out);
}

fn write_text(text: &str, dice: &mut dyn FnMut(usize) -> usize, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        let must = matches!(character, '"' | '\\') || character < ' ';
        if must || dice(3) == 0 {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let hex = format!("{unit:04x}");
                out.push_str("\\u");
                out.push_str(&if dice(2) == 0 { hex.to_uppercase() } else { hex });
            }
        } else {
            out.push(character);
        }
    }
    out.push('"');
}

/// A reference implementation of the projection over a tree: slow and plain.
fn kept(record: &Value) -> Value {
    let items = record["list"].as_array().unwrap().iter();
    let list: Vec<Value> = items.map(|item| serde_json::json!({"k": item["k"]})).collect();
    serde_json::json!({"a": record["a"], "list": list, "가": {"b": record["가"]["b"]}})
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn writing_does_not_matter_and_content_does(one in record(), other in record(), seed in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let mut dice = |end: usize| rng.below(end as u64) as usize;
        let (mut first, mut second) = (String::new(), String::new());
        write_anyhow(&one, &mut dice, &mut first);
        write_anyhow(&one, &mut dice, &mut second);
        let canonical = project(&FIELDS, &first).unwrap();
        prop_assert_eq!(&canonical, &project(&FIELDS, &second).unwrap());
        // It matches the reference, and a second projection changes nothing.
        prop_assert_eq!(&serde_json::from_str::<Value>(&canonical).unwrap(), &kept(&one));
        prop_assert_eq!(&canonical, &project(&FIELDS, &canonical).unwrap());
        let differs = kept(&one) != kept(&other);
        prop_assert_eq!(differs, canonical != project(&FIELDS, &other.to_string()).unwrap());
    }
}
