//! The document is fit for generators: operations are unique, and everything has a description.

use std::collections::HashSet;

use serde_json::Value;

fn document() -> Value {
    serde_json::from_str(&crate::openapi_json()).unwrap()
}

/// Every operation with its method and path.
fn operations(document: &Value) -> Vec<(String, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().iter();
            methods.map(move |(method, operation)| (format!("{method} {path}"), operation))
        })
        .collect()
}

#[test]
fn operation_ids_are_unique_verb_first_camel_case() {
    const VERBS: &[&str] = &[
        "list",
        "get",
        "update",
        "pause",
        "resume",
        "cancel",
        "reset",
        "explain",
        "open",
        "seal",
        "stream",
        "enqueue",
        "replay",
        "lease",
        "extend",
        "settle",
        "purge",
        "read",
        "refresh",
        "release",
        "close",
        "void",
        "delete",
        "redeem",
        "check",
        "complete",
        "enable",
        "disable",
        "join",
        "leave",
        "run",
        "reschedule",
        "reprioritise",
        "drop",
    ];
    let (document, mut seen) = (document(), HashSet::new());
    for (name, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap();
        let verb = id.split(char::is_uppercase).next().unwrap();
        assert!(VERBS.contains(&verb), "{name}: {id}");
        assert!(
            id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
            "{name}: {id}"
        );
        assert!(seen.insert(id.to_owned()), "{name}: {id} twice");
    }
    assert!(seen.len() > 70, "{}", seen.len());
}

#[test]
fn every_operation_response_and_parameter_is_described() {
    let document = document();
    let tags: HashSet<_> = document["tags"].as_array().unwrap().iter().collect();
    let tags: HashSet<_> = tags.iter().map(|tag| &tag["name"]).collect();
    for (name, operation) in operations(&document) {
        let summary = operation["summary"].as_str().unwrap();
        assert!(
            summary.ends_with('.') && !summary.contains('\n'),
            "{name}: {summary}"
        );
        assert!(
            operation["tags"]
                .as_array()
                .unwrap()
                .iter()
                .all(|tag| tags.contains(tag)),
            "{name}: its tag has no description"
        );
        assert!(operation["security"].is_array(), "{name}: who may call it?");
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let description = parameter["description"].as_str().unwrap_or_default();
            assert!(!description.is_empty(), "{name}: parameter {}", parameter["name"]);
            let camel = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric());
            assert!(camel(parameter["name"].as_str().unwrap()), "{name}: {parameter}");
        }
        for (status, response) in operation["responses"].as_object().unwrap() {
            let description = response["description"].as_str().unwrap_or_default();
            assert!(!description.is_empty(), "{name}: response {status}");
            let problem = &response["content"]["application/problem+json"];
            assert_eq!(status.as_str() >= "400", problem.is_object(), "{name}: {status}");
        }
    }
}

#[test]
fn fields_are_camel_case_values_upper_case_and_pages_refer_to_their_items() {
    let document = document();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    fn fields(name: &str, schema: &Value) {
        for (field, inner) in schema["properties"].as_object().into_iter().flatten() {
            assert!(!field.contains('_'), "{name}.{field}");
            fields(name, inner);
        }
        for value in schema["enum"].as_array().into_iter().flatten() {
            let value = value.as_str().unwrap();
            assert_eq!(value, value.to_uppercase(), "{name}");
        }
        for variant in schema["oneOf"].as_array().into_iter().flatten() {
            fields(name, variant);
        }
    }
    for (name, schema) in schemas {
        fields(name, schema);
        assert!(!name.contains('_'), "{name}");
    }
    assert_eq!(
        schemas["GroupPage"]["properties"]["items"]["items"]["$ref"],
        "#/components/schemas/Group"
    );
}
