//! The OpenAPI document says what there is: all routes, all fields.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use weir_protocol::access::{CreatedToken, NewToken, Role};
use weir_protocol::api::{ClusterStatus, JobState, JobSubmission, Refusal, RefusalKind};
use weir_protocol::{ComponentPin, JobSpec};

use super::world::{EPOCH, World, component, digest_of, event, job_detail, job_status, led_elsewhere, token_status, worker};
use crate::openapi::TEXT;
use crate::routes;

fn document() -> Value {
    serde_json::from_str(TEXT).unwrap()
}

#[test]
fn it_has_the_routes_that_there_are() {
    let document = document();
    let described: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(move |method| (method.clone(), path.clone())))
        .collect();
    let there: BTreeSet<(String, String)> =
        routes::list().into_iter().map(|(method, path, _)| (method.to_owned(), path.to_owned())).collect();
    assert_eq!(described, there);
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let named: Vec<&str> = operation["parameters"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|parameter| parameter["in"] == "path")
                .filter_map(|parameter| parameter["name"].as_str())
                .collect();
            let expected: Vec<&str> = path.split('{').skip(1).filter_map(|part| part.split('}').next()).collect();
            assert_eq!(named, expected, "{method} {path}");
        }
    }
}

#[test]
fn it_has_the_role_that_each_route_takes() {
    let document = document();
    for (method, path, role) in routes::list() {
        assert_eq!(document["paths"][path][method]["x-weir-role"], json!(role), "{method} {path}");
    }
    assert_eq!(document["components"]["schemas"]["Role"]["enum"], json!(Role::ALL));
}

#[test]
fn it_is_served() {
    let world = World::new();
    let (status, body) = world.get("/api/v1/openapi.json");
    assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()), (200, document()));
}

/// What is wrong with a value according to its schema.
fn problems(document: &Value, schema: &Value, value: &Value, place: &str) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/components/schemas/")) {
        return problems(document, &document["components"]["schemas"][name], value, place);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let fits = choices.iter().any(|choice| problems(document, choice, value, place).is_empty());
        return if fits { Vec::new() } else { vec![format!("{place}: {value} is nothing of {schema}")] };
    }
    let is = |kind: &str| match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{place}: unknown type {other}"),
    };
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind.as_str()],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return vec![format!("{place} has no type: {schema}")],
    };
    let mut found = Vec::new();
    if !kinds.iter().any(|kind| is(kind)) {
        found.push(format!("{place}: {value} is not of type {kinds:?}"));
    }
    if let Some(choices) = schema["enum"].as_array() {
        found.extend((!choices.contains(value)).then(|| format!("{place}: {value} is none of {choices:?}")));
    }
    if let (Some(properties), Some(fields)) = (schema["properties"].as_object(), value.as_object()) {
        let (described, there): (BTreeSet<_>, BTreeSet<_>) = (properties.keys().collect(), fields.keys().collect());
        found.extend((described != there).then(|| format!("{place}: {described:?} are described, {there:?} are there")));
        for (name, field) in fields {
            found.extend(problems(
                document,
                &properties.get(name).cloned().unwrap_or_default(),
                field,
                &format!("{place}.{name}"),
            ));
        }
    }
    if let (Value::Object(_), Some(fields)) = (&schema["additionalProperties"], value.as_object()) {
        for (name, field) in fields {
            found.extend(problems(document, &schema["additionalProperties"], field, &format!("{place}.{name}")));
        }
    }
    if let (Value::Object(_), Some(items)) = (&schema["items"], value.as_array()) {
        for (index, item) in items.iter().enumerate() {
            found.extend(problems(document, &schema["items"], item, &format!("{place}[{index}]")));
        }
    }
    found
}

#[test]
fn it_has_the_fields_that_there_are() {
    let document = document();
    let spec = JobSpec {
        overrides: vec![("k".to_owned(), "v".to_owned())],
        environment: [("HOME".to_owned(), "/root".to_owned())].into(),
        components: [(
            "a@1".to_owned(),
            ComponentPin { digest: digest_of(b"a"), name: "a@1".to_owned(), description: weir_model::Description::plain() },
        )]
        .into(),
        ..JobSpec::new("f", "t")
    };
    let cluster = ClusterStatus {
        cluster: "c".to_owned(),
        version: "v".to_owned(),
        certificate_until_ms: 1,
        started_at_ms: 1,
        workers: 1,
        slots: 1,
        slots_used: 0,
        epoch: EPOCH,
        succeeds: vec![EPOCH],
        led_elsewhere: vec![led_elsewhere()],
    };
    let refusal =
        Refusal { kind: RefusalKind::NotFound, code: "E0042".to_owned(), message: "m".to_owned(), hint: Some("h".to_owned()) };
    let mut described = weir_model::Description::plain();
    described.state = weir_model::StateKind::Portable(1);
    described.scratch = Some(weir_model::Scratch { offset: 0, len: 1 << 16 });
    let samples = [
        ("Description", json!(described)),
        ("ClusterStatus", json!(cluster)),
        ("WorkerStatus", json!(worker())),
        ("ComponentStatus", json!(component("a", "1", b"a"))),
        ("JobSubmission", json!(JobSubmission { spec, fresh: true, allow_dropped_state: true })),
        ("JobStatus", json!(job_status("j", JobState::Running))),
        ("JobDetail", json!(job_detail("j"))),
        ("JobEvent", json!(event(1))),
        ("Refusal", json!(refusal)),
        ("NewToken", json!(NewToken { name: "ci".to_owned(), role: Role::Submitter, valid_ms: Some(1) })),
        ("TokenStatus", json!(token_status("ci", Role::Viewer))),
        ("CreatedToken", json!(CreatedToken { token: token_status("ci", Role::Admin), secret: "s".to_owned() })),
    ];
    for (name, sample) in samples {
        let schema = json!({ "$ref": format!("#/components/schemas/{name}") });
        assert_eq!(problems(&document, &schema, &sample, name), Vec::<String>::new());
    }
    let mut wrong = json!(event(1));
    wrong["level"] = json!("loud");
    wrong["extra"] = json!(1);
    assert_eq!(problems(&document, &json!({ "$ref": "#/components/schemas/JobEvent" }), &wrong, "e").len(), 3, "the check sees");
}

#[test]
fn it_has_the_states_that_there_are() {
    let document = document();
    for state in JobState::ALL {
        let schema = json!({ "$ref": "#/components/schemas/JobState" });
        assert_eq!(problems(&document, &schema, &json!(state), "state"), Vec::<String>::new());
        assert_eq!(json!(state), json!(state.to_string()), "people and programs see the same word");
    }
}
